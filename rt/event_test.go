package rt

import (
	"strings"
	"testing"
)

func TestEveryCodeHasANameAndASentence(t *testing.T) {
	seen := map[string]Code{}
	for c := range numCodes {
		name, sentence := c.String(), c.Sentence()
		if name == "" || strings.ContainsAny(name, " -") || len(strings.Fields(sentence)) < 2 {
			t.Errorf("Code %d = %q, %q, want one word and a sentence", c, name, sentence)
		}
		if other, twice := seen[name]; twice {
			t.Errorf("codes %d and %d are both %q", other, c, name)
		}
		seen[name] = c
	}
	if got := numCodes.String(); got != "none" {
		t.Errorf("an unknown code is %q, want none", got)
	}
}

func TestEventsAreDrainedInOrderAndCounted(t *testing.T) {
	q := NewEvents(4)
	for i := range int64(6) {
		q.Emit(Event{At: Instant(i), Code: Starved, A: i})
	}
	q.Emit(Event{Code: TorqueOff})
	var got []int64
	q.Drain(func(e Event) {
		got = append(got, e.A)
		q.Emit(Event{Code: TorqueOn, A: 99}) // from the drain: waits for the next one
	})
	if len(got) != 4 || got[0] != 0 || got[3] != 3 {
		t.Errorf("Drain = %v, want [0 1 2 3]", got)
	}
	if q.Dropped() != 3 || q.Count(Starved) != 6 || q.Count(TorqueOff) != 1 || q.Count(TickOverrun) != 0 {
		t.Errorf("dropped, starved, torque off, overrun = %d, %d, %d, %d, want 3, 6, 1, 0",
			q.Dropped(), q.Count(Starved), q.Count(TorqueOff), q.Count(TickOverrun))
	}
	again := 0
	q.Drain(func(e Event) { again++ })
	if again != 4 {
		t.Errorf("second Drain = %d events, want the 4 that were emitted meanwhile", again)
	}
}

func TestEventsNoAlloc(t *testing.T) {
	q := NewEvents(8)
	drained := 0
	handle := func(Event) { drained++ }
	if n := testing.AllocsPerRun(1000, func() {
		for range 9 {
			q.Emit(Event{Code: LimitClipped, A: 1})
		}
		q.Drain(handle)
	}); n != 0 {
		t.Errorf("Emit and Drain allocate %v times, want 0", n)
	}
}

func BenchmarkEmitEvent(b *testing.B) {
	q := NewEvents(64)
	handle := func(Event) {}
	b.ReportAllocs()
	for b.Loop() {
		q.Emit(Event{Code: Starved})
		q.Drain(handle)
	}
}
