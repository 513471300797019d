package server

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// Goal: while one inference runs, the robot whose actions end first gets the next inference. A robot that no chunk can
// reach in time is passed over and gets an event.
func TestTheShortestRunwayIsServedFirst(t *testing.T) {
	cfg := config()
	cfg.MaxSessions = 4
	b := serve(t, cfg, (*bench).hold)
	robots := map[string]*robot{}
	send := func(id string, runwayMs float64) {
		// because of the epoch, the server treats it as a robot that reads events
		b.admits(b.open(process(id, "", "", 1)), "an open")
		robots[id] = b.robot(id)
		obs := fakeObs(t)
		obs.HasRunway, obs.RunwayMs = true, runwayMs
		robots[id].send(obsHeader(1, 1), obs)
	}
	send("first", 1000)
	<-b.entered
	send("a-long", 5000)
	send("b-gone", 10)
	send("c-short", 44)
	b.clock.Advance(20 * time.Millisecond) // the first inference takes this long
	for _, id := range []string{"first", "c-short", "b-gone", "a-long"} {
		b.leave <- struct{}{}
		if id == "b-gone" { // this robot was passed over, and is served when the other robots can wait
			if got := robots[id].wantEvent(wire.EventLate, ""); got.event.Seq != 1 ||
				got.event.ServerID != b.server.id {
				t.Errorf("b-gone got %+v, want event late of this server", got)
			}
		}
		robots[id].wantChunk(1)
		if id != "a-long" {
			<-b.entered
		}
	}
	rttest.Want(t, b.server.stats.passedOver.Load(), 1, "requests that were passed over")
}
