package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

const (
	root = "../.."
)

// tree is the module's Go source. It is parsed and not type-checked, so that a rule still works
// when another package does not compile.
type tree struct {
	fset  *token.FileSet
	files []*file // in the order of their paths
}

// file is one Go file; dir and path are relative to the module's root.
type file struct {
	path, dir string
	ast       *ast.File
	lines     int
	test      bool
}

// parseTree reads every Go file below fsys. Like the go command it ignores some folders.
func parseTree(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (base == "testdata" || strings.HasPrefix(base, ".") ||
			strings.HasPrefix(base, "_")):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(t.fset, name, src, parser.ParseComments)
		if err != nil {
			return err
		}
		t.files = append(t.files, &file{
			path: name, dir: path.Dir(name), ast: parsed,
			lines: bytes.Count(src, []byte("\n")),
			test:  strings.HasSuffix(name, "_test.go"),
		})
		return nil
	})
	return t, err
}

var moduleTree = sync.OnceValues(func() (*tree, error) { return parseTree(os.DirFS(root)) })

// theModule returns this module's tree, parsed once for all tests.
func theModule(t *testing.T) *tree {
	t.Helper()
	tr := rttest.Must(moduleTree())(t)
	if len(tr.files) < 10 {
		t.Fatalf("only %d Go files found in %s", len(tr.files), root)
	}
	return tr
}

// sample parses files given as text; files without a package clause get one.
func sample(t *testing.T, files map[string]string) *tree {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, src := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(src)}
	}
	return rttest.Must(parseTree(fsys))(t)
}

// at returns the place of a finding.
func (t *tree) at(p token.Pos) string {
	pos := t.fset.Position(p)
	return fmt.Sprintf("%s:%d", pos.Filename, pos.Line)
}

// line returns the line of p in its file.
func (t *tree) line(p token.Pos) int { return t.fset.Position(p).Line }

// dirs returns the folders that contain a package, and the files of each folder without tests.
func (t *tree) dirs() (dirs []string, files map[string][]*file) {
	files = map[string][]*file{}
	for _, f := range t.files {
		if f.test {
			continue
		}
		if files[f.dir] == nil {
			dirs = append(dirs, f.dir)
		}
		files[f.dir] = append(files[f.dir], f)
	}
	return dirs, files
}

// importPath returns the path in an import spec.
func importPath(spec *ast.ImportSpec) string {
	p, _ := strconv.Unquote(spec.Path.Value) // the parser has checked the literal
	return p
}

// importName returns the name by which the file refers to the imported package, or "" if the file does not import it.
func (f *file) importName(pkg string) string {
	for _, spec := range f.ast.Imports {
		if importPath(spec) != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}

// within reports whether dir is one of the folders or below one.
func within(dir string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return dir == folder || strings.HasPrefix(dir, folder+"/")
	})
}

// want fails the test unless there are as many findings as wanted texts, and each finding contains the wanted text with
// the same index.
func want(t *testing.T, findings, wants []string) {
	t.Helper()
	if len(findings) != len(wants) {
		t.Fatalf("findings = %q, want %d that contain %q", findings, len(wants), wants)
	}
	for i, w := range wants {
		rttest.Contains(t, findings[i], w)
	}
}
