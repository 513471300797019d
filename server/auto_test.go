package server

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
)

// newAuto returns a server with max_sessions: auto and inferences of this duration.
func newAuto(t *testing.T, took time.Duration) *bench {
	t.Helper()
	cfg := config()
	cfg.MaxSessions = manifest.Auto
	b := newBench(t, cfg)
	b.infer(took)
	b.server.sessions.fed.Store(int32(b.server.opener.auto.Begin()))
	return b
}

// infer makes the server learn that an inference took this long.
func (b *bench) infer(took time.Duration) {
	for range 100 {
		b.server.worker.engine.sizes.Learn(1, took)
	}
}

// fill opens sessions until one is refused.
func (b *bench) fill(name string) (n int, last wire.SessionAck) {
	for ; n < 100; n++ {
		if last = b.openFrom(link(n, fmt.Sprint(name, n)), fakeOpen(fmt.Sprintf("%s-%02d", name, n))); !last.Accepted {
			break
		}
	}
	return n, last
}

// With max_sessions: auto a robot is admitted if all robots, including the new one, are fed (never run out of actions).
// The status reports how many robots are fed. A refusal has the reason and the load, and is temporary. A closed session
// makes room for another robot.
func TestAutoLetsInWhoIsFed(t *testing.T) {
	b := newAuto(t, 5*time.Millisecond)
	before := b.shown()
	n, last := b.fill("arm")
	if n < 2 || n != before.MaxSessions || b.shown().ActiveSessions != n {
		t.Fatalf("%d robots are in, status said %d; then %+v", n, before.MaxSessions, last)
	}
	if !last.Temporary() || last.RetryAfterMs != 1000 || last.ServerLoad != 1 || last.MaxSessions != n ||
		!strings.HasPrefix(last.Error, fmt.Sprintf("server full: %d sessions active, and with one more ", n)) ||
		!strings.Contains(last.Error, "5.0 ms here") {
		t.Errorf("the refusal: %+v", last)
	}
	rttest.Want(t, b.server.summary().Refusals["full"], 1, "refusals counted")
	b.admits(b.openFrom(link(0, "arm0"), fakeOpen("arm-00")), "a robot's own next session")
	b.server.opener.drop(b.server.sessions.find("arm-00"), "test")
	b.admits(b.openFrom(link(99, "new"), fakeOpen("new")), "the next robot after one has left")
}

// A robot that requests chunks more often than expected leaves room for fewer robots.
func TestAutoSeesHowOftenRobotsAsk(t *testing.T) {
	usual := newAuto(t, 5*time.Millisecond).shown().MaxSessions
	b := newAuto(t, 5*time.Millisecond)
	b.openFrom(link(0, "h"), fakeOpen("busy"))
	s := b.server.sessions.find("busy")
	b.clock.Advance(time.Second)
	s.received.Store(60) // one request in every step, not in every third
	for range 20 {
		b.server.opener.measure()
	}
	if got := b.shown().MaxSessions; got >= usual || got < 1 {
		t.Errorf("beside a robot that asks three times as often there is room for %d, want fewer than %d", got, usual)
	}
}

// A temporary slowness of the host does not exclude robots for ever, even when no request shows that it is over: there
// may be no robots, or only robots that send no requests.
func TestASlowSpellPasses(t *testing.T) {
	b := newAuto(t, 5*time.Millisecond)
	usual := b.shown().MaxSessions
	b.infer(time.Second)
	b.server.opener.measure()
	b.admits(b.openFrom(link(0, "first"), fakeOpen("first")), "the first robot")
	refused := b.openFrom(link(1, "second"), fakeOpen("second"))
	if refused.Accepted || !strings.Contains(refused.Error, "1000.0 ms here") {
		t.Fatalf("the second during the spell: %+v", refused)
	}
	for range 200 { // 200 s without a request
		b.clock.Advance(time.Second)
		b.server.opener.measure()
	}
	rttest.Want(t, b.shown().MaxSessions, usual, "max_sessions long after the spell")
	b.admits(b.openFrom(link(1, "second"), fakeOpen("second")), "the second after the spell")

	b.infer(time.Second)
	for _, s := range b.server.sessions.all() { // robots that send keep their places
		s.tokenSeen.Store(true)
		s.received.Add(1)
	}
	b.server.stats.outcomes[0].Add(1) // a request is answered
	b.server.opener.measure()
	b.refuses(b.openFrom(link(2, "third"), fakeOpen("third")), "the third during another spell")
	b.infer(5 * time.Millisecond) // the requests show that the slowness is over
	b.server.opener.measure()
	b.admits(b.openFrom(link(2, "third"), fakeOpen("third")), "the third after it")
}

// An impossible control rate, for which the duration of a chunk would be infinite, zero or negative, is treated as a
// missing rate. It makes room for no additional robots, and never ends the server.
func TestAutoSurvivesRatesThatNoRobotHas(t *testing.T) {
	rates := []float64{1e-10, 1.5e-9, 1.7e-10, 1e-300, math.SmallestNonzeroFloat64, -30, 1e300, math.Inf(1),
		math.Inf(-1), math.NaN()}
	b := newAuto(t, 5*time.Millisecond)
	want, n := b.shown().MaxSessions, 0
	for ; n < 100; n++ {
		open := fakeOpen(fmt.Sprintf("odd-%02d", n))
		open.FPS = rates[n%len(rates)]
		if ack := b.openFrom(link(n, fmt.Sprint("odd", n)), open); !ack.Accepted {
			break
		}
		b.server.opener.measure()
	}
	rttest.Want(t, n, want, "admitted robots with odd rates")
}

// With max_sessions: auto, too, a robot that never sends loses its session to a new robot of the same demand, but not
// to one of a greater demand. A robot that sends keeps its session.
func TestAutoDisplacesWhoDoesNotSend(t *testing.T) {
	b := newAuto(t, 5*time.Millisecond)
	n, _ := b.fill("arm")
	for _, s := range b.server.sessions.all() {
		s.tokenSeen.Store(true)
		s.received.Store(1)
	}
	b.clock.Advance(idleGrace)
	b.refuses(b.openFrom(link(98, "new"), fakeOpen("new")), "a newcomer beside a robot that sends")
	silent := b.server.sessions.find("arm-01")
	silent.received.Store(0)
	greedy := fakeOpen("greedy")
	greedy.FPS = 2 * b.server.opener.meta.FPS
	b.refuses(b.openFrom(link(98, "greedy"), greedy), "a robot of twice the rate")
	b.admits(b.openFrom(link(99, "new"), fakeOpen("new")), "a newcomer beside a silent one")
	if b.server.sessions.find("arm-01") != nil || len(b.server.sessions.all()) != n ||
		b.server.stats.displaced.Load() != 1 {
		t.Errorf("%d sessions, %d displaced, want %d, 1, without the silent one", len(b.server.sessions.all()),
			b.server.stats.displaced.Load(), n)
	}
}

// When a robot is refused because it needs more of the device than usual robots, the server still
// admits a usual robot.
func TestARefusalOfAFastRobotIsItsOwn(t *testing.T) {
	b := newAuto(t, 5*time.Millisecond)
	n, _ := b.fill("arm")
	b.server.opener.drop(b.server.sessions.find("arm-00"), "test")
	greedy := fakeOpen("greedy")
	greedy.FPS = 1000
	if ack := b.openFrom(link(98, "greedy"), greedy); ack.Accepted {
		t.Fatalf("a robot of 1000 Hz gets in beside %d", n-1)
	}
	b.admits(b.openFrom(link(99, "new"), fakeOpen("new")), "the next one, of the usual rate")
}
