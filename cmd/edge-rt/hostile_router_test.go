package main

import (
	"edgert/rt/rttest"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"edgert/wire/zenoh/zenohtest"
)

// Goal: a hostile router costs the real edge, whose collector is off, at most
// 64 MiB above what it takes beside one that says nothing.
func TestMemoryBehindAHostileRouter(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	for i := range zenohtest.RouterAttacks {
		a := &zenohtest.RouterAttacks[i]
		t.Run(a.Name, func(t *testing.T) {
			x, err := zenohtest.NewHostileRouter(a)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			cmd := exec.Command(binary, "--bus", "sim", "--camera", "top=sim", "--connect", x.Endpoint(), "--duration", "60s", "--quiet")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() }()
			rttest.Eventually(t, "the edge dials", func() bool { return x.Links.Load() != 0 })
			time.Sleep(2 * time.Second) // until all of it is up
			_, idle := zenohtest.Resident(t, cmd.Process.Pid)
			x.Begin(3 * time.Second)
			time.Sleep(4 * time.Second) // the attack, and what it leaves behind
			_, peak := zenohtest.Resident(t, cmd.Process.Pid)
			t.Logf("idle %d MB, at most %d MB above; %d links, %d batches", idle>>20, (peak-idle)>>20, x.Links.Load(), x.Sent())
			if x.Sent() < 100 {
				t.Errorf("only %d batches arrived", x.Sent())
			}
			if peak-idle > zenohtest.MemoryBound {
				t.Errorf("%d MB above idle, want at most %d", (peak-idle)>>20, zenohtest.MemoryBound>>20)
			}
		})
	}
}
