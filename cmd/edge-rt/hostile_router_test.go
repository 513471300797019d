package main

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/edge-rt/edge-rt/wire/zenoh/zenohtest"
)

// Goal: a hostile router costs the real edge, whose garbage collector is off, at most 64 MiB more
// than a silent router does.
func TestMemoryBehindAHostileRouter(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("half a minute")
	}
	var victims []*victim
	for i := range zenohtest.RouterAttacks {
		victims = append(victims, newVictim(t, &zenohtest.RouterAttacks[i]))
	}
	time.Sleep(2 * time.Second) // by then all edges are connected and idle
	for _, v := range victims {
		t.Run(v.attack.Name, func(t *testing.T) {
			_, idle := zenohtest.Resident(t, v.pid)
			v.router.Begin(2 * time.Second)
			time.Sleep(2500 * time.Millisecond) // longer than the attack, which lasts 2 s
			_, peak := zenohtest.Resident(t, v.pid)
			sent := v.router.Sent()
			t.Logf("idle %d MB, at most %d MB above; %d links, %d batches", idle>>20, (peak-idle)>>20,
				v.router.Links.Load(), sent)
			if sent < 100 {
				t.Errorf("only %d batches arrived", sent)
			}
			if peak-idle > zenohtest.MemoryBound {
				t.Errorf("%d MB above idle, want at most %d", (peak-idle)>>20, zenohtest.MemoryBound>>20)
			}
		})
	}
}

// victim is an edge connected to a router that has not yet begun its attack.
type victim struct {
	attack *zenohtest.Attack
	router *zenohtest.HostileRouter
	pid    int
}

func newVictim(t *testing.T, a *zenohtest.Attack) *victim {
	t.Helper()
	x := rttest.Must(zenohtest.NewHostileRouter(a))(t)
	t.Cleanup(x.Close)
	p := stagetest.Command(t, binary, "--bus", "sim", "--camera", "top=sim", "--connect", x.Endpoint(), "--duration",
		"60s", "--quiet").Start()
	rttest.Eventually(t, "the edge dials", func() bool { return x.Links.Load() != 0 })
	return &victim{attack: a, router: x, pid: p.Process.Pid}
}
