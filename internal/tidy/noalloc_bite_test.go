package tidy

import (
	"os"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// hot is the source of a package whose functions have names that describe how they allocate.
const hot = `// Package hot is a sample.
package hot

import (
	"errors"
	"fmt"
)

type fault uint8

func (f fault) Error() string { return "fault" }

type big int

func (b big) Error() string { return "big" }

const known fault = 3

var keep any

//rt:noalloc
func fine(dst []byte, n int) []byte { return append(dst, byte(n)) }

//rt:noalloc
func panicsWithAConstant() { panic("hot: a constant") }

//rt:noalloc
func constants() { keep = 12; keep = -1.5; keep = 'x'; keep = "x"; keep = true; keep = big(7); keep = known; keep = struct{}{} }

//rt:noalloc
func inlinedWord(s *other) error { return s.asError() }

type other struct{ wide big }

func (s *other) asError() error { return s.wide }

//rt:noalloc
func wordError(b big) error { return b }

//rt:noalloc
func wordConversion(n int) error { return big(n) }

//rt:noalloc
func moved() *int { n := 1; return &n }

//rt:noalloc
func made(n int) []byte { return make([]byte, n) }

//rt:noalloc
func formats(n int) string { return fmt.Sprint(n) }

//rt:noalloc
func inlines() error { return build() }

func build() error { return errors.New("hot: built") }

//rt:noalloc
func waived(n int) {
	keep = n //rt:allow runs once, at the end
}

//rt:noalloc
func waivedForNothing(n int) int {
	return n + 1 //rt:allow nothing to allow
}

func unmarked(n int) { keep = n }
`

func TestNoAllocRuleBites(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module sample\n\ngo 1.26\n", "hot/hot.go": hot} {
		rttest.WriteFile(t, dir, name, text)
	}
	tr := rttest.Must(parseTree(os.DirFS(dir)))(t)
	want(t, checkNoAlloc(tr, dir), []string{
		"inlinedWord is //rt:noalloc, but s.wide escapes",
		"wordError is //rt:noalloc, but b escapes",
		"wordConversion is //rt:noalloc, but big(n) escapes",
		"moved is //rt:noalloc, but n moves",
		"made is //rt:noalloc, but make([]byte, n) escapes",
		"formats is //rt:noalloc, but n escapes",
		"inlines is //rt:noalloc, but &errors.errorString{...} escapes",
		"//rt:allow allows nothing here",
	})
}

func TestMarksMustMark(t *testing.T) {
	for _, tt := range []struct {
		name, src string
		want      []string
	}{
		{"well placed", "// F is marked.\n//\n//rt:noalloc\nfunc F() {}\n", nil},
		{"not last", "//rt:noalloc\n//\n// F is marked.\nfunc F() {}\n", []string{"goes last"}},
		{"with a space", "// F is marked.\n//\n// rt:noalloc\nfunc F() {}\n", []string{"marks nothing"}},
		{"apart from the function", "//rt:noalloc\n\nfunc F() {}\n", []string{"marks nothing"}},
		{"on a type", "//rt:noalloc\ntype T struct{}\n", []string{"marks nothing"}},
		{"with an afterthought", "//rt:noalloc mostly\nfunc F() {}\n", []string{"marks nothing"}},
		{"a waiver with a reason", "var x int //rt:allow it is cold\n", nil},
		{"a waiver without one", "var x int //rt:allow\n", []string{"wants a reason"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := sample(t, map[string]string{"a/a.go": "package a\n\n" + tt.src})
			want(t, collectMarks(tr).findings, tt.want)
		})
	}
}

func TestAllocTestRuleBites(t *testing.T) {
	const marked = "package a\n\n//rt:noalloc\nfunc F() {}\n"
	for _, tt := range []struct {
		name, test string
		want       []string
	}{
		{"measured", "testing.AllocsPerRun(1, F)", nil},
		{"not measured", "F()", []string{"a: functions marked //rt:noalloc, but no test"}},
		{"measured in parallel", "t.Parallel(); testing.AllocsPerRun(1, F)", []string{"t.Parallel"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := sample(t, map[string]string{
				"a/a.go":      marked,
				"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { " + tt.test + " }\n",
			})
			want(t, checkAllocTests(tr), tt.want)
		})
	}
}
