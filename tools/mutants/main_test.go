package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Without this test only tools/mutants would find a mutant whose text has changed.
func TestEveryMutantHasItsText(t *testing.T) {
	for _, s := range suites {
		for _, m := range s.mutants {
			source := rttest.ReadFile(t, filepath.Join("..", "..", s.dir, m.file))
			rttest.Want(t, strings.Count(source, m.old), 1,
				"places of %q in %s: mend the mutant (%s)", m.old, m.file, m.breaks)
		}
	}
}
