package follow

import (
	"testing"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// drained returns the codes of the events so far.
func drained(q *event.Queue) (codes []event.Code) {
	q.Drain(func(e event.Event) { codes = append(codes, e.Code) })
	return codes
}

// Goal: an unknown policy drives the arm slowly for a time, which passes only while the policy drives. Then the arm
// catches up as after every start.
func TestAnUnknownPolicyStartsSlowly(t *testing.T) {
	for _, tt := range []struct{ slew, slow, then float32 }{{0.5, 0.6, 1}, {1, 0.6, 2}, {0.1, 0.2, 0.2}} {
		events := event.NewQueue(16)
		r := newRig(func(c *Config) { c.EaseIn, c.Events, c.Safety.Slew = 20*testPeriod, events, float64(tt.slew) })
		r.StartArming()
		r.ticks(t, 1)
		if codes := drained(events); len(codes) != 2 || codes[0] != event.FirstRun {
			t.Errorf("armed: events %v, want that the bundle is new", codes)
		}
		from := r.Goal[0]
		r.ticks(t, 10, 90, 50)
		r.ticks(t, 100) // the arm rests
		r.startSlowly(r.now)
		r.ticks(t, 9, 90, 50)
		if got, want := r.Goal[0]-from, 19*tt.slow; got > want+0.01 || got < want-0.01 {
			t.Errorf("slew %v: %v in 19 ticks, want %v", tt.slew, got, want)
		}
		rttest.Want(t, len(drained(events)), 0, "events before the time is over")
		r.ticks(t, 1, 90, 50)
		if codes := drained(events); len(codes) != 1 || codes[0] != event.FirstRunOver {
			t.Errorf("events %v, want that the time is over", codes)
		}
		before := r.Goal[0]
		if r.ticks(t, 1, 90, 50); r.Goal[0]-before > tt.then+0.01 || r.Goal[0]-before < tt.then-0.01 {
			t.Errorf("slew %v: then %v in a tick, want %v", tt.slew, r.Goal[0]-before, tt.then)
		}
		r.ticks(t, 500, 90, 50)
		before = r.Goal[0]
		if r.ticks(t, 1, 80, 50); before-r.Goal[0] != 2 {
			t.Errorf("slew %v: at last %v in a tick, want the limit of 2", tt.slew, before-r.Goal[0])
		}
	}
}

// Goal: while a person drives, the slow time of an unknown policy does not pass, and does not slow the person.
func TestAnUnknownPolicySlowsNoPerson(t *testing.T) {
	events := event.NewQueue(16)
	r := newRig(func(c *Config) { c.EaseIn, c.Events = 5*testPeriod, events })
	p := One(r.Follower)
	lead := func(n int, to float32) {
		for range n {
			r.tick(t)
			p.Lead(r.now, []float32{to, 50}, 1)
		}
	}
	r.StartArming()
	r.ticks(t, 1)
	drained(events)
	lead(40, 5) // the slow start after the arming ends
	from := r.Goal[0]
	lead(1, 90)
	rttest.Want(t, r.Goal[0]-from, 2, "travel of a tick while a person drives")
	rttest.Want(t, len(drained(events)), 0, "events while a person drives")
	from = r.Goal[0]
	if r.ticks(t, 1, 90, 50); r.Goal[0]-from > 0.61 {
		t.Errorf("the policy's first tick travels %v, want 0.6", r.Goal[0]-from)
	}
	r.ticks(t, 4, 90, 50)
	rttest.Equal(t, drained(events), []event.Code{event.FirstRunOver}, "events after the policy's five ticks")
}

func TestAKnownPolicyDoesNot(t *testing.T) {
	r, events := watched(t)
	before := r.Goal[0]
	if r.ticks(t, 1, 90, 50); r.Goal[0]-before != 2 {
		t.Errorf("%v in a tick, want the limit of 2", r.Goal[0]-before)
	}
	for _, c := range drained(events) {
		if c == event.FirstRun || c == event.FirstRunOver {
			t.Errorf("event %v without a first run", c)
		}
	}
}

// Goal: the error of a rescue (return into the range) that takes too long names the longest obstacle: a
// blocked or a silent joint.
func TestARescueThatFailsNamesWhatLasted(t *testing.T) {
	for _, tt := range []struct {
		name        string
		stale, last robot.Joints // silent joints during the rescue, and on its last tick
		outside     robot.Joints
		says        string
	}{
		{"blocked", 0, 0, 1, "joint 1 does not come into its range"},
		{"blocked, and silent at last", 0, 2, 1, "joint 1 does not come into its range"},
		{"silent", 2, 2, 0, "joint 2 was silent"},
		{"silent and outside, and there at last", 1, 0, 1, "joint 1 was silent"},
		{"silent at last alone", 0, 2, 0, "joint 2 was silent"},
	} {
		r := newRig(func(c *Config) { c.Rescue = true })
		r.bus.outside = 1
		r.StartArming()
		r.ticks(t, 2)
		if !r.rescuing() {
			t.Fatal("no rescue")
		}
		r.bus.outside = 1
		var err error
		for n := 0; err == nil && n < 5000; n++ {
			last := r.rescue.left < 2*testPeriod
			r.bus.stale = tt.stale
			if last {
				r.bus.stale, r.bus.outside = tt.last, tt.outside
			}
			r.begin()
			err = r.rescueStep(r.now)
		}
		rttest.Ends(t, err, exit.Fault, tt.says)
	}
}
