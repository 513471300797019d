package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// join starts another server of the same service on b's network.
func (b *bench) join(t *testing.T) *bench {
	t.Helper()
	other := newBench(t, config(), func(d *Deps) { d.Network = b.network.Session() })
	other.network, other.session = b.network, b.session
	other.begin()
	return other
}

// twins returns two servers, each of which has seen the other's tokens, with room for sessions at both.
func twins(t *testing.T) (a, b *bench) {
	t.Helper()
	a = serve(t, config())
	b = a.join(t)
	rttest.Eventually(t, "two servers", func() bool {
		return a.server.others.Count() == 2 && b.server.others.Count() == 2 &&
			a.network.CountTokens(wire.ReplicaRoomWildcard(fakePrefix)) == 2
	})
	return a, b
}

// wantRequests expects that both servers together answer n observations. An observation counts when its answer has been
// sent.
func wantRequests(a, b *bench, n uint64) {
	a.t.Helper()
	answered := func() uint64 { return a.server.summary().Requests + b.server.summary().Requests }
	rttest.Eventually(a.t, "the count of the last chunk", func() bool { return answered() >= n })
	if got := answered(); got != n {
		a.t.Errorf("%d observations were answered %d times", n, got)
	}
}

// Of two servers, exactly one answers a robot that names no server, until both are full. The other server receives
// nothing from the robot.
func TestOneOfTwoReplicasTakesARobot(t *testing.T) {
	a, b := twins(t)
	for i := range 6 { // each server's limit is two sessions
		ack := a.open(fakeOpen(fmt.Sprint("arm-", i))) // expects exactly one answer
		rttest.Want(t, ack.Accepted, i < 4, "robot %d: whether %+v accepts it", i, ack)
		want := 2 - (len(a.server.sessions.all()) / 2) - (len(b.server.sessions.all()) / 2)
		rttest.Eventually(t, "the tokens of the servers with room", func() bool {
			return a.network.CountTokens(wire.ReplicaRoomWildcard(a.server.prefix)) == want
		})
	}
	if na, nb := len(a.server.sessions.all()), len(b.server.sessions.all()); na != 2 || nb != 2 {
		t.Errorf("sessions %d and %d, want 2 and 2", na, nb)
	}
	for i := range 4 {
		uuid := fmt.Sprint("arm-", i)
		r := a.robot(uuid)
		r.ask(1)
		r.wantChunk(1)
		a.reset(uuid, wire.Reset{ClientUUID: uuid, EpisodeID: 1}) // expects exactly one answer
	}
	wantRequests(a, b, 4)
	a.one(wire.SessionKey(fakePrefix), []byte("junk"))
}

// When a robot moves from server to server, only one server holds it. Another process that uses the robot's name is
// refused while a server holds the robot. The end of a server without robots affects no robot.
func TestARobotMovesBetweenReplicas(t *testing.T) {
	a, b := twins(t)
	o := fakeOpen("arm")
	o.Instance = "one"
	r := a.robot("arm")
	for i, at := range []*bench{a, b, a, b} {
		from := map[*bench]*bench{a: b, b: a}[at]
		o.SessionEpoch, o.ServerID = uint32(i+1), at.server.id
		if ack := a.open(o); !ack.Accepted || ack.ServerID != at.server.id {
			t.Fatalf("open %d: %+v", i, ack)
		}
		rttest.Eventually(t, "the end of the session at the other server", func() bool {
			return from.server.sessions.find("arm") == nil && at.server.sessions.find("arm") != nil
		})
		r.send(obsHeader(o.SessionEpoch, uint64(i+1)), fakeObs(t))
		r.wantChunk(uint64(i + 1))
	}
	twin := o
	twin.Instance, twin.ServerID = "two", a.server.id
	if ack := a.open(twin); ack.Accepted || !ack.Temporary() || ack.HeldBy == "" {
		t.Errorf("another process is answered with %+v, want that the name is taken", ack)
	}
	rttest.Do(t, a.stop())
	r.send(obsHeader(4, 9), fakeObs(t))
	r.wantChunk(9)
	rttest.Want(t, len(r.inbox), 0, "messages after the idle server's end")
	wantRequests(a, b, 5)
}

// When the server ends a session that its robot may still use, the robot gets an event.
func TestTheEndOfASessionIsTold(t *testing.T) {
	b := serve(t, config())
	l := b.live("arm", 3)
	r := b.robot("arm")
	l.die()
	rttest.Eventually(t, "the server knows", func() bool { return !b.server.sessions.find("arm").alive() })
	b.clock.Advance(tokenGrace + time.Second)
	if got := r.wantEvent(wire.EventUnknownSession, ""); got.event.ServerID != b.server.id ||
		got.header.SessionEpoch != 3 {
		t.Errorf("it got %+v, want this server and its epoch", got)
	}
}

