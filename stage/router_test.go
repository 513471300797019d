package stage

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A shell without the Makefile's variables has no Python for the router. The error names the variable, and
// not `make build`.
func TestARouterNeedsAPython(t *testing.T) {
	if _, err := NewRouter("", "", t.TempDir(), t.TempDir()); !rttest.Says(err, "got no Python", "EDGERT_PYTHON") {
		t.Fatal(err)
	}
}
