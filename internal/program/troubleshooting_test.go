package program

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The words in the first column of docs/troubleshooting.md occur in a text of the code: otherwise a
// reader of the page could not find a message that has changed.
func TestTroubleshootingQuotesTheCode(t *testing.T) {
	const root = "../.."
	page := rttest.ReadFile(t, filepath.Join(root, "docs/troubleshooting.md"))
	texts := sources(t, root)
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(page, -1)
	if len(rows) < 30 {
		t.Fatalf("%d messages, want 30 and more", len(rows))
	}
	for _, row := range rows {
		if !strings.Contains(texts, row[1]) {
			t.Errorf("no text of the code contains %q", row[1])
		}
	}
	if strings.Contains(texts, "a message that no program has, "+"of this test alone") {
		t.Error("tests are looked at, too: every word of theirs would count")
	}
}

// sources returns all texts that the programs may print: strings of Go without tests, verbs of
// formats as %v, and the setup scripts.
func sources(t *testing.T, root string) string {
	t.Helper()
	all := strings.Builder{}
	for _, name := range []string{"tools/setup.sh", "tools/export/setup.sh"} {
		all.WriteString(rttest.ReadFile(t, filepath.Join(root, name)))
	}
	rttest.Do(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (name[0] == '.' || name == "testdata" || name == "bin"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text := rttest.Must(strconv.Unquote(lit.Value))(t)
				all.WriteString(text + "\n")
			}
			return true
		})
		return nil
	}))
	return all.String()
}
