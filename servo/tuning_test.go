package servo

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Goal: in the tick, replies may come earlier or later than in MeasureCycles, and the sleep of reads adapts: at least
// half of the reads are complete when the sleep ends, and no sleep is much too long.
func TestReadsAreTunedToTheTick(t *testing.T) {
	const learned, clean = 20 * time.Microsecond, 620*time.Microsecond + 6*replyGap
	for _, behind := range []time.Duration{198 * time.Microsecond, 120 * time.Microsecond, 78 * time.Microsecond,
		6 * time.Microsecond} {
		a, l := openLine(t)
		a.health.due = never
		l.gap = replyGap + learned
		rttest.Must(a.MeasureCycles(100))(t)
		l.gap = replyGap + behind/6
		read := func() time.Duration {
			l.Advance(10 * time.Millisecond)
			start := l.Now()
			if stale := l.read(a); stale != 0 {
				t.Fatalf("replies %v behind: stale %06b", behind, stale)
			}
			return l.Now().Sub(start)
		}
		for range 30 { // too few reads for a tuning that takes only the last, smallest steps
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

// A read with a missing answer or a repeated request does not change the tuning.
func TestLostRepliesDoNotTune(t *testing.T) {
	a, l := openLine(t)
	rttest.Must(a.MeasureCycles(20))(t)
	want := *a.positions.tuning()
	l.servos[3].mute = true
	for range 50 {
		l.Advance(10 * time.Millisecond)
		l.read(a)
	}
	rttest.Want(t, *a.positions.tuning(), want, "a silent motor moved the tuning from %+v to", want)
	l.servos[3].mute = false
	l.Advance(10 * time.Millisecond)
	l.read(a)
	if *a.positions.tuning() == want {
		t.Error("a whole read does not tune")
	}
}

// When each motor has its own request, each has its own tuning.
func TestMotorsReadOneByOneAreTuned(t *testing.T) {
	for _, baud := range []int{1_000_000, 4_000_000} {
		l := newLine(rttest.NewClock(rt.Instant(time.Second)), 1, 2)
		b := NewBus(l, baud, table.Dynamixel1, l.Clock)
		g := b.newGroup(56, 2, []ID{1, 2})
		g.startTuning()
		l.servos[2].lateBy = 50 * time.Microsecond
		const early, reads = 100, 60
		for i := range early + reads {
			if i == early {
				l.forget()
			}
			l.Advance(10 * time.Millisecond)
			if missing := b.gather(g, lossWait, l.deadline()); missing != 0 {
				t.Fatalf("%d baud: missing %b", baud, missing)
			}
		}
		// computed for 8 bytes out and 8 bytes in: the line of 1 Mbaud is slower by this time
		slower := time.Duration(16*(10000-b.byteNs)) * time.Nanosecond
		for i, want := range []time.Duration{slower, slower + 50*time.Microsecond} {
			if got := g.each[i].tuning().delay; got < want-2*tuneLast || got > want+2*tuneLast {
				t.Errorf("%d baud: motor %d is waited for %v, want %v", baud, i+1, got, want)
			}
		}
		if want := len(g.ids) * reads / 2; l.waits < want-2 || l.waits > want+2 {
			t.Errorf("%d baud: %d polls, want %d", baud, l.waits, want)
		}
	}
}

func TestBoundsOfTuning(t *testing.T) {
	b, g := boundTuning()
	for fast, gaps := range map[bool]int{false: 2, true: 1} {
		b.setFast(g, fast)
		b.polled = false
		for range 1000 {
			b.tune(g)
		}
		if got, want := g.tuning().delay, -time.Duration(gaps)*replyGap; got != want {
			t.Errorf("fast %v: always early, settle %v, want %v", fast, got, want)
		}
		b.polled, b.end = true, b.clock.Now().Add(-time.Second)
		for range 5000 {
			b.tune(g)
		}
		rttest.Want(t, g.tuning().delay, replyDelayMax, "fast %v: always late, settle", fast)
	}
}

func boundTuning() (*Bus, *readGroup) {
	l := newLine(rttest.NewClock(rt.Instant(10*time.Second)), 1, 2)
	b := NewBus(l, 4_000_000, table.Dynamixel2, l.Clock)
	g := b.newGroup(132, 4, []ID{1, 2})
	g.answered = g.all
	g.startTuning()
	return b, g
}

// Goal: when the adapter's delay shrinks by a millisecond, the tuning follows within two seconds at
// 60 Hz.
func TestTuningComesDownFast(t *testing.T) {
	b, g := boundTuning()
	g.tuning().reads, g.tuning().delay = 100*tuneEach, time.Millisecond
	n := 0
	for ; g.tuning().delay > 0; n++ {
		b.tune(g)
	}
	if n > 120 {
		t.Errorf("down by 1 ms in %d reads, want 120 at most", n)
	}
}

// The replies to fast and plain reads have different gaps, so each kind of read has its own delay.
func TestFastAndPlainReadsAreTunedApart(t *testing.T) {
	b, g := boundTuning()
	b.tune(g)
	plain := *g.tuning()
	b.setFast(g, true)
	b.polled, b.end = true, b.clock.Now().Add(-time.Second)
	b.tune(g)
	if g.tuning().delay <= 0 {
		t.Errorf("a fast read that was late: settle %v", g.tuning().delay)
	}
	b.setFast(g, false)
	rttest.Want(t, *g.tuning(), plain, "plain reads go on with")
}
