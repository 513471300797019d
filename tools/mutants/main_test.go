package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Without this test only tools/mutants would find a mutant whose text has changed.
func TestEveryMutantHasItsText(t *testing.T) {
	for _, s := range suites {
		for _, m := range s.mutants {
			source := rttest.Must(os.ReadFile(filepath.Join("..", "..", s.dir, m.file)))(t)
			if n := strings.Count(string(source), m.old); n != 1 {
				t.Errorf("%s: %q is there %d times, want once: mend the mutant (%s)", m.file, m.old, n, m.breaks)
			}
		}
	}
}
