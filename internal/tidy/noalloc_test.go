package tidy

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	mark   = "//rt:noalloc"
	waiver = "//rt:allow" // permits that a value escapes on its line; a reason follows
)

// span is one marked function.
type span struct {
	name     string
	from, to int // line numbers
}

// noalloc holds the marks and waivers in the source.
type noalloc struct {
	tree     *tree
	spans    map[string][]span       // by file
	waivers  map[string]map[int]bool // by file and line; true if an escape has needed the waiver
	dirs     []string                // folders of files with a mark
	findings []string
}

// collectMarks finds the marked functions and the waivers in all files except tests.
func collectMarks(t *tree) *noalloc {
	n := &noalloc{tree: t, spans: map[string][]span{}, waivers: map[string]map[int]bool{}}
	for _, f := range t.files {
		if f.test {
			continue
		}
		inDoc := map[*ast.Comment]bool{}
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Doc != nil {
				n.function(f, fn, inDoc)
			}
		}
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				n.comment(f, c, inDoc[c])
			}
		}
	}
	return n
}

func (n *noalloc) report(p token.Pos, format string, args ...any) {
	n.findings = append(n.findings, n.tree.at(p)+": "+fmt.Sprintf(format, args...))
}

// function records a function whose doc comment is marked.
func (n *noalloc) function(f *file, fn *ast.FuncDecl, inDoc map[*ast.Comment]bool) {
	for i, c := range fn.Doc.List {
		if c.Text != mark {
			continue
		}
		inDoc[c] = true
		if i != len(fn.Doc.List)-1 {
			n.report(c.Pos(), "%s goes last in the doc comment of %s", mark, fn.Name.Name)
		}
		n.spans[f.path] = append(n.spans[f.path], span{fn.Name.Name, n.tree.line(fn.Pos()), n.tree.line(fn.End())})
		if !slices.Contains(n.dirs, f.dir) {
			n.dirs = append(n.dirs, f.dir)
		}
	}
}

// comment records a waiver, and finds marks that belong to no function.
func (n *noalloc) comment(f *file, c *ast.Comment, marks bool) {
	if strings.HasPrefix(strings.TrimLeft(c.Text, "/ "), mark[2:]) && !marks {
		n.report(c.Pos(), "%s marks nothing here: want exactly that, in a function's doc comment", mark)
	}
	reason, ok := strings.CutPrefix(c.Text, waiver)
	if !ok {
		return
	}
	if len(strings.Fields(reason)) < 2 {
		n.report(c.Pos(), "%s wants a reason", waiver)
	}
	if n.waivers[f.path] == nil {
		n.waivers[f.path] = map[int]bool{}
	}
	n.waivers[f.path][n.tree.line(c.Pos())] = false
}

var (
	escape = regexp.MustCompile(`^(\S+\.go):(\d+):\d+: (?:(.*) escapes to heap|moved to heap: (.*))$`)

	// harmless matches escapes that do not violate a mark: growth by append, which the AllocsPerRun
	// tests cover, and constants. Constants are static data, even when they are converted to a
	// named type on their way into an interface.
	harmless = regexp.MustCompile(`^(append|struct \{\}\{\}|` + constant + `|[\w./]+\(` + constant + `\))$`)
)

const constant = `(?:".*"|'.*'|-?[\d.]+(?:e[+-]?\d+)?|true|false)`

// judge reads the compiler's report (-m=1, paths relative to the module's root) and returns the
// violations of marks.
func (n *noalloc) judge(report []byte) (findings []string) {
	seen := map[string]bool{} // an inlined or generic function is reported at each use
	for sc := bufio.NewScanner(bytes.NewReader(report)); sc.Scan(); {
		m := escape.FindStringSubmatch(sc.Text())
		if m == nil || seen[sc.Text()] || harmless.MatchString(m[3]) {
			continue
		}
		seen[sc.Text()] = true
		name, expr := filepath.ToSlash(filepath.Clean(m[1])), m[3]
		line, _ := strconv.Atoi(m[2]) // the pattern allows only digits
		for _, s := range n.spans[name] {
			if line < s.from || line > s.to {
				continue
			}
			if _, waived := n.waivers[name][line]; waived {
				n.waivers[name][line] = true
			} else {
				findings = append(findings, fmt.Sprintf("%s:%d: %s is %s, but %s%s",
					name, line, s.name, mark, expr+m[4], map[bool]string{true: " moves to the heap",
						false: " escapes to the heap"}[expr == ""]))
			}
		}
	}
	for name, lines := range n.waivers {
		for line, needed := range lines {
			if !needed {
				findings = append(findings,
					fmt.Sprintf("%s:%d: %s allows nothing here: the line does not escape in a marked function", name,
						line, waiver))
			}
		}
	}
	slices.Sort(findings)
	return findings
}

