package server

import (
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/wire"
)

// live is a robot's life in one epoch: the session it opened and its token.
type live struct {
	b     *bench
	id    string // session id
	token wire.Declaration
}

// live opens a session as edge-rt does and shows its token.
func (b *bench) live(uuid string, epoch uint32) live {
	b.t.Helper()
	o := fakeOpen(uuid)
	o.SessionEpoch = epoch
	ack := b.open(o)
	if !ack.Accepted {
		b.t.Fatalf("open(%s, %d) = %+v", uuid, epoch, ack)
	}
	key, err := wire.EpochAliveKey(b.server.Prefix(), uuid, epoch)
	if err != nil {
		b.t.Fatal(err)
	}
	token, err := b.session.Token(key)
	if err != nil {
		b.t.Fatal(err)
	}
	return live{b, ack.SessionID, token}
}

// die lets the token vanish, as the end of a link does.
func (l live) die() {
	l.b.t.Helper()
	if err := l.token.Undeclare(); err != nil {
		l.b.t.Fatal(err)
	}
}

// after returns the sessions that the server holds after two checks, the second one after the
// grace.
func (b *bench) after(grace time.Duration) (ids []string) {
	b.server.housekeeper.tick(b.t.Context())
	b.clock.Advance(grace)
	b.server.housekeeper.tick(b.t.Context())
	for _, s := range b.server.sessions.all() {
		ids = append(ids, s.uuid+" "+s.id)
	}
	return ids
}

// Which robots keep their session, by their fate. The server's own housekeeping does not run: the
// test calls it.
func TestPresenceByEpoch(t *testing.T) {
	tests := []struct {
		name string
		do   func(b *bench) (kept []live)
		uuid []string // the uuids in kept
	}{
		{"both robots are there", func(b *bench) []live {
			return []live{b.live("a", 1), b.live("b", 1)}
		}, []string{"a", "b"}},
		{"one is gone for good", func(b *bench) []live {
			b.live("a", 1).die()
			return []live{b.live("b", 1)}
		}, []string{"b"}},
		{"the old token dies after the robot came back", func(b *bench) []live {
			old := b.live("a", 1)
			back := b.live("a", 2)
			old.die()
			return []live{back}
		}, []string{"a"}},
		{"the old token dies between the open and the new token", func(b *bench) []live {
			old := b.live("a", 1)
			o := fakeOpen("a")
			o.SessionEpoch = 2
			ack := b.open(o)
			old.die()
			return []live{{id: ack.SessionID}}
		}, []string{"a"}},
		{"the old token dies before the robot came back", func(b *bench) []live {
			b.live("a", 1).die()
			return []live{b.live("a", 2)}
		}, []string{"a"}},
		{"the robot came back and is gone again", func(b *bench) []live {
			old := b.live("a", 1)
			b.live("a", 2).die()
			old.die()
			return nil
		}, nil},
		{"a second robot's death takes nobody along", func(b *bench) []live {
			one, two := b.live("arm", 7), b.live("arm-2", 7)
			two.die()
			return []live{one}
		}, []string{"arm"}},
		{"a robot whose name begins like another's", func(b *bench) []live {
			b.live("arm", 7).die()
			return []live{b.live("arm-2", 7)}
		}, []string{"arm-2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := serveQueries(t)
			var want []string
			for i, l := range tt.do(b) {
				want = append(want, tt.uuid[i]+" "+l.id)
			}
			if got := b.after(tokenGrace + time.Second); !slices.Equal(got, want) {
				t.Errorf("sessions = %q, want %q", got, want)
			}
		})
	}
}

// serveQueries returns a server that answers queries and sees tokens, without housekeeping: the
// test calls that.
func serveQueries(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, config())
	declared, tokens, err := b.server.declare()
	if err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case q := <-b.server.queries.waiting:
				b.server.queries.answer(q)
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
		if err := undeclare(append(declared, tokens...)); err != nil {
			t.Error(err)
		}
	})
	return b
}

// A robot that restarts replaces its session, with a new id and an empty mailbox: its request
// numbers may begin again.
func TestRestartReplacesTheSession(t *testing.T) {
	b := serve(t, config())
	first := b.live("arm", 1)
	r := b.robot("arm")
	r.send(obsHeader(1, 900), fakeObs(t))
	if got := r.next(); got.header.SeqID != 900 {
		t.Fatalf("first answer = %+v", got.header)
	}
	second := b.live("arm", 2)
	first.die()
	r.send(obsHeader(2, 1), fakeObs(t))
	if got := r.next(); got.header.SeqID != 1 || got.header.MsgType != wire.MsgActionChunk ||
		got.header.SessionEpoch != 2 {
		t.Errorf("answer after the restart = %+v, want the chunk of request 1", got.header)
	}
	if s := b.server.sessions.find("arm"); first.id == second.id || s.id != second.id || !s.alive() {
		t.Errorf("sessions %s, then %s; the server holds %s, alive %v", first.id, second.id, s.id, s.alive())
	}
	if n := len(b.server.sessions.all()); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
}

