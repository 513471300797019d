package server

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

// One link gets only a limited number of sessions, and so does one host with many links. The
// refusal explains how to get more sessions, is temporary, contains the load, and is counted by its
// reason.
func TestALinkAndAHostGetOnlySoManySessions(t *testing.T) {
	cfg := roomy()
	b := newBench(t, cfg)
	opened := func(from func(i int) wire.Origin, name string) (n int, last wire.SessionAck) {
		for i := range 290 {
			if last = b.openFrom(from(i), fakeOpen(fmt.Sprintf("%s-%03d", name, i))); last.Accepted {
				n++
			}
		}
		return n, last
	}
	n, last := opened(func(int) wire.Origin { return link(0, "10.0.0.1") }, "one")
	if n != cfg.SessionsPerLink || !last.Temporary() || last.RetryAfterMs != 1000 ||
		last.ServerLoad != float64(n)/500 || !strings.Contains(last.Error,
		"link 0 has 8, and one link may have 8 (sessions_per_link)") {
		t.Errorf("one link opened %d sessions, want %d; then %+v", n, cfg.SessionsPerLink, last)
	}
	n, last = opened(func(i int) wire.Origin { return link(1+i, "10.0.0.2") }, "many")
	if n != cfg.SessionsPerHost || !strings.Contains(last.Error, "10.0.0.2 has 64") {
		t.Errorf("the links of one host opened %d sessions, want %d; then %+v", n, cfg.SessionsPerHost, last)
	}
	if n, last = opened(func(int) wire.Origin { return wire.Origin{} }, "routed"); n != 290 {
		t.Errorf("%d of 290 robots behind a router got a session; then %+v", n, last)
	}
	b.admits(b.openFrom(link(0, "10.0.0.1"), fakeOpen("one-000")), "a robot's own next session")
	rttest.Want(t, b.server.summary().Refusals["quota"], 290-8+290-64, "refusals counted")
	b.server.opener.drop(b.server.sessions.find("one-003"), "test")
	b.admits(b.openFrom(link(0, "10.0.0.1"), fakeOpen("one-200")), "the next robot after a session has ended")
}

// large returns the open of a robot with raw pictures.
func large(uuid string) wire.SessionOpen {
	o := fakeOpen(uuid)
	o.CameraNames = append(o.CameraNames, "side")
	o.CameraShapes = []wire.CameraShape{{Name: "side", H: 480, W: 640, C: 3}}
	o.RawImages = []string{"side"}
	return o
}

// Each admitted robot has memory for its observations. The first robot for which too little memory
// is left is refused with a text that explains it. It is admitted when another robot has left.
func TestWhoHasNoMemoryIsRefused(t *testing.T) {
	cfg := roomy()
	cfg.Memory, cfg.SessionsPerHost = "64MiB", 500
	b := newBench(t, cfg)
	var last wire.SessionAck
	n := 0
	for ; n < 500; n++ {
		if last = b.openFrom(link(n, ""), large(fmt.Sprintf("arm-%03d", n))); !last.Accepted {
			break
		}
	}
	o := large("arm")
	need := sessionNeed(b.server.opener.meta, observationBytes(b.server.opener.meta, &b.server.caps, &o))
	if want := int(cfg.RobotMemory() / need); n != want || !last.Temporary() || last.RetryAfterMs != 1000 ||
		last.ServerLoad == 0 {
		t.Fatalf("%d robots of %v are in %v, want %d; then %+v", n, memory.Size(need), memory.Size(cfg.RobotMemory()),
			want, last)
	}
	rttest.Contains(t, last.Error, "no memory: this robot needs 2.", "3 observations of 916.5 KiB",
		"of 32.0 MiB are promised to others", "MiB are in use (sessions", "or raise memory in the server's manifest")
	if s := b.server.summary(); s.Refusals["memory"] != 1 || s.Memory.LimitMB != 32 || s.Memory.UsedMB == 0 {
		t.Errorf("summary: %v, %+v", s.Refusals, s.Memory)
	}
	if ack := b.openFrom(link(n, ""), fakeOpen("small")); n*int(need)+
		int(sessionNeed(b.server.opener.meta, 20_000)) < int(cfg.RobotMemory()) && !ack.Accepted {
		t.Errorf("a small robot, for which there is room, is refused: %s", ack.Error)
	}
	b.server.opener.drop(b.server.sessions.find("arm-000"), "test")
	b.admits(b.openFrom(link(n, ""), large("arm-last")), "the next robot after one has left")
	for _, s := range b.server.sessions.all() {
		b.server.opener.drop(s, "test")
	}
	if used, promised := b.server.memory.Used(), b.server.sessions.promised.Load(); used != 0 || promised != 0 {
		t.Errorf("all have left, and %d bytes are in use, %d promised", used, promised)
	}
}