// checkNoAlloc builds the packages with a mark below dir and returns the violations of marks. A
// package that does not build is a finding too.
func checkNoAlloc(t *tree, dir string) []string {
	n := collectMarks(t)
	report, err := escapeReport(dir, n.dirs)
	if err != nil && len(n.dirs) > 1 {
		// one package that cannot be loaded suppresses the whole report, so each package is built
		// alone
		report = nil
		for _, d := range n.dirs {
			more, err := escapeReport(dir, []string{d})
			report = append(report, more...)
			n.unbuilt(d, more, err)
		}
	} else if err != nil {
		n.unbuilt(n.dirs[0], report, err)
	}
	return append(n.findings, n.judge(report)...)
}

// escapeReport builds the folders' packages and returns the compiler's report. The go command keeps
// the report of an unchanged package.
func escapeReport(dir string, folders []string) ([]byte, error) {
	if len(folders) == 0 {
		return nil, nil
	}
	args := []string{"build", "-gcflags=-m=1"}
	for _, d := range folders {
		args = append(args, "./"+d)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	// a missing module must be an error and not be downloaded
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	return cmd.CombinedOutput()
}

// unbuilt records a package that does not build. It removes the waivers of the package, which would
// otherwise count as unnecessary.
func (n *noalloc) unbuilt(dir string, report []byte, err error) {
	if err == nil {
		return
	}
	n.findings = append(n.findings, fmt.Sprintf("%s does not build, so its marks are not proven: %v\n%s", dir, err,
		errorLines(report)))
	for name := range n.waivers {
		if path.Dir(name) == dir {
			delete(n.waivers, name)
		}
	}
}

// errorLines drops the optimization report from a failed build's output.
func errorLines(report []byte) string {
	remark := regexp.MustCompile(
		`(?m)^\S+\.go:\d+:\d+: (can inline|inlining call|leaking param|moved to heap|.*escapes? to heap|.* does not escape|.* ignoring self-assignment|zero-copy).*\n`)
	return string(remark.ReplaceAll(report, nil))
}

func TestNoAllocFunctionsDoNotEscape(t *testing.T) {
	tr := theModule(t)
	for _, f := range checkNoAlloc(tr, root) {
		t.Error(f)
	}
	marks := 0
	for _, spans := range collectMarks(tr).spans {
		marks += len(spans)
	}
	if marks < 20 {
		t.Errorf("only %d marked functions found, so the test looks in the wrong place", marks)
	}
}

// Every package with a mark also has a test at run time, because the compiler does not see growth,
// maps and calls into other packages. Such a test does not run in parallel. Other tests of the
// package may be parallel, because parallel tests begin only after the other tests have ended.
func checkAllocTests(t *tree) (findings []string) {
	for _, dir := range collectMarks(t).dirs {
		proven := false
		for _, f := range t.files {
			if !f.test || f.dir != dir {
				continue
			}
			for _, decl := range f.ast.Decls {
				measures, parallel := false, token.NoPos
				ast.Inspect(decl, func(node ast.Node) bool {
					sel, ok := node.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					measures = measures || sel.Sel.Name == "AllocsPerRun" || sel.Sel.Name == "NoAllocs"
					if sel.Sel.Name == "Parallel" {
						parallel = sel.Pos()
					}
					return true
				})
				proven = proven || measures
				if measures && parallel.IsValid() {
					findings = append(findings, t.at(parallel)+
						": t.Parallel beside AllocsPerRun, which panics under it")
				}
			}
		}
		if !proven {
			findings = append(findings, fmt.Sprintf("%s: functions marked %s, but no test with rttest.NoAllocs",
				dir, mark))
		}
	}
	return findings
}

func TestMarkedPackagesMeasureAllocations(t *testing.T) {
	for _, f := range checkAllocTests(theModule(t)) {
		t.Error(f)
	}
}
