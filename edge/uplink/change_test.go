package uplink

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// A server's event announces another model. The run closes its session only between two episodes, and requests the next
// episode before it opens the new session. The request for this session names no model; within an episode, it would
// name the run's model.
func TestAServerAnnouncesAnotherModel(t *testing.T) {
	s, l, _ := demoLink(t, func(a *wire.SessionAck) { a.ModelSHA256 = strings.Repeat("a", 64) })
	var between atomic.Bool
	began := make(chan string, 1)
	l.Change = &Change{Between: between.Load, Begin: func(to Contract) {
		if l.In.Sessions().Open != nil {
			t.Error("a session is open while the episode begins")
		}
		began <- to.SHA256[:1]
	}}
	opens(t, l)
	rttest.Want(t, l.model(), strings.Repeat("a", 64), "within an episode the open names")
	s.answer(func(a *wire.SessionAck) { a.ModelSHA256 = strings.Repeat("b", 64) })
	maintain(t, l)
	e := wire.Event{Code: wire.EventModel, Nonce: 41}
	l.receiver.onServerEvent(l.In.Sessions().Epoch(), wire.Append(nil, &e))
	if !l.Due() {
		t.Fatal("the event is not obeyed")
	}
	time.Sleep(4 * restPoll) // the link checks for a change several times meanwhile, but must not make it
	if n := s.asked(); n != 1 || len(began) != 0 {
		t.Fatalf("%d opens within the episode, want 1", n)
	}
	between.Store(true)
	rttest.Eventually(t, "the new model's session", func() bool {
		open := l.In.Sessions().Open
		return open != nil && open.SHA256 == strings.Repeat("b", 64)
	})
	if got := <-began; got != "b" || s.closed() != 1 || l.Due() {
		t.Errorf("began with %q, %d sessions closed, due %v; want b, 1 and false", got, s.closed(), l.Due())
	}
	s.change(func(s *server) {
		rttest.Want(t, s.opens[0].ModelSHA256+s.opens[1].ModelSHA256, "", "the model that the opens are bound to")
	})
}

// A run keeps the model that --expect-model names, whatever other model its server offers.
func TestAnExpectedModelIsNotGivenUp(t *testing.T) {
	_, l, _ := demoLink(t, func(a *wire.SessionAck) { a.ModelSHA256 = strings.Repeat("a", 64) })
	l.Change = &Change{Between: func() bool { return true }}
	opens(t, l)
	e := wire.Event{Code: wire.EventModel, Nonce: 41}
	events := 0
	l.receiver.onEvent = func(wire.Event) { events++ }
	for range 2 { // a server repeats the event
		l.receiver.onServerEvent(l.In.Sessions().Epoch(), wire.Append(nil, &e))
	}
	rttest.Want(t, events, 1, "events that the run shows")
	for expected, due := range map[string]bool{"": true, "aaaa": false, "bbbb": true} {
		l.ExpectModel = expected
		rttest.Want(t, l.Due(), due, "expecting %q, the other model is due", expected)
	}
}