// A late observation of an earlier epoch does not exclude those of the new one.
func TestObservationOfAnOldEpochIsLate(t *testing.T) {
	b := serve(t, config())
	b.live("arm", 2)
	r := b.robot("arm")
	r.send(obsHeader(2, 1), fakeObs(t))
	r.next()
	r.send(obsHeader(1, 900), fakeObs(t))
	if n := b.server.stats.late.Load(); n != 1 {
		t.Errorf("late = %d, want the old epoch's observation", n)
	}
	r.send(obsHeader(2, 2), fakeObs(t))
	if got := r.next(); got.header.SeqID != 2 || got.header.MsgType != wire.MsgActionChunk {
		t.Errorf("the next request got %+v, want its chunk", got.header)
	}
}

// Only overtaken observations are answered with a late event. The answer to a duplicate is on its
// way, and an old client takes any event for the answer to its newest request.
func TestLateEvent(t *testing.T) {
	b := serve(t, config())
	b.live("arm", 1)
	o := fakeOpen("stock")
	b.open(o)
	arm, stock := b.robot("arm"), b.robot("stock")
	late := func() uint64 { return b.server.stats.late.Load() }
	for _, r := range []*robot{arm, stock} {
		epoch := uint32(1)
		if r == stock {
			epoch = 0
		}
		before := late()
		r.send(obsHeader(epoch, 5), fakeObs(t))
		r.next()
		r.send(obsHeader(epoch, 5), fakeObs(t)) // a duplicate
		r.send(obsHeader(epoch, 3), fakeObs(t)) // overtaken
		r.send(obsHeader(epoch, 4), fakeObs(t)) // within the interval of events
		if n := late() - before; n != 3 {
			t.Errorf("late = %d, want 3", n)
		}
	}
	if got := arm.next(); got.event != (wire.Event{
		Code:     wire.EventLate,
		Text:     errLate.Error(),
		Seq:      3,
		ServerID: b.server.id,
	}) || got.header.SeqID != 3 || got.header.MsgType != wire.MsgEvent {
		t.Errorf("the overtaken observation got %+v, want a late event", got)
	}
	arm.send(obsHeader(1, 6), fakeObs(t))
	if got := arm.next(); got.header.MsgType != wire.MsgActionChunk {
		t.Errorf("the next request got %+v, want its chunk and no other event before", got)
	}
	stock.send(obsHeader(0, 6), fakeObs(t))
	if got := stock.next(); got.header.MsgType != wire.MsgActionChunk {
		t.Errorf("the stock client got %+v, want no event", got)
	}
}

// Every robot gets the draining event while the server's token is still shown, so that it queries
// another server before it takes this one for dead.
func TestDrainIsAnnouncedBeforeTheTokenGoes(t *testing.T) {
	b := serve(t, config())
	b.live("a", 3)
	b.open(fakeOpen("b"))
	told := make(chan string, 8)
	for _, uuid := range []string{"a", "b"} {
		key, err := wire.ActionKey(b.server.Prefix(), uuid)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.session.Subscribe(key, func(s wire.Sample) {
			var e wire.Event
			if err := wire.ParseEvent(&e, s.Payload); err != nil || e.Code != wire.EventDraining ||
				e.RetryAfterMs <= 0 || e.Seq != 0 {
				t.Errorf("%s got %+v, %v, want a draining event", uuid, e, err)
			}
			told <- uuid
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.session.SubscribeTokens(wire.ServerAliveAny, func(_ string, alive bool) {
		if !alive {
			told <- "token"
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	close(told)
	var order []string
	for what := range told {
		order = append(order, what)
	}
	if !slices.Equal(order, []string{"a", "b", "token"}) {
		t.Errorf("order = %q, want both robots, then the token", order)
	}
}

// A robot that opens while the events are sent gets one as well.
func TestOpenWhileDrainingGetsTheEvent(t *testing.T) {
	b := newBench(t, config())
	r := b.robot("arm")
	o := fakeOpen("arm")
	session, err := b.server.opener.newSession(&o,
		&admission{opened: &task{}, place: b.server.opener.counter.Place(wire.Origin{})})
	if err != nil {
		t.Fatal(err)
	}
	b.server.phase.draining.Store(true)
	b.server.opener.register(session)
	if got := r.next(); got.event.Code != wire.EventDraining || got.header.MsgType != wire.MsgEvent {
		t.Errorf("the robot got %+v, want a draining event", got)
	}
}

// A robot that sends malformed samples gets no more events than a robot that sends bad
// observations.
func TestEventsForMalformedSamplesAreSpaced(t *testing.T) {
	b := newBench(t, config())
	o := fakeOpen("arm")
	b.server.opener.open(&o, wire.Origin{})
	r := b.robot("arm")
	for range 5 {
		b.server.housekeeper.events.send(event{uuid: "arm", code: wire.EventBadObservation, text: "malformed"})
	}
	b.clock.Advance(2 * eventInterval)
	b.server.housekeeper.events.send(event{uuid: "arm", code: wire.EventBadObservation, text: "again"})
	if first, second := r.next(), r.next(); first.event.Text != "malformed" || second.event.Text != "again" ||
		len(r.inbox) != 0 {
		t.Errorf("events %q and %q and %d more, want one per interval", first.event.Text, second.event.Text,
			len(r.inbox))
	}
	if n := b.server.stats.silenced.Load(); n != 4 {
		t.Errorf("silenced = %d, want 4", n)
	}
}
