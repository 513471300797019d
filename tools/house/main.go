// Command house measures the source tree as a newcomer meets it: its size in tokens of Go's own scanner, which no line
// break flatters, the lengths of its functions, its widest lines and assignments, its exported names and the sleeps in
// its tests. Beside each row are the figures of well-known projects and of this one at 6f2a5d5, counted in the same way.
//
//	go run ./tools/house             # the whole tree
//	go run ./tools/house -packages   # tokens by package
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

const (
	widest = 120 // columns of a line of code
	tab    = 4   // columns of a tabulator
	screen = 70  // lines of a function
	wide   = 3   // values of an assignment that are counted
)

// counts are the figures of a tree or a package.
type counts struct {
	files, lines, tokens int
	tests, testTokens    int
	functions            []int // lines of each
	codeLines, long      int
	assignments          int
	exported             int
	sleeps               int
}

func main() {
	root := flag.String("root", ".", "folder of the tree")
	packages := flag.Bool("packages", false, "print the tokens of each package")
	flag.Parse()
	all, err := measure(*root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	if *packages {
		printPackages(all)
		return
	}
	printTree(all)
}

// measure counts every Go file below root by its package's folder.
func measure(root string) (map[string]*counts, error) {
	all := map[string]*counts{}
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
			all[dir] = &counts{}
		}
		return all[dir].add(path)
	})
	return all, err
}

// add counts one file.
func (c *counts) add(path string) error {
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
		c.tests++
		c.testTokens += n
		c.sleeps += strings.Count(string(src), "time.Sleep(")
		return nil
	}
	c.files++
	c.tokens += n
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
				c.assignments++
			}
		case *ast.ValueSpec:
			if len(s.Values) >= wide {
				c.assignments++
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

func (c *counts) addLines(src string) {
	for line := range strings.Lines(src) {
		c.lines++
		code := strings.TrimSpace(line)
		if code == "" || strings.HasPrefix(code, "//") {
			continue
		}
		c.codeLines++
		if columns(strings.TrimRight(line, "\n")) > widest {
			c.long++
		}
	}
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + (tab-1)*strings.Count(line, "\t")
}

func (c *counts) addDecl(files *token.FileSet, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		c.functions = append(c.functions, files.Position(d.End()).Line-files.Position(d.Pos()).Line+1)
		if d.Name.IsExported() {
			c.exported++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					c.exported++
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						c.exported++
					}
				}
			}
		}
	}
}

// sum adds up all packages.
func sum(all map[string]*counts) (out counts) {
	for _, c := range all {
		out.files += c.files
		out.lines += c.lines
		out.tokens += c.tokens
		out.tests += c.tests
		out.testTokens += c.testTokens
		out.functions = append(out.functions, c.functions...)
		out.codeLines += c.codeLines
		out.long += c.long
		out.assignments += c.assignments
		out.exported += c.exported
		out.sleeps += c.sleeps
	}
	slices.Sort(out.functions)
	return out
}

// others are the figures of other projects and of this one before, in the order of printTree's columns.
var others = [][]string{
	{"wireguard-go f333402", "77", "13,792", "", "", "10/50", "4.5 %", "0.7 %", "rare", "35", "14"},
	{"bbolt 4e65d8f", "75", "11,500", "", "", "8/37", "1.5 %", "0.7 %", "15", "33", "11"},
	{"mediamtx 3e09466", "319", "47,098", "", "", "11/54", "6.6 %", "0.1 %", "rare", "19", "66"},
	{"here at 6f2a5d5", "606", "99,977", "676,171", "706,060", "9/26", "0", "2.1 %", "247", "28", "53"},
}

func printTree(all map[string]*counts) {
	c := sum(all)
	over := 0
	for _, n := range c.functions {
		if n > screen {
			over++
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "tree\tfiles\tlines\ttokens\tin tests\tfunctions p50/p90\tover 70 lines\tlines over 120\t"+
		"assignments of 3\texported/1,000 lines\tsleeps in tests\t")
	for _, row := range others {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	half, most := c.functions[len(c.functions)/2], c.functions[len(c.functions)*9/10]
	fmt.Fprintf(w, "here\t%d\t%d\t%d\t%d\t%d/%d\t%d\t%.1f %%\t%d\t%d\t%d\t\n", c.files, c.lines, c.tokens, c.testTokens,
		half, most, over, 100*float64(c.long)/float64(c.codeLines), c.assignments, 1000*c.exported/c.lines, c.sleeps)
}

func printPackages(all map[string]*counts) {
	dirs := make([]string, 0, len(all))
	for dir := range all {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "package\ttokens\tin tests\t")
	for _, dir := range dirs {
		fmt.Fprintf(w, "%s\t%d\t%d\t\n", dir, all[dir].tokens, all[dir].testTokens)
	}
	total := sum(all)
	fmt.Fprintf(w, "all\t%d\t%d\t\n", total.tokens, total.testTokens)
}
