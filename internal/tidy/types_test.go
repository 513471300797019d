package tidy

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
)

// typeInfo answers questions about types. It type-checks one package at a time, on first use, with
// the compiler's export data of its imports.
type typeInfo struct {
	dir     string // the module's folder
	tree    *tree
	checked map[string]map[ast.Expr]types.TypeAndValue // by folder
}

// oneByte reports whether the expression expr, on that line of the file name, has a type of one
// byte. The runtime keeps all 256 values of such types ready, so turning one of them into an
// interface does not allocate. The compiler's report lacks the type.
//
// If the expression is not on the line, it belongs to an inlined function of this package or of
// another package. The name of another package precedes the expression. Then every expression with
// the same text in that package must be one byte wide.
func (i *typeInfo) oneByte(name string, line int, expr string) bool {
	if here, all := i.written(path.Dir(name), expr, name, line); here || all {
		return here || all
	}
	pkg, rest, ok := strings.Cut(expr, ".")
	for _, f := range i.tree.files {
		if !ok || f.test || f.ast.Name.Name != pkg {
			continue
		}
		if _, all := i.written(f.dir, rest, "", 0); all {
			return true
		}
	}
	return false
}

// written looks in the package of dir for expressions with the text expr. The result here reports whether such an
// expression on this line of the file name is one byte wide. The result all is true if this line has none, but the
// package has some and each of them is one byte wide.
func (i *typeInfo) written(dir, expr, name string, line int) (here, all bool) {
	found := false
	wide := false
	onLine := false
	for e, tv := range i.check(dir) {
		if tv.Type == nil || types.ExprString(e) != expr {
			continue
		}
		basic, ok := tv.Type.Underlying().(*types.Basic)
		narrow := ok && (basic.Kind() == types.Bool || basic.Kind() == types.Int8 || basic.Kind() == types.Uint8)
		found, wide = true, wide || !narrow
		if pos := i.tree.fset.Position(e.Pos()); pos.Line == line && pos.Filename == name {
			onLine = true
			here = here || narrow
		}
	}
	return here, found && !wide && !onLine
}

// check returns the types of the folder's expressions, as far as they are known.
func (i *typeInfo) check(dir string) map[ast.Expr]types.TypeAndValue {
	if known, ok := i.checked[dir]; ok {
		return known
	}
	if i.checked == nil {
		i.checked = map[string]map[ast.Expr]types.TypeAndValue{}
	}
	info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	i.checked[dir] = info.Types
	built, exports := i.list(dir)
	var files []*ast.File
	for _, f := range i.tree.files {
		if f.dir == dir && built[path.Base(f.path)] {
			files = append(files, f.ast)
		}
	}
	lookup := func(imported string) (io.ReadCloser, error) { return os.Open(exports[imported]) }
	config := types.Config{
		Importer:    importer.ForCompiler(token.NewFileSet(), "gc", lookup),
		FakeImportC: true,
		Error:       func(error) {}, // a type that cannot be determined does not count as one byte wide
	}
	config.Check(dir, i.tree.fset, files, &info)
	return info.Types
}

// list asks the go command which files of the folder are built here, and for the export data of its
// imports.
func (i *typeInfo) list(dir string) (built map[string]bool, exports map[string]string) {
	built, exports = map[string]bool{}, map[string]string{}
	const format = `{{if .DepOnly}}{{.ImportPath}} {{.Export}}{{else}}{{range .GoFiles}}{{.}}
{{end}}{{range .CgoFiles}}{{.}}
{{end}}{{end}}`
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", format, "./"+dir)
	cmd.Dir = i.dir
	out, err := cmd.Output()
	if err != nil {
		fmt.Fprintf(os.Stderr, "tidy: go list %s: %v\n", dir, err)
	}
	for line := range strings.Lines(string(out)) {
		switch fields := strings.Fields(line); len(fields) {
		case 1:
			built[fields[0]] = true
		case 2:
			exports[fields[0]] = fields[1]
		}
	}
	return built, exports
}
