package tidy

import (
	"fmt"
	"go/ast"
	"testing"
)

// contract is the largest permitted size of the transport's contract.
var contract = struct {
	path     string
	lines    int
	exported int            // number of exported names of the file
	methods  map[string]int // number of methods of each interface; an embedded interface counts as one
	why      string
}{
	"wire/transport.go", 110, 14,
	map[string]int{"Session": 9, "Publisher": 3, "Query": 6, "Declaration": 1},
	"every transport has to implement it: what one program alone would like stays out",
}

// wideContract returns the parts of the transport's contract that exceed the limits.
func wideContract(t *tree) (findings []string) {
	for _, f := range t.files {
		if f.path != contract.path {
			continue
		}
		exported := 0
		for _, decl := range f.ast.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range gen.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						if name.IsExported() {
							exported++
						}
					}
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						exported++
					}
					if i, ok := spec.Type.(*ast.InterfaceType); ok &&
						i.Methods.NumFields() > contract.methods[spec.Name.Name] {
						findings = append(findings, fmt.Sprintf("%s: %s has %d methods, want at most %d",
							t.at(spec.Pos()), spec.Name.Name,
							i.Methods.NumFields(), contract.methods[spec.Name.Name]))
					}
				}
			}
		}
		if exported > contract.exported {
			findings = append(findings, fmt.Sprintf("%s: %d exported names, want at most %d", f.path, exported,
				contract.exported))
		}
		if f.lines > contract.lines {
			findings = append(findings, fmt.Sprintf("%s: %d lines, want at most %d", f.path, f.lines, contract.lines))
		}
	}
	return findings
}

func TestTheTransportContractIsSmall(t *testing.T) {
	for _, f := range wideContract(theModule(t)) {
		t.Errorf("%s: %s", f, contract.why)
	}
	for _, tt := range []struct {
		name, src string
		want      []string
	}{
		{"small", "package wire\ntype Declaration interface{ Undeclare() error }\n", nil},
		{"a method more", "package wire\ntype Declaration interface{ Undeclare() error; Key() string }\n",
			[]string{"wire/transport.go:2: Declaration has 2 methods, want at most 1"}},
		{"an interface more", "package wire\ntype Matcher interface{ Matching() bool }\n",
			[]string{"Matcher has 1 methods, want at most 0"}},
		{"many names", "package wire\nconst (\n" + manyNames(15) + ")\n",
			[]string{"15 exported names, want at most 14"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want(t, wideContract(sample(t, map[string]string{contract.path: tt.src})), tt.want)
		})
	}
}

func manyNames(n int) (src string) {
	for i := range n {
		src += fmt.Sprintf("\tN%d = %d\n", i, i)
	}
	return src
}
