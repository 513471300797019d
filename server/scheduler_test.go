package server

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/wire"
)

// Goal: while one inference runs, the robot whose actions end first gets the next one, and a robot
// that no chunk can reach in time gives way and gets an event.
func TestTheShortestRunwayIsServedFirst(t *testing.T) {
	cfg := config()
	cfg.MaxSessions = 4
	var entered, leave chan struct{}
	b := serve(t, cfg, func(b *bench) { entered, leave = b.holdInferences() })
	robots := map[string]*robot{}
	send := func(id string, runwayMs float64) {
		o := fakeOpen(id)
		o.SessionEpoch = 1 // it knows the events
		if ack := b.open(o); !ack.Accepted {
			t.Fatalf("open = %+v", ack)
		}
		robots[id] = b.robot(id)
		obs := fakeObs(t)
		obs.HasRunway, obs.RunwayMs = true, runwayMs
		robots[id].send(obsHeader(1, 1), obs)
	}
	send("first", 1000)
	<-entered
	send("a-long", 5000)
	send("b-gone", 10)
	send("c-short", 44)
	b.clock.Advance(20 * time.Millisecond) // duration of the first inference
	for i, id := range []string{"first", "c-short"} {
		leave <- struct{}{}
		if got := robots[id].next(); got.header.MsgType != wire.MsgActionChunk {
			t.Fatalf("answer %d, to %s, is %+v, want a chunk", i, id, got)
		}
		<-entered
	}
	if got := robots["b-gone"].next(); got.event.Code != wire.EventLate || got.event.Seq != 1 ||
		got.event.ServerID != b.server.id {
		t.Errorf("who gave way got %+v, want event late of this server", got)
	}
	leave <- struct{}{}
	if got := robots["b-gone"].next(); got.header.MsgType != wire.MsgActionChunk {
		t.Errorf("in the gap b-gone got %+v, want a chunk", got)
	}
	<-entered
	leave <- struct{}{}
	if got := robots["a-long"].next(); got.header.MsgType != wire.MsgActionChunk {
		t.Errorf("a-long got %+v, want a chunk", got)
	}
	if n := b.server.stats.passedOver.Load(); n != 1 {
		t.Errorf("%d requests gave way, want 1", n)
	}
}
