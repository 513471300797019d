package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"edgert/rt"
	"edgert/servo/servosim"
)

// The plug is pulled while the arm runs: the program goes on, takes the arm up
// when it is back, and lets it go at the end like any other.
func TestReplugWhileRunning(t *testing.T) {
	link := filepath.Join(t.TempDir(), "arm")
	b, err := servosim.Open(servosim.Config{Clock: rt.KernelClock(), Link: link})
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { b.Close() })
	s := newStill(t)
	cmd, log := unarmed(t, s, b, "--bus", link), new(output)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	until := func(what string, so func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !so(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s\n%s", what, log)
			}
		}
	}
	until("the arm was never armed", func() bool { return stiff(b) == 6 })
	if err := b.Unplug(); err != nil {
		t.Fatal(err)
	}
	until("it does not say why the arm stays away", func() bool {
		_, why, said := strings.Cut(log.String(), "waiting for the arm to come back")
		return said && strings.Contains(why, "no such port")
	})
	if err := b.Replug(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	if n := stiff(b); n != 6 {
		t.Errorf("%d motors under torque after the plug is back, want all: they kept it", n)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the run ended with %v, want a clean end: it survives its plug", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if n := stiff(b); n != 0 {
		t.Errorf("%d motors under torque at the end", n)
	}
}
