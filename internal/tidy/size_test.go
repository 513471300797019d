package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/tools/house/count"
)

// sizes are the tree's figures at the last change of this table. A change that needs more tokens raises a figure
// here, where a reader of the change sees it. A change that makes the tree smaller lowers a figure.
var sizes = []struct {
	name   string
	figure int
	room   float64 // share by which the tree may exceed the figure
	of     func(count.Figures) int
}{
	{"tokens without tests", 920_000, 0.02, func(f count.Figures) int { return f.Tokens }},
	{"tokens in tests", 844_000, 0.02, func(f count.Figures) int { return f.TestTokens }},
	{"functions over 70 lines", 0, 0, func(f count.Figures) int { return longer(f.Functions, maxFunctionLines) }},
	{"lines of code over 120 columns", 292, 0.02, func(f count.Figures) int { return f.Long }},
	{"assignments of three values", 15, 0, func(f count.Figures) int { return f.Assignments }},
}

func longer(lines []int, limit int) (n int) {
	for _, l := range lines {
		if l > limit {
			n++
		}
	}
	return n
}

// checkSizes returns the figures of the tree that exceed the limits in sizes.
func checkSizes(f count.Figures) (findings []string) {
	for _, s := range sizes {
		if n, limit := s.of(f), int(float64(s.figure)*(1+s.room)); n > limit {
			findings = append(findings, fmt.Sprintf("%d %s, want at most %d", n, s.name, limit))
		}
	}
	return findings
}

// TestTheTreeIsNoLarger counts as tools/house does; `go run ./tools/house -packages` shows which packages have grown.
func TestTheTreeIsNoLarger(t *testing.T) {
	packages := rttest.Must(count.Packages(root))(t)
	for _, f := range checkSizes(count.Sum(packages)) {
		t.Error(f)
	}
}

func TestSizeRuleBites(t *testing.T) {
	dir := t.TempDir()
	long := "var _ = \"" + strings.Repeat("x", 120) + "\"\n"
	src := "package a\nvar a, b, c = 1, 2, 3\n" + long + "func f() {\n" + strings.Repeat("\n", maxFunctionLines) + "}\n"
	rttest.Do(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(src), 0o600))
	packages := rttest.Must(count.Packages(dir))(t)
	f := count.Sum(packages)
	if f.Tokens == 0 || f.Long != 1 || f.Assignments != 1 {
		t.Errorf("figures = %+v, want some tokens, one long line and one assignment of three values", f)
	}
	f.Tokens, f.TestTokens = 1_000_000, 1_000_000
	f.Long, f.Assignments = 1_000, 100
	want(t, checkSizes(f), []string{"1000000 tokens without tests", "1000000 tokens in tests", "1 functions over 70",
		"1000 lines of code over 120", "100 assignments"})
}
