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

// both reports whether each of the two servers sees the other, and room at both.
func both(a, b *bench) bool {
	expr := wire.ReplicaRoomWildcard(a.server.Prefix())
	return a.server.others.Count() == 2 && b.server.others.Count() == 2 && a.network.CountTokens(expr) == 2
}

// A robot that names no server is answered by one of two servers, until both are full, and the
// other one receives nothing from it.
func TestOneOfTwoReplicasTakesARobot(t *testing.T) {
	a := serve(t, config())
	b := a.join(t)
	rttest.Eventually(t, "two servers", func() bool { return both(a, b) })
	for i := range 6 { // config's limit is two at each
		ack := a.open(fakeOpen(fmt.Sprint("arm-", i))) // open expects one answer
		if ack.Accepted != (i < 4) {
			t.Errorf("robot %d: %+v", i, ack)
		}
		want := 2 - (len(a.server.sessions.all()) / 2) - (len(b.server.sessions.all()) / 2)
		rttest.Eventually(t, "the tokens of those with room", func() bool {
			return a.network.CountTokens(wire.ReplicaRoomWildcard(a.server.Prefix())) == want
		})
	}
	if na, nb := len(a.server.sessions.all()), len(b.server.sessions.all()); na != 2 || nb != 2 {
		t.Errorf("sessions %d and %d, want 2 and 2", na, nb)
	}
	for i := range 4 {
		uuid := fmt.Sprint("arm-", i)
		r := a.robot(uuid)
		r.send(obsHeader(0, 1), fakeObs(t))
		if got := r.next(); got.header.MsgType != wire.MsgActionChunk {
			t.Errorf("%s got %+v, want a chunk", uuid, got)
		}
		if replies := a.query(mustReset(t, a, uuid),
			wire.AppendReset(nil, &wire.Reset{ClientUUID: uuid, EpisodeID: 1})); len(replies) != 1 {
			t.Errorf("the reset of %s got %d answers, want 1", uuid, len(replies))
		}
	}
	answered := func() uint64 { return a.server.Summary().Requests + b.server.Summary().Requests }
	// counted once it has left
	rttest.Eventually(t, "the count of the last chunk", func() bool { return answered() >= 4 })
	if got := answered(); got != 4 {
		t.Errorf("4 observations were answered %d times", got)
	}
	if replies := a.query(wire.SessionKey(a.server.Prefix()), []byte("junk")); len(replies) != 1 {
		t.Errorf("junk got %d answers, want 1", len(replies))
	}
}

