package servosim

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The vendor's SDK accepts the bus. This check is independent, because the SDK and this package
// have no common author.
func TestTheVendorsSDKAcceptsTheBus(t *testing.T) {
	python := findPython(t, "scservo_sdk")
	link := filepath.Join(t.TempDir(), "bus")
	b := open(t, Config{Link: link})
	b.SetFault(3, 0x20)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, "testdata/vendor.py", link).CombinedOutput()
	if err != nil {
		t.Fatalf("%s testdata/vendor.py: %v\n%s", python, err, out)
	}
	if c := b.Counters(); c.BadChecksums+c.GarbageBytes+c.WrongBaud+c.Overflow > 0 || c.Replies < 50 {
		t.Errorf("counters after the SDK's visit: %+v, want a clean line and at least 50 replies", c)
	}
	for i, on := range b.TorqueEnabled() {
		if on {
			t.Errorf("servo %d still holds torque", i+1)
		}
	}
}

// findPython returns a Python interpreter that has the module, or skips the test when there is none.
func findPython(t *testing.T, module string) string {
	t.Helper()
	for _, python := range []string{os.Getenv("EDGERT_PYTHON"), "../../.venv/bin/python", "python3"} {
		if python != "" && exec.Command(python, "-c", "import "+module).Run() == nil {
			return python
		}
	}
	t.Skipf("no Python with %s: set EDGERT_PYTHON, or pip install feetech-servo-sdk==1.0.0", module)
	return ""
}
