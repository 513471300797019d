package rttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Programs uses the programs that make has built, and its error about an absent program has the remedy.
func TestProgramsThatAreBuiltAlready(t *testing.T) {
	built := t.TempDir()
	Do(t, os.WriteFile(filepath.Join(built, "edge-rt"), nil, 0o700))
	t.Setenv(programsEnv, built)
	if bin, err := Programs(t.TempDir(), "edge-rt"); bin != built || err != nil {
		t.Errorf("%q, %v, want %q", bin, err, built)
	}
	if _, err := Programs(t.TempDir(), "edge-rt", "lean-server"); err == nil ||
		!strings.Contains(err.Error(), "make build") {
		t.Errorf("%v, want make build named", err)
	}
}