func mustReset(t *testing.T, b *bench, uuid string) string {
	t.Helper()
	key, err := wire.ResetKey(b.server.Prefix(), uuid)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A robot moves from server to server and is held by one; another process under its name is refused
// while the first is held elsewhere. The end of an idle server affects no robot.
func TestARobotMovesBetweenReplicas(t *testing.T) {
	a := serve(t, config())
	b := a.join(t)
	rttest.Eventually(t, "two servers", func() bool { return both(a, b) })
	o := fakeOpen("arm")
	o.Instance = "one"
	r := a.robot("arm")
	for i, at := range []*bench{a, b, a, b} {
		from := map[*bench]*bench{a: b, b: a}[at]
		o.SessionEpoch, o.ServerID = uint32(i+1), at.server.id
		if ack := a.open(o); !ack.Accepted || ack.ServerID != at.server.id {
			t.Fatalf("open %d: %+v", i, ack)
		}
		rttest.Eventually(t, "the other gives it up", func() bool {
			return from.server.sessions.find("arm") == nil && at.server.sessions.find("arm") != nil
		})
		r.send(obsHeader(o.SessionEpoch, uint64(i+1)), fakeObs(t))
		if got := r.next(); got.header.MsgType != wire.MsgActionChunk || got.chunk.SeqIDEcho != uint64(i+1) {
			t.Errorf("after open %d: %+v, want a chunk", i, got)
		}
	}
	twin := o
	twin.Instance, twin.ServerID = "two", a.server.id
	if ack := a.open(twin); ack.Accepted || !ack.Temporary() || ack.HeldBy == "" {
		t.Errorf("another process is answered with %+v, want that the name is taken", ack)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	r.send(obsHeader(4, 9), fakeObs(t))
	if got := r.next(); got.header.MsgType != wire.MsgActionChunk || len(r.inbox) != 0 {
		t.Errorf("after the idle server's end: %+v and %d more, want a chunk and nothing else", got, len(r.inbox))
	}
	answered := func() uint64 { return a.server.Summary().Requests + b.server.Summary().Requests }
	rttest.Eventually(t, "the count of the last chunk", func() bool { return answered() >= 5 })
	if n := answered(); n != 5 {
		t.Errorf("5 observations were answered %d times", n)
	}
}

// A robot whose session is ended by the server, although the robot may take it for open, gets an
// event.
func TestTheEndOfASessionIsTold(t *testing.T) {
	b := serve(t, config())
	l := b.live("arm", 3)
	r := b.robot("arm")
	l.die()
	rttest.Eventually(t, "the server knows", func() bool { return !b.server.sessions.find("arm").alive() })
	b.clock.Advance(tokenGrace + time.Second)
	if got := r.next(); got.event.Code != wire.EventUnknownSession || got.event.ServerID != b.server.id ||
		got.header.SessionEpoch != 3 {
		t.Errorf("it got %+v, want unknown_session of its epoch", got)
	}
}

// Messages and tokens that any client may send do not exclude a robot: a header with the last epoch
// or the last number, a token of a later epoch, a name that resembles its own.
func TestAForeignHeaderShutsNobodyOut(t *testing.T) {
	b := serve(t, config())
	b.live("arm-1", 1)
	r := b.robot("arm-1")
	r.send(obsHeader(1, 1), fakeObs(t))
	r.next()
	for _, h := range []wire.Header{obsHeader(1<<32-1, 2), obsHeader(1, 1<<64-1)} {
		r.send(h, fakeObs(t))
	}
	if _, err := b.session.Token(b.server.Prefix() + "/arm-1/4294967295/alive"); err != nil {
		t.Fatal(err)
	}
	near, err := b.session.Publisher(b.server.Prefix()+"/arm 1/obs", wire.ObservationQoS)
	if err != nil {
		t.Fatal(err)
	}
	_ = near.Put(nil, wire.AppendHeader(nil, obsHeader(1, 5)))
	r.send(obsHeader(1, 2), fakeObs(t))
	if got := r.next(); got.header.MsgType != wire.MsgActionChunk || got.header.SeqID != 2 {
		t.Errorf("the robot's next observation got %+v, want its chunk", got)
	}
	if s := b.server.sessions.find("arm-1"); s.tokenEpoch.Load() != 1 {
		t.Errorf("the token of epoch %d counts, want 1", s.tokenEpoch.Load())
	}
}

// Robots that learn that their server leaves query all servers at once. The leaving server answers
// them: otherwise each would wait for it until the query's time-out while its actions run out. A
// query after its end does not wait either.
func TestAServerThatLeavesAnswers(t *testing.T) {
	b := serve(t, config())
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	ended := make(chan error, 1)
	go func() { ended <- b.stop() }()
	if got := r.next(); got.event.Code != wire.EventDraining {
		t.Fatalf("the robot got %+v, want a draining event", got)
	}
	rttest.Eventually(t, "no token of the server", func() bool {
		return b.network.CountTokens(wire.ReplicaAliveKey(b.server.Prefix(), b.server.id)) == 0
	})
	time.Sleep(drainTime / 3) // for as long as a robot may take to send a query
	var s wire.Status
	if err := wire.ParseStatus(&s, b.status()); err != nil || !s.Draining {
		t.Errorf("it says %+v, %v, want that it drains", s, err)
	}
	if ack := b.open(fakeOpen("other")); ack.Accepted || !ack.Draining || !ack.Temporary() {
		t.Errorf("an open is answered with %+v, want that it drains", ack)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	finished := make(chan struct{}, 1)
	b.server.queries.waiting <- query{unanswered{finished}, b.server.queries.status}
	b.server.queries.answerWaiting()
	if len(finished) != 1 {
		t.Error("a query that was left waiting is not finished")
	}
}

// unanswered is a query that signals when it is finished.
type unanswered struct{ finished chan struct{} }

func (unanswered) Key() string                { return "" }
func (unanswered) Payload() []byte            { return nil }
func (unanswered) From() wire.Origin          { return wire.Origin{} }
func (unanswered) Reply(string, []byte) error { return nil }
func (unanswered) ReplyErr([]byte) error      { return nil }
func (u unanswered) Finish()                  { u.finished <- struct{}{} }

// Two servers that do not know each other's sessions yet both admit one robot, or two robots under
// one name. As soon as the tokens arrive, one of them gives its session up, and its place is free.
// The robot whose session ends is informed if it is not the one whose session stays.
func TestTwoServersThatBothAdmitARobot(t *testing.T) {
	for _, tt := range []struct {
		name       string
		one, other func(*wire.SessionOpen)
		told       bool
	}{
		{"two clients that name no instance", func(*wire.SessionOpen) {}, func(*wire.SessionOpen) {}, false},
		{"two processes of one name", func(o *wire.SessionOpen) {
			o.Instance, o.SessionEpoch = "one", 3
		}, func(o *wire.SessionOpen) { o.Instance, o.SessionEpoch = "two", 3 }, true},
		{"one process, whose first answer was lost", func(o *wire.SessionOpen) {
			o.Instance, o.SessionEpoch = "one", 3
		}, func(o *wire.SessionOpen) { o.Instance, o.SessionEpoch = "one", 4 }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := serve(t, config())
			b := a.join(t)
			rttest.Eventually(t, "two servers", func() bool { return both(a, b) })
			r := a.robot("arm")
			first, second := fakeOpen("arm"), fakeOpen("arm")
			tt.one(&first)
			tt.other(&second)
			first.ServerID, second.ServerID = a.server.id, b.server.id
			if ack := a.open(first); !ack.Accepted {
				t.Fatal(ack.Error)
			}
			held, err := wire.HeldKey(a.server.Prefix(), "arm", a.server.id, wire.HeldMark("arm", first.Instance),
				first.SessionEpoch)
			if err != nil {
				t.Fatal(err)
			}
			b.server.others.OnToken(held, false) // it has not arrived yet
			if ack := b.open(second); !ack.Accepted {
				t.Fatal(ack.Error)
			}
			b.server.others.OnToken(held, true)
			sessions := func() int { return len(a.server.sessions.all()) + len(b.server.sessions.all()) }
			rttest.Eventually(t, "one session", func() bool {
				return sessions() == 1 && a.network.CountTokens(wire.HeldWildcard(a.server.Prefix())) == 1
			})
			time.Sleep(50 * time.Millisecond) // the other one must not give up, too
			if n := sessions(); n != 1 {
				t.Errorf("%d sessions are left, want 1", n)
			}
			if tt.name == "one process, whose first answer was lost" && b.server.sessions.find("arm") == nil {
				t.Error("the older epoch was kept")
			}
			if got := len(r.inbox) > 0; got != tt.told {
				t.Errorf("it was told: %v, want %v", got, tt.told)
			}
			if tt.told {
				if got := r.next(); got.event.Code != wire.EventUnknownSession {
					t.Errorf("it was told %+v, want unknown_session", got)
				}
			}
		})
	}
}
