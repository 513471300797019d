package server

import (
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/quota"
	"github.com/edge-rt/edge-rt/wire"
)

// A robot that sends requests without a pause and reports a short runway gets no more than its
// quota, even with a new session. Another robot, which does not exceed its quota, gets every chunk
// at once.
func TestQuotaOfARobot(t *testing.T) {
	const (
		inference = 10 * time.Millisecond
		runs      = 4 * time.Second
		pause     = 200 * time.Millisecond // time between two requests of the good robot
	)
	for _, tt := range []struct {
		name        string
		rate, share float64
		most        int // most chunks for the hostile robot: the quota of one second in advance and of four seconds
		kind        quota.Kind
		says        string
	}{
		{"none", 0, 0, 1 << 20, 0, ""},
		{"rate", 10, 0, 51, quota.Rate, "more than 10 chunks a second (rate_per_robot)"},
		{"share", 0, 0.2, 101, quota.Share, "more than 0.2 of the device's time (share_per_robot)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config()
			cfg.RatePerRobot, cfg.SharePerRobot = tt.rate, tt.share
			b := newBench(t, cfg)
			b.model.Before = func() error {
				b.clock.Advance(inference)
				return nil
			}
			b.openFrom(link(7, ""), process("hostile", "", "", 1))
			b.openFrom(link(7, ""), process("good", "", "", 1))
			hostile, good := b.robot("hostile"), b.robot("good")
			chunks := 0
			events := 0
			text := ""
			asked, due := uint64(0), rt.Instant(0)
			for b.clock.Now() < rt.Instant(runs) {
				asked++
				obs := fakeObs(t)
				obs.HasRunway = true
				hostile.send(obsHeader(1, asked), obs)
				if b.clock.Now() >= due {
					due = b.clock.Now().Add(pause)
					good.ask(asked)
					b.serveOne()
					// the hostile robot may have its turn first
					for len(good.inbox) == 0 && b.clock.Now() < due {
						b.serveOne()
					}
					good.wantChunk(asked)
				} else if !serveOne(b.server.worker) {
					b.clock.Advance(inference)
				}
				for len(hostile.inbox) > 0 {
					if got := <-hostile.inbox; got.header.MsgType == wire.MsgActionChunk {
						chunks++
					} else {
						events++
						text = got.event.Text
					}
				}
			}
			if chunks > tt.most || chunks < min(tt.most, 200)*8/10 {
				t.Errorf("the hostile robot got %d chunks in %v, want up to %d", chunks, runs, tt.most)
			}
			held := b.server.stats.held[tt.kind].Load()
			if (held > 0) != (tt.says != "") || !strings.Contains(text, tt.says) || events > 5 {
				t.Errorf("held %d times, %d events, the last %q; want %q once a second", held, events, text, tt.says)
			}
			for range 2 { // these requests use up the quota again
				asked++
				hostile.ask(asked)
				serveOne(b.server.worker)
			}
			b.openFrom(link(7, ""), process("hostile", "", "", 2))
			hostile.send(obsHeader(2, 1), fakeObs(t))
			rttest.Want(t, serveOne(b.server.worker), tt.says == "", "whether a new session is served at once")
		})
	}
}
