package servo

import (
	"testing"
	"time"

	"edgert/rt"
	"edgert/rt/rttest"
	"edgert/servo/table"
)

// Goal: on the tick replies come earlier or later than MeasureCycles has seen them,
// and reads sleep until then: some find everything there, none waits long for
// nothing.
func TestReadsAreTunedToTheTick(t *testing.T) {
	const learned, clean = 20 * time.Microsecond, 620*time.Microsecond + 6*replyGap
	for _, behind := range []time.Duration{120 * time.Microsecond, 78 * time.Microsecond, 6 * time.Microsecond} {
		a, l := openLine(t)
		a.health.due = never
		l.gap = replyGap + learned
		if _, err := a.MeasureCycles(20); err != nil {
			t.Fatal(err)
		}
		l.gap = replyGap + behind/6
		read := func() time.Duration {
			l.clock.Advance(10 * time.Millisecond)
			start := l.clock.Now()
			if stale := a.Read(make([]float32, 6), l.deadline()); stale != 0 {
				t.Fatalf("replies %v behind: stale %06b", behind, stale)
			}
			return l.clock.Now().Sub(start)
		}
		for range 100 {
			read()
		}
		l.forget()
		const reads = 300
		for range reads {
			if took := read(); took < clean+behind || took > clean+behind+2*tuneLast {
				t.Fatalf("replies %v behind: a read took %v, want %v", behind, took, clean+behind)
			}
		}
		if l.waits < reads/3 || l.waits > reads/2 {
			t.Errorf("replies %v behind: %d of %d reads polled, want at most half", behind, l.waits, reads)
		}
	}
}

// A motor that answers nothing, or whose reply is asked for again, says nothing
// about when replies come.
func TestLostRepliesDoNotTune(t *testing.T) {
	a, l := openLine(t)
	if _, err := a.MeasureCycles(20); err != nil {
		t.Fatal(err)
	}
	want := a.positions.tuning
	l.servos[3].mute = true
	for range 50 {
		l.clock.Advance(10 * time.Millisecond)
		a.Read(make([]float32, 6), l.deadline())
	}
	if a.positions.tuning != want {
		t.Errorf("a silent motor moved the tuning from %+v to %+v", want, a.positions.tuning)
	}
	l.servos[3].mute = false
	l.clock.Advance(10 * time.Millisecond)
	a.Read(make([]float32, 6), l.deadline())
	if a.positions.tuning == want {
		t.Error("a whole read does not tune")
	}
}

// Motors that are asked one by one are tuned one by one; on a fast line more of
// the reads poll.
func TestSinglyAskedMotorsAreTuned(t *testing.T) {
	for baud, polled := range map[int]int{1_000_000: 3, 4_000_000: 4} { // sixths of the reads
		l := newLine(rttest.NewClock(rt.Instant(time.Second)), 1, 2)
		b := NewBus(l, baud, table.FeetechSCS, l.clock)
		g := b.newGroup(56, 2, []ID{1, 2})
		g.startTuning()
		l.servos[2].lateBy = 50 * time.Microsecond
		const early, reads = 100, 60
		for i := range early + reads {
			if i == early {
				l.forget()
			}
			l.clock.Advance(10 * time.Millisecond)
			if missing := b.gather(g, lossWait, l.deadline()); missing != 0 {
				t.Fatalf("%d baud: missing %b", baud, missing)
			}
		}
		slower := time.Duration(16*(10000-b.byteNs)) * time.Nanosecond // than computed: the line has 1 Mbaud, 8 bytes go and come
		for i, want := range []time.Duration{slower, slower + 50*time.Microsecond} {
			if got := g.singly[i].tuning.settle; got < want-2*tuneLast || got > want+2*tuneLast {
				t.Errorf("%d baud: motor %d is waited for %v, want %v", baud, i+1, got, want)
			}
		}
		if want := len(g.ids) * reads * polled / 6; l.waits < want-2 || l.waits > want+2 {
			t.Errorf("%d baud: %d polls, want %d", baud, l.waits, want)
		}
	}
}