// A robot whose observations are larger than its open announced gets memory that is not reserved for other robots, and
// an event if no memory is left. Robots that keep to their announcement always get a buffer, and unneeded buffers are
// freed.
func TestWhoSendsMoreThanItSaidGetsWhatIsLeft(t *testing.T) {
	cfg := roomy()
	cfg.Memory = "64MiB"
	b := newBench(t, cfg)
	// Captures fill the bound, except the part that is reserved for robots that keep to their announcement.
	kept := cfg.RobotMemory() / 4
	if !b.server.memory.Take(memory.Captures, cfg.RobotMemory()-kept-(256<<10)) {
		t.Fatal("no memory")
	}
	o := fakeOpen("greedy")
	o.ServerID = b.server.id
	b.openFrom(link(1, ""), o)
	b.openFrom(link(2, ""), fakeOpen("modest"))
	greedy, modest := b.robot("greedy"), b.robot("modest")
	big := fakeObs(t)
	big.Images = append(big.Images, wire.Image{Name: "side", Data: make([]byte, 900<<10)})
	greedy.send(obsHeader(0, 1), big)
	rttest.Want(t, b.server.stats.noRoom.Load(), 1, "observations refused for want of memory")
	e := <-b.server.receiver.events.waiting
	rttest.Contains(t, e.text, "no memory for an observation of 900.8 KiB", "where the robot's open announced",
		"captures 23.8 MiB", "raise memory")
	modest.ask(1)
	if b.server.stats.noRoom.Load() != 1 || b.server.pool.Bytes() == 0 {
		t.Errorf("a modest robot's observation was refused: %v", b.server.memory)
	}
	b.server.opener.drop(b.server.sessions.find("modest"), "test")
	for range 2 * trimEvery {
		b.tick()
	}
	rttest.Want(t, b.server.pool.Bytes(), 0, "bytes of buffers kept that nobody needs")
	modest.ask(2) // this session has ended meanwhile
	rttest.Want(t, b.server.pool.Bytes(), 0, "bytes that wait for a robot without a session")
}

// An observation that arrives while its session ends leaves nothing in memory.
func TestAClosedMailboxTakesNothing(t *testing.T) {
	b := newBench(t, config())
	b.openFrom(link(1, ""), fakeOpen("arm"))
	s := b.server.sessions.find("arm")
	b.server.opener.drop(s, "test")
	b.server.receiver.put(s, obsHeader(0, 1), wire.AppendObservation(nil, fakeObs(t)), 1)
	b.server.pool.DropFree()
	rttest.Want(t, b.server.pool.Bytes(), 0, "bytes that wait for a session that is over")
}

// When the server is full, a robot that sends keeps its session. A robot that never sent loses its session to a new
// robot, but not before idleGrace, and only if the link and the host of the new robot have fewer sessions than those of
// the silent robot.
func TestWhoSendsKeepsItsPlace(t *testing.T) {
	cfg := config() // max_sessions is 2
	b := newBench(t, cfg)
	b.openFrom(link(1, "a"), fakeOpen("sends"))
	b.openFrom(link(2, "b"), process("idle", "one", "left-pi", 1))
	for _, s := range b.server.sessions.all() {
		s.tokenOf(true, b.clock.Now())
	}
	idle := b.robot("idle")
	b.robot("sends").ask(1)
	if ack := b.openFrom(link(3, "c"), fakeOpen("new")); ack.Accepted ||
		ack.Error != "server full: 2/2 sessions active" {
		t.Fatalf("a newcomer displaces a robot that has just opened: %+v", ack)
	}
	b.clock.Advance(idleGrace)
	b.refuses(b.openFrom(link(1, "a"), fakeOpen("greedy")), "another robot of a link with a session")
	b.refuses(b.openFrom(link(4, "a"), fakeOpen("greedy")), "another robot of a host with a session")
	if ack := b.openFrom(link(3, "c"), wire.SessionOpen{ClientUUID: "bad", SchemaVersion: 1}); ack.Accepted ||
		b.uuids() != "idle sends" {
		t.Error("a robot that does not fit this policy displaces another")
	}
	b.admits(b.openFrom(link(3, "c"), fakeOpen("new")), "a newcomer beside an idle place")
	rttest.Want(t, b.uuids(), "new sends", "sessions")
	idle.wantEvent(wire.EventUnknownSession, "it sends no observation")
	b.robot("new").ask(1)
	b.server.sessions.find("new").tokenOf(true, b.clock.Now())
	b.clock.Advance(time.Hour)
	b.refuses(b.openFrom(link(5, "e"), fakeOpen("newer")), "a newcomer beside a robot that sends")
	rttest.Want(t, b.server.stats.displaced.Load(), 1, "displaced sessions counted")
}

