package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Without this test only tools/mutants would find a mutant whose text has changed.
func TestEveryMutantHasItsText(t *testing.T) {
	for _, s := range suites {
		for _, m := range s.mutants {
			source, err := os.ReadFile(filepath.Join("..", "..", s.dir, m.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.old); n != 1 {
				t.Errorf("%s: %q is there %d times, want once: mend the mutant (%s)", m.file, m.old, n, m.breaks)
			}
		}
	}
}
