package tidy

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// serverFiles are the files of package server, the lowest first. At most serverArrows uses may point from a
// file to a higher file, so that a reader can begin at either end.
var serverFiles = strings.Fields("admission stats session receive open queries tensors rows engine publish " +
	"worker housekeeping server serve metrics live health run replay check")

const serverArrows = 5

// upwards returns a finding for each file of a folder that uses a name from a file that is later in the list order, and
// for each file that the list lacks. Imports are not resolved: only the package's own names count.
func upwards(t *tree, dir string, order []string) (findings []string) {
	place := func(name string) int { return slices.Index(order, strings.TrimSuffix(path.Base(name), ".go")) }
	var files []*ast.File
	for _, f := range t.files {
		if f.dir != dir || f.test {
			continue
		}
		files = append(files, f.ast)
		if place(f.path) < 0 {
			findings = append(findings, f.path+" has no place in the order")
		}
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Error: func(error) {}}
	config.Check(dir, t.fset, files, &info)
	found := map[string]bool{}
	for id, of := range info.Uses {
		from, to := t.fset.Position(id.Pos()).Filename, t.fset.Position(of.Pos()).Filename
		if of.Pos().IsValid() && place(from) < place(to) {
			found[fmt.Sprintf("%s uses %s", from, to)] = true
		}
	}
	return append(findings, slices.Sorted(maps.Keys(found))...)
}

func TestServerFilesUseLowerOnes(t *testing.T) {
	if found := upwards(theModule(t), "server", serverFiles); len(found) > serverArrows {
		t.Errorf("%d findings, want at most %d uses of a higher file: %q", len(found), serverArrows, found)
	}
	three := sample(t, map[string]string{
		"a/low.go":  "package a\ntype T struct{ n N }\n",
		"a/high.go": "package a\ntype N int\nfunc f(t T) { t.n++ }\n",
		"a/new.go":  "package a\n",
	})
	want(t, upwards(three, "a", []string{"low", "high"}), []string{"a/new.go has no place", "a/low.go uses a/high.go"})
}
