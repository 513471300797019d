package stage

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A shell without the Makefile's variables has no Python for the router. The error names the variable, and
// not `make build`.
func TestARouterNeedsAPython(t *testing.T) {
	rttest.Fails(t, rttest.Err(NewRouter("", "", t.TempDir(), t.TempDir())), "got no Python", "EDGERT_PYTHON")
}
