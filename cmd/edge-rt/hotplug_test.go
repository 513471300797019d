package main

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// The USB cable is pulled while the arm runs: the program continues, takes the arm up again when
// the cable is back, and releases it at the end as usual.
func TestReplugWhileRunning(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "arm")
	b, err := servosim.Open(servosim.Config{Clock: rt.KernelClock(), Link: link})
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { b.Close() })
	s := newHoldServer(t)
	cmd, log := edgeCommand(t, s, b, "--bus", link), new(rttest.Output)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	awaitTorque(t, b, 6, "armed")
	if err := b.Unplug(); err != nil {
		t.Fatal(err)
	}
	awaitText(t, log, "waiting for the arm to come back")
	awaitText(t, log, "no such port")
	if err := b.Replug(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // the port is opened again meanwhile, and torque left as it is
	if n := underTorque(b); n != 6 {
		t.Errorf("%d motors under torque after the adapter is back, want all: they kept it", n)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the run ended with %v, want a clean end", err)
	}
	if n := underTorque(b); n != 0 {
		t.Errorf("%d motors under torque at the end", n)
	}
}
