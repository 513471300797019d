package main

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The USB cable is pulled while the arm runs. The program continues, drives the arm again when the cable is back, and
// releases it at the end as usual.
func TestReplugWhileRunning(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "arm")
	b := simBusAt(t, link)
	r := startArmed(t, newHoldServer(t), b, "--bus", link)
	rttest.Do(t, b.Unplug())
	r.Await("waiting for the arm to come back")
	r.Await("no such port")
	rttest.Do(t, b.Replug())
	time.Sleep(2 * time.Second) // the run opens the port again, and does not change the torque
	rttest.Want(t, underTorque(b), 6, "motors under torque after the adapter is back (all: they kept it)")
	r.ends(b, 0, 0, syscall.SIGTERM)
}
