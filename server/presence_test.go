package server

import (
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// after makes housekeeping check the sessions twice, the second time after this grace period. It returns the ids of the
// sessions that the server then holds.
func (b *bench) after(grace time.Duration) (ids []string) {
	b.tick()
	b.clock.Advance(grace)
	b.tick()
	for _, s := range b.server.sessions.all() {
		ids = append(ids, s.uuid+" "+s.id)
	}
	return ids
}

// Whether a robot keeps its session depends on what happens to the robot and its tokens. The test itself calls the
// housekeeping, which does not run otherwise.
func TestPresenceByEpoch(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *bench) (kept []live)
	}{
		{"both robots are there", func(b *bench) []live {
			return []live{b.live("a", 1), b.live("b", 1)}
		}},
		{"tokens without an epoch: one is gone, one came back", func(b *bench) []live {
			b.live("a", 0).die()
			back := b.live("b", 0)
			back.die()
			b.show("b", 0)
			return []live{back}
		}},
		{"one is gone for good", func(b *bench) []live {
			b.live("a", 1).die()
			return []live{b.live("b", 1)}
		}},
		{"the old token dies after the robot came back", func(b *bench) []live {
			old := b.live("a", 1)
			back := b.live("a", 2)
			old.die()
			return []live{back}
		}},
		{"the old token dies between the open and the new token", func(b *bench) []live {
			old := b.live("a", 1)
			ack := b.open(process("a", "", "", 2))
			old.die()
			return []live{{uuid: "a", id: ack.SessionID}}
		}},
		{"the old token dies before the robot came back", func(b *bench) []live {
			b.live("a", 1).die()
			return []live{b.live("a", 2)}
		}},
		{"the robot came back and is gone again", func(b *bench) []live {
			old := b.live("a", 1)
			b.live("a", 2).die()
			old.die()
			return nil
		}},
		{"a second robot's death takes nobody along", func(b *bench) []live {
			one, two := b.live("arm", 7), b.live("arm-2", 7)
			two.die()
			return []live{one}
		}},
		{"a robot whose name begins like another's", func(b *bench) []live {
			b.live("arm", 7).die()
			return []live{b.live("arm-2", 7)}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := serveQueries(t, config())
			var want []string
			for _, l := range tt.do(b) {
				want = append(want, l.uuid+" "+l.id)
			}
			if got := b.after(tokenGrace + time.Second); !slices.Equal(got, want) {
				t.Errorf("sessions = %q, want %q", got, want)
			}
		})
	}
}

// A robot that restarts replaces its session, with a new id and an empty mailbox, so that its request numbers may begin
// again.
func TestRestartReplacesTheSession(t *testing.T) {
	b := serve(t, config())
	first := b.live("arm", 1)
	r := b.robot("arm")
	r.ask(900)
	r.wantChunk(900)
	second := b.live("arm", 2)
	first.die()
	r.ask(1)
	rttest.Want(t, r.wantChunk(1).header.SessionEpoch, 2, "the epoch of the answer after the restart")
	if s := b.server.sessions.find("arm"); first.id == second.id || s.id != second.id || !s.alive() {
		t.Errorf("sessions %s, then %s; the server holds %s, alive %v", first.id, second.id, s.id, s.alive())
	}
	rttest.Want(t, len(b.server.sessions.all()), 1, "sessions")
}

// A late observation with an earlier epoch does not exclude observations with the new epoch.
func TestObservationOfAnOldEpochIsLate(t *testing.T) {
	b := serve(t, config())
	b.live("arm", 2)
	r := b.robot("arm")
	r.ask(1)
	r.wantChunk(1)
	r.send(obsHeader(1, 900), fakeObs(t))
	rttest.Want(t, b.server.stats.late.Load(), 1, "late observations")
	r.ask(2)
	r.wantChunk(2)
}

// Only a client with the optional keys gets a late event, and only for an overtaken observation. A duplicate gets none,
// because its answer is on the way. A client of LeRobot's draft would treat any event as the answer to its newest
// request.
func TestLateEvent(t *testing.T) {
	b := serve(t, config())
	b.live("arm", 1)
	b.open(fakeOpen("stock"))
	arm, stock := b.robot("arm"), b.robot("stock")
	late := func() uint64 { return b.server.stats.late.Load() }
	for _, r := range []*robot{arm, stock} {
		before := late()
		r.ask(5)
		r.wantChunk(5)
		r.ask(5) // a duplicate
		r.ask(3) // a newer observation has overtaken it
		r.ask(4) // no event, because the last one was sent a moment before
		rttest.Want(t, late()-before, 3, "late observations")
	}
	if got := arm.wantEvent(wire.EventLate, errLate.Error()); got.event.Seq != 3 || got.header.SeqID != 3 ||
		got.event.ServerID != b.server.id {
		t.Errorf("the late event is %+v, want that of request 3", got)
	}
	for _, r := range []*robot{arm, stock} { // no robot gets another event before this chunk
		r.ask(6)
		r.wantChunk(6)
	}
}

// Every robot gets the draining event while the server's token is still shown, so that the robot queries another server
// before it finds this server dead.
func TestDrainIsAnnouncedBeforeTheTokenGoes(t *testing.T) {
	b := serve(t, config())
	b.live("a", 3)
	b.open(fakeOpen("b"))
	told := make(chan string, 8)
	for _, uuid := range []string{"a", "b"} {
		rttest.Must(b.session.Subscribe(actionKey(uuid), func(s wire.Sample) {
			var e wire.Event
			if err := wire.Parse(&e, s.Payload); err != nil || e.Code != wire.EventDraining ||
				e.RetryAfterMs <= 0 || e.Seq != 0 {
				t.Errorf("%s got %+v, %v, want a draining event", uuid, e, err)
			}
			told <- uuid
		}))(t)
	}
	rttest.Must(b.session.SubscribeTokens(wire.ServerAliveAny, func(_ string, alive bool) {
		if !alive {
			told <- "token"
		}
	}))(t)
	b.end()
	if a, b, c := <-told, <-told, <-told; a != "a" || b != "b" || c != "token" || len(told) != 0 {
		t.Errorf("order = %s, %s, %s, want both robots, then the token", a, b, c)
	}
}

// A robot that opens while the server sends the draining events gets one, too.
func TestOpenWhileDrainingGetsTheEvent(t *testing.T) {
	b := newBench(t, config())
	r := b.robot("arm")
	o := fakeOpen("arm")
	session := rttest.Must(b.server.opener.newSession(&o,
		&admission{opened: &task{}, place: b.server.opener.counter.Place(wire.Origin{})}))(t)
	b.server.phase.draining.Store(true)
	b.server.opener.register(session)
	r.wantEvent(wire.EventDraining, "")
}

// A robot that sends malformed samples gets no more events than a robot that sends bad
// observations.
func TestEventsForMalformedSamplesAreSpaced(t *testing.T) {
	b := newBench(t, config())
	b.opened("arm")
	r := b.robot("arm")
	for range 5 {
		b.server.events.send(event{uuid: "arm", code: wire.EventBadObservation, text: "malformed"})
	}
	b.clock.Advance(2 * eventInterval)
	b.server.events.send(event{uuid: "arm", code: wire.EventBadObservation, text: "again"})
	r.wantEvent(wire.EventBadObservation, "malformed")
	r.wantEvent(wire.EventBadObservation, "again")
	if n := b.server.stats.silenced.Load(); n != 4 || len(r.inbox) != 0 {
		t.Errorf("silenced = %d, and %d events more, want 4 and no more", n, len(r.inbox))
	}
}
