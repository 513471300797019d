package event

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestEveryCodeHasAMessage(t *testing.T) {
	seen := map[string]Code{}
	for c := range numCodes {
		other, twice := seen[c.String()]
		if c.String() == "" || twice {
			t.Errorf("code %d says %q, as code %d does", c, c, other)
		}
		seen[c.String()] = c
	}
	for c := numCodes; c != 0; c++ { // up to 255: a record may hold any number
		if c.Kind() != "" || c.String() == "" || c.Fault() {
			t.Errorf("code %d, which is none, is of the kind %q and says %q", c, c.Kind(), c)
		}
	}
}

func TestEventsAreDrainedInOrder(t *testing.T) {
	q := NewQueue(4)
	for i := range int64(6) {
		q.Emit(rt.Instant(i), JointHeld, i, -i)
	}
	var got []int64
	q.Drain(func(e Event) {
		got = append(got, e.A)
		rttest.Want(t, e, (Event{rt.Instant(e.A), JointHeld, e.A, -e.A}), "drained")
		q.Emit(0, TorqueOn, 99, 0) // remains for the next drain
	})
	rttest.Equal(t, got, []int64{0, 1, 2, 3}, "drained")
	again := 0
	q.Drain(func(Event) { again++ })
	if again != 4 {
		t.Errorf("second Drain = %d events, want the 4 that were emitted meanwhile", again)
	}
	(*Queue)(nil).Emit(0, TorqueOn, 0, 0)
}

func TestQueueNoAlloc(t *testing.T) {
	q := NewQueue(8)
	handle := func(Event) {}
	rttest.NoAllocs(t, "Emit and Drain allocate %v times, want 0", 1000, func() {
		for range 9 {
			q.Emit(0, JointHeld, 1, 0)
		}
		q.Drain(handle)
	})
}