// Messages and tokens that any client may send do not exclude a robot: a header with the last epoch or the last number,
// a token of a later epoch, and a name that resembles the robot's.
func TestAForeignHeaderShutsNobodyOut(t *testing.T) {
	b := serve(t, config())
	b.live("arm-1", 1)
	r := b.robot("arm-1")
	r.ask(1)
	r.wantChunk(1)
	for _, h := range []wire.Header{obsHeader(1<<32-1, 2), obsHeader(1, 1<<64-1)} {
		r.send(h, fakeObs(t))
	}
	b.show("arm-1", 1<<32-1)
	near := rttest.Must(b.session.Publisher(b.server.prefix+"/arm 1/obs", wire.ObservationQoS))(t)
	_ = near.Put(nil, wire.AppendHeader(nil, obsHeader(1, 5)))
	r.ask(2)
	r.wantChunk(2)
	rttest.Want(t, b.server.sessions.find("arm-1").tokenEpoch.Load(), 1, "the epoch whose token counts")
}

// Robots that get the draining event of their server query all servers at once. The draining server
// answers, too, because otherwise each robot would wait for its answer until the query's time-out,
// while the robot's actions run out. After the server's end, a query does not wait for that server.
func TestAServerThatLeavesAnswers(t *testing.T) {
	b := serve(t, config())
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	ended := make(chan error, 1)
	go func() { ended <- b.stop() }()
	r.wantEvent(wire.EventDraining, "")
	rttest.Eventually(t, "no token of the server", func() bool {
		return b.network.CountTokens(wire.ReplicaAliveKey(b.server.prefix, b.server.id)) == 0
	})
	time.Sleep(drainTime / 3) // time that a robot may take to send a query
	var s wire.Status
	if err := wire.Parse(&s, b.status()); err != nil || !s.Draining {
		t.Errorf("it says %+v, %v, want that it drains", s, err)
	}
	if ack := b.open(fakeOpen("other")); ack.Accepted || !ack.Draining || !ack.Temporary() {
		t.Errorf("an open is answered with %+v, want that it drains", ack)
	}
	rttest.Do(t, <-ended)
	finished := make(chan struct{}, 1)
	b.server.queries.waiting <- query{unanswered{finished: finished}, func(wire.Query) (string, []byte) {
		return "", nil
	}}
	b.server.queries.answerWaiting()
	if len(finished) != 1 {
		t.Error("a query that was left waiting is not finished")
	}
}

// unanswered is a query that signals when it is finished.
type unanswered struct {
	wire.Query
	finished chan struct{}
}

func (u unanswered) Finish() { u.finished <- struct{}{} }

// Two servers that have not seen each other's tokens yet may both admit one robot, or two robots
// with one name. When the tokens arrive, one of the servers gives up its session, and the session's
// place is free again. If the two sessions are of two robots, the robot whose session has ended
// gets an event.
func TestTwoServersThatBothAdmitARobot(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second wire.SessionOpen
		stays, told   bool // stays: the session at the second server remains
	}{
		{"two clients that name no instance", fakeOpen("arm"), fakeOpen("arm"), false, false},
		{"two processes of one name", process("arm", "one", "", 3), process("arm", "two", "", 3), false, true},
		{"one process, whose first answer was lost", process("arm", "one", "", 3), process("arm", "one", "", 4), true,
			false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := twins(t)
			r := a.robot("arm")
			first, second := tt.first, tt.second
			first.ServerID, second.ServerID = a.server.id, b.server.id
			a.admits(a.open(first), "an open")
			held := rttest.Must(wire.HeldKey(a.server.prefix, "arm", a.server.id,
				wire.HeldMark("arm", first.Instance),
				first.SessionEpoch))(t)
			b.server.others.OnToken(held, false) // the token has not arrived at this server yet
			b.admits(b.open(second), "an open")
			b.server.others.OnToken(held, true)
			sessions := func() int { return len(a.server.sessions.all()) + len(b.server.sessions.all()) }
			rttest.Eventually(t, "one session", func() bool {
				return sessions() == 1 && a.network.CountTokens(wire.HeldWildcard(a.server.prefix)) == 1
			})
			time.Sleep(50 * time.Millisecond) // the other server must not give up its session in this time
			rttest.Want(t, sessions(), 1, "sessions left")
			if tt.stays && b.server.sessions.find("arm") == nil {
				t.Error("the older epoch was kept")
			}
			rttest.Want(t, len(r.inbox) > 0, tt.told, "whether it got an event")
			if tt.told {
				r.wantEvent(wire.EventUnknownSession, "")
			}
		})
	}
}
