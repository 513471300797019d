package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// Goal: the ack of an open has two times: the duration of an inference, even if the server did not warm up, and the
// longest wait for a turn among the other robots.
func TestTheAckSaysHowLongAChunkTakes(t *testing.T) {
	cfg := config()
	cfg.MaxSessions = 8
	b := newBench(t, cfg, func(d *Deps) {
		d.Tests = []policy.Test{{Rows: 1, Took: 8 * time.Second}, {Rows: 4, Took: 20 * time.Second}}
	})
	open := func(uuid string) wire.SessionAck { return b.openFrom(wire.Origin{}, fakeOpen(uuid)) }
	if ack := open("a"); ack.InferenceMsMin != 8000 || ack.InferenceMsP99 != 8000 || ack.QueueWaitMs != 0 {
		t.Errorf("ack says %v to %v ms and %v ms of waiting, want 8000, 8000 and 0", ack.InferenceMsMin,
			ack.InferenceMsP99, ack.QueueWaitMs)
	}
	b.server.worker.engine.sizes.Learn(1, 2*time.Second)
	open("b")
	rttest.Want(t, open("c").QueueWaitMs, 4000, "ms of waiting in the ack of the third robot")
	b.server.worker.engine.tally.pace.served(1500 * time.Millisecond)
	b.server.worker.engine.tally.inference.Record(1500 * time.Millisecond)
	if s := b.shown(); s.InferenceMsMin != 1500 || s.InferenceMsP99 > 1600 || s.QueueWaitMs != 6000 {
		t.Errorf("status says %v to %v ms and %v ms of waiting, want 1500, what was served, and 6000", s.InferenceMsMin,
			s.InferenceMsP99, s.QueueWaitMs)
	}
}

// Goal: the service manager's watchdog does not end a server because an inference takes longer than the watchdog's
// period, but ends a server whose run takes too long even for its policy.
func TestASlowRunFeedsTheWatchdog(t *testing.T) {
	s := idle()
	s.worker.engine.sizes.Learn(1, 40*time.Second)
	n := &notifier{server: s}
	s.worker.engine.busySince.Store(int64(rt.Instant(time.Second)))
	n.busySince = rt.Instant(time.Second)
	for at, want := range map[time.Duration]bool{31 * time.Second: true, 150 * time.Second: true,
		202 * time.Second: false} {
		s.worker.work <- struct{}{}
		rttest.Want(t, n.progress(rt.Instant(at)), want, "%v into a run that takes 40 s: progress", at)
		<-s.worker.work
	}
}

// Goal: the session of a robot whose chunk takes minutes is not closed as idle meanwhile.
func TestARobotThatWaitsForItsChunkIsNotIdle(t *testing.T) {
	b := newBench(t, config())
	s := b.opened("arm")
	s.seen(b.clock.Now())
	s.inHand.Store(true)
	late := b.clock.Now().Add(idleTimeout + time.Second)
	rttest.Want(t, s.lost(late, 0), "", "reason while a request is in work")
	s.inHand.Store(false)
	rttest.Want(t, s.lost(late, 0), "idle timeout", "reason after the request")
	b.robot("arm").ask(1)
	rttest.Want(t, s.lost(late, 2*idleTimeout), "", "reason while a request waits for its turn")
	if why := s.lost(late, time.Second); why == "" {
		t.Error("its turn should have come long ago, and it does not count as idle")
	}
	s.inHand.Store(true)
	s.tokenDropped(b.clock.Now())
	if why := s.lost(late, 2*idleTimeout); why == "" {
		t.Error("a robot whose token is gone keeps its session")
	}
}

// Goal: the first inference may take a minute on a GPU. Its time is not announced to robots as the duration of an
// inference.
func TestTheFirstInferenceIsNotThePace(t *testing.T) {
	for _, tt := range []struct {
		took []time.Duration
		want time.Duration
	}{
		{nil, 0},
		{[]time.Duration{8 * time.Second}, 8 * time.Second},
		{[]time.Duration{time.Minute, 20 * time.Millisecond, 30 * time.Millisecond}, 30 * time.Millisecond},
		{[]time.Duration{20 * time.Millisecond, 8 * time.Second, 30 * time.Millisecond}, 8 * time.Second},
	} {
		s := newTally()
		for _, took := range tt.took {
			s.pace.warm(took)
		}
		rttest.Want(t, s.slowest(), tt.want, "after inferences of %v, the slowest", tt.took)
	}
}

