// Package train contains the Python that trains and exports the demo policy; the Python tests run
// as a Go test if Python has numpy. A Python test that needs another, missing module is skipped.
package train

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// python returns an interpreter that has numpy: $EDGERT_PYTHON, the repository's
// .venv, or the system's.
func python(t *testing.T) string {
	t.Helper()
	venv := rttest.Must(filepath.Abs("../../.venv/bin/python"))(t)
	for _, name := range []string{os.Getenv("EDGERT_PYTHON"), venv, "python3"} {
		if name != "" && exec.Command(name, "-c", "import numpy").Run() == nil {
			return name
		}
	}
	t.Skip("needs Python with numpy: tools/setup.sh test")
	return ""
}

func TestPython(t *testing.T) {
	cmd := exec.Command(python(t), "-m", "unittest", "-v")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "test_pictures_are_the_frozen_ones") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