// A robot that sends only observations that cannot be answered loses its session to a new robot, however often it
// sends. A robot whose first observation waits for its answer keeps its session.
func TestGarbageKeepsNoPlace(t *testing.T) {
	b := newBench(t, config()) // max_sessions is 2
	b.openFrom(link(1, "a"), fakeOpen("garbage"))
	b.openFrom(link(2, "b"), fakeOpen("waits"))
	for _, s := range b.server.sessions.all() {
		s.tokenOf(true, b.clock.Now())
	}
	garbage := b.robot("garbage")
	for seq := range uint64(6) {
		garbage.put([]byte("no observation"), wire.AppendHeader(nil, obsHeader(0, seq+1)))
		if seq%2 == 1 { // the observation before is superseded
			b.serveOne()
		}
	}
	b.robot("waits").ask(1)
	b.clock.Advance(idleGrace)
	b.admits(b.openFrom(link(3, "c"), fakeOpen("new")), "a newcomer beside a robot that sends garbage")
	rttest.Want(t, b.uuids(), "new waits", "sessions")
}

// When the server is full, a new robot also takes a session whose process sent observations, never showed a token and
// is now silent, so that many dead sessions do not exclude robots until the sessions are closed.
func TestWhoVanishedGivesWay(t *testing.T) {
	b := newBench(t, config()) // max_sessions is 2
	b.openFrom(link(1, "a"), fakeOpen("dead"))
	b.openFrom(link(2, "b"), fakeOpen("shows"))
	b.server.sessions.find("shows").tokenOf(true, b.clock.Now())
	for _, uuid := range []string{"dead", "shows"} {
		b.robot(uuid).ask(1)
	}
	b.clock.Advance(ownerTimeout)
	b.refuses(b.openFrom(link(3, "c"), fakeOpen("new")), "a newcomer beside a robot that sent a moment ago")
	b.clock.Advance(time.Millisecond)
	b.admits(b.openFrom(link(3, "c"), fakeOpen("new")), "a newcomer beside a robot that has vanished")
	rttest.Want(t, b.uuids(), "new shows", "sessions")
}

// A session whose process died before it showed a token is closed soon. A session with a token
// stays, however silent, even if the token was shown before the open.
func TestASessionWithoutATokenGoesSoon(t *testing.T) {
	cfg := config()
	cfg.MaxSessions = 4
	b := serveQueries(t, cfg)
	b.show("early", 1)
	for _, uuid := range []string{"dead", "early", "sends", "shows"} {
		b.openFrom(link(1, ""), process(uuid, uuid, "", 1))
	}
	b.show("shows", 1)
	sends := b.robot("sends")
	for i := range 4 {
		b.clock.Advance(tokenlessTimeout / 2)
		sends.ask(uint64(i + 1))
		b.tick()
	}
	rttest.Want(t, b.uuids(), "early sends shows", "after %v: sessions", 2*tokenlessTimeout)
	b.clock.Advance(idleTimeout + time.Second)
	b.tick()
	rttest.Want(t, b.uuids(), "early shows", "sessions")
}

// The counted memory of a session is no less than its real memory.
func TestASessionTakesNoMoreThanIsCounted(t *testing.T) {
	rttest.RealTime(t) // garbage of other tests would count as memory of the session
	cfg := roomy()
	b := newBench(t, cfg)
	const n = 200
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range n {
		o := fakeOpen(fmt.Sprintf("arm-%03d", i))
		o.Task = strings.Repeat("t", wire.MaxTextBytes-1)
		o.Host = strings.Repeat("h", 200)
		o.Instance = strings.Repeat("i", 200)
		b.admits(b.openFrom(link(i, fmt.Sprint(i)), o), "an open")
	}
	took, counted := (heap()-before)/n, sessionMemory(servertest.Meta())
	t.Logf("%d bytes a session, counted as %d", took, counted)
	runtime.KeepAlive(b)
	if took <= 0 || took > counted {
		t.Errorf("a session takes %d bytes, counted as %d", took, counted)
	}
}

// The scheduler knows which robots share a link.
func TestTheSchedulerKnowsTheLinks(t *testing.T) {
	b := newBench(t, roomy())
	for uuid, from := range map[string]wire.Origin{"a-1": link(1, "h"), "a-2": link(1, "h"), "b": link(2, "h")} {
		b.openFrom(from, fakeOpen(uuid))
		b.robot(uuid).ask(1)
	}
	w := waiting(nil, b.server.sessions.all())
	if len(w) != 3 || w[0].Group == nil || w[0].Group != w[1].Group || w[2].Group == w[0].Group ||
		w[2].Group.Host != w[0].Group.Host || w[0].Group.Members() != 2 {
		t.Errorf("those who wait: %+v, want a-1 and a-2 together, and b of the same host", w)
	}
}
