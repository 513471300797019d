package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/zenohtest"
)

// Goal: the real server, in which Go's regular garbage collection is off, withstands each attack of hostile nodes. It
// takes at most 64 MiB more than when idle, and a robot that requests chunks during the attack gets them.
func TestMemoryUnderAttack(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	rttest.RealTime(t) // memory stays in its bound only if a processor is free for the collections at the limit
	r, network, _ := serve(t, "--quiet")
	arm := newArm(t, network)
	for range 20 {
		arm.ask()
	}
	pid := r.Process.Pid
	idle, _ := zenohtest.Resident(t, pid)
	for _, a := range zenohtest.Attacks {
		t.Run(a.Name, func(t *testing.T) {
			os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // resets VmHWM
			x := a.Start(r.endpoint, zenohtest.Churn)
			defer x.Close()
			began, asked := time.Now(), arm.Header.SeqID
			for arm.ask(); !x.Wait(10 * time.Millisecond); arm.ask() {
				if time.Since(began) > patience {
					t.Fatalf("the attack did not end in %v", patience)
				}
			}
			x.Close()
			now, peak := zenohtest.Resident(t, pid)
			t.Logf("idle %d MB, at the end %d MB, at most %d MB above idle; %d chunks in %.1f s, %d links refused",
				idle>>20, now>>20, (peak-idle)>>20, arm.Header.SeqID-asked, time.Since(began).Seconds(),
				x.Refused.Load())
			if peak-idle > zenohtest.MemoryBound {
				t.Errorf("%d MB above idle, want at most %d", (peak-idle)>>20, zenohtest.MemoryBound>>20)
			}
		})
	}
	s := r.stop(syscall.SIGTERM)
	t.Logf("%d requests, %d collections, %d of them by hand, %d objects, service p99 %.1f ms", s.Requests, s.GCCycles,
		s.GCForced, s.PathMallocs, s.ServiceMs.P99)
}
