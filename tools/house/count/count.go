// Package count measures Go source trees: tokens of Go's own scanner, lengths of functions, lines and assignments,
// exported names and sleeps in tests.
package count

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	widest = 120 // largest number of columns of a line of code
	tab    = 4   // columns of a tabulator
	wide   = 3   // least number of values of an assignment that is counted
)

// Figures are the sizes of a tree or of a package.
type Figures struct {
	Files, Lines, Tokens int // size without the tests
	Tests, TestTokens    int
	Functions            []int // lines of each function, without tests
	CodeLines, Long      int   // lines that are neither empty nor comments, and those over 120 columns
	Assignments          int   // assignments of three values or more, outside loop headers
	Exported             int
	Sleeps               int // calls of Sleep in tests
}

// Packages returns the Figures of every package below root, by its folder.
func Packages(root string) (map[string]*Figures, error) {
	all := map[string]*Figures{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if all[dir] == nil {
			all[dir] = &Figures{}
		}
		return all[dir].add(path)
	})
	return all, err
}

// add adds the figures of one file.
func (c *Figures) add(path string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	n := tokens(src)
	if strings.HasSuffix(path, "_test.go") {
		c.Tests++
		c.TestTokens += n
		c.Sleeps += strings.Count(string(src), "time.Sleep(")
		return nil
	}
	c.Files++
	c.Tokens += n
	c.addLines(string(src))
	for _, decl := range file.Decls {
		c.addDecl(files, decl)
	}
	headers := map[ast.Node]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.ForStmt:
			headers[s.Init] = true
			headers[s.Post] = true
		case *ast.AssignStmt:
			if len(s.Rhs) >= wide && !headers[s] {
				c.Assignments++
			}
		case *ast.ValueSpec:
			if len(s.Values) >= wide {
				c.Assignments++
			}
		}
		return true
	})
	return nil
}

// tokens returns how many tokens Go's scanner finds, without comments.
func tokens(src []byte) (n int) {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", -1, len(src)), src, nil, 0)
	for {
		if _, t, _ := s.Scan(); t == token.EOF {
			return n
		}
		n++
	}
}

func (c *Figures) addLines(src string) {
	for line := range strings.Lines(src) {
		c.Lines++
		code := strings.TrimSpace(line)
		if code == "" || strings.HasPrefix(code, "//") {
			continue
		}
		c.CodeLines++
		if columns(strings.TrimRight(line, "\n")) > widest {
			c.Long++
		}
	}
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + (tab-1)*strings.Count(line, "\t")
}

func (c *Figures) addDecl(files *token.FileSet, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		c.Functions = append(c.Functions, files.Position(d.End()).Line-files.Position(d.Pos()).Line+1)
		if d.Name.IsExported() {
			c.Exported++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					c.Exported++
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						c.Exported++
					}
				}
			}
		}
	}
}

// Sum adds up all packages, and sorts the lengths of their functions.
func Sum(all map[string]*Figures) (out Figures) {
	for _, c := range all {
		out.Files += c.Files
		out.Lines += c.Lines
		out.Tokens += c.Tokens
		out.Tests += c.Tests
		out.TestTokens += c.TestTokens
		out.Functions = append(out.Functions, c.Functions...)
		out.CodeLines += c.CodeLines
		out.Long += c.Long
		out.Assignments += c.Assignments
		out.Exported += c.Exported
		out.Sleeps += c.Sleeps
	}
	slices.Sort(out.Functions)
	return out
}