// Goal: a check with long inferences reports every few seconds that it continues, except while it writes other lines.
func TestACheckReportsThatItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		p := newProgress(func(text string) { lines = append(lines, text) })
		time.Sleep(7 * time.Second)
		p.report("inference 1 took 7.0 s")
		time.Sleep(6 * time.Second)
		p.end()
		time.Sleep(time.Minute)
		const going = "still at work after %d s: the policy is loaded, or computes a chunk"
		want := []string{fmt.Sprintf(going, 5), "inference 1 took 7.0 s", fmt.Sprintf(going, 12)}
		if !slices.Equal(lines, want) {
			t.Errorf("it prints %q, want %q", lines, want)
		}
	})
}

// Goal: a draining server waits for the end of a slow policy's run, for a bounded time.
func TestTheLastRunOfASlowPolicyMayEnd(t *testing.T) {
	b := newBench(t, config())
	e := b.server.worker.engine
	rttest.Want(t, e.finishLimit(), finishTimeout, "finishLimit of an idle engine")
	e.sizes.Learn(1, 4*time.Second)
	e.busySince.Store(int64(b.clock.Now()))
	b.clock.Advance(time.Second)
	rttest.Want(t, e.finishLimit(), 5*time.Second, "finishLimit 1 s into a run of 4 s")
	e.sizes.Learn(1, 400*time.Second)
	rttest.Want(t, e.finishLimit(), finishMost, "limit during a run of minutes")
}

// Goal: a robot that repeated its request while its chunk was under way causes no second inference for the same steps.
// A request for later steps, or in another episode, does cause one.
func TestWhatWasAnsweredIsNotInferredAgain(t *testing.T) {
	b := serve(t, config(), (*bench).hold)
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	ask := func(seq uint64, episode uint32, n int64) {
		h, obs := obsHeader(0, seq), fakeObs(t)
		h.EpisodeID = episode
		obs.HasN = true
		obs.N = n
		r.send(h, obs)
	}
	ask(1, 1, 40)
	<-b.entered
	ask(2, 1, 40)
	b.leave <- struct{}{}
	r.wantChunk(1)
	rttest.Eventually(t, "the end of the request", func() bool { return !b.server.sessions.find("arm").inHand.Load() })
	ask(3, 1, 40) // the answer got lost
	for seq, next := range []func(){
		func() { ask(4, 1, 41) }, // the arm has moved on to a later step
		func() { ask(5, 2, 41) }, // another episode
		func() {},
	} {
		<-b.entered
		next()
		b.leave <- struct{}{}
		r.wantChunk(uint64(3 + seq))
	}
	rttest.Want(t, b.server.stats.superseded.Load(), 1, "observations superseded")
}

// Goal: a server that does not condition chunks sends an ack without supports_rtc, because a client of the draft with
// supports_rtc replaces its queue by each chunk.
func TestConditioningOffIsAnnounced(t *testing.T) {
	cfg := config()
	cfg.Conditioning.Mode = "off"
	b := newBench(t, cfg)
	for _, asks := range []bool{true, false} {
		o := fakeOpen("arm")
		o.RTCEnabled = asks
		ack := b.openFrom(wire.Origin{}, o)
		if !ack.Accepted || ack.SupportsRTC || ack.RTCExecutionHorizon != 0 {
			t.Errorf("asked for RTC: %v: ack %+v, want supports_rtc false and a horizon of 0", asks, ack)
		}
		rttest.Want(t, strings.Contains(strings.Join(ack.Warnings, " "), "conditioning.mode off"), asks,
			"whether a robot is warned by %q", ack.Warnings)
	}
	if s := b.shown(); s.SupportsRTC || s.RTCExecutionHorizon != 0 {
		t.Errorf("status %+v, want supports_rtc false and a horizon of 0", s)
	}
}

// Goal: every line about a robot with a session names the session.
func TestLinesAboutASessionNameIt(t *testing.T) {
	var log strings.Builder
	b := newBench(t, config(), logTo(&log))
	o := fakeOpen("arm")
	o.FPS = 30
	b.openFrom(wire.Origin{}, o)
	s := b.server.sessions.find("arm")
	s.stale.Store(1)
	s.squeezed.Store(1)
	b.tick()
	s.stale.Store(0)
	b.tick()
	_ = b.server.worker.filler.decodingPanicked(s, "no")
	b.server.opener.evict(s, "a test")
	lines := 0
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "client=") {
			continue
		}
		if lines++; !strings.Contains(line, "session="+s.id) {
			t.Errorf("no session in %s", line)
		}
	}
	if lines < 6 {
		t.Errorf("%d lines about the robot, want all kinds of them:\n%s", lines, &log)
	}
}
