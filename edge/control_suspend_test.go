package edge

import (
	"math"
	"testing"
	"time"

	"edgert/edge/event"
	"edgert/rt"
)

// wake is the tick after the machine has slept.
func (r *rig) wake(s *rt.Suspension) {
	r.index++
	now := r.time.Now()
	r.tick(rt.Tick{Index: r.index, Deadline: now, Woke: now, Suspended: s.Passed()})
	r.time.SleepUntil(now.Add(testPeriod))
}

// The clock of all ages stands still while the machine is suspended. No row of
// before runs after it, no answer to a question of before is taken, no picture of
// before is asked with; and the arm, which has slumped meanwhile, goes on from where
// it is.
func TestNothingFromBeforeASuspendRunsAfterIt(t *testing.T) {
	r := newRig(t)
	r.slope = 0.5
	r.serve(60, 3, 10)
	for before := r.session.key; r.session.key == before; {
		r.step(1)
	}
	asked, episode := r.session.key, r.session.episode
	if left := r.core.Schedule.View().Size; left < 5 || r.run.state != stateStreaming {
		t.Fatalf("%d actions left in state %v: not what this test is about", left, r.run.state)
	}
	slept := rt.NewSuspension(r.time)
	r.time.Suspend(3 * time.Hour)
	r.bus.at, r.bus.strayed = [testDOF]float32{-20, 20}, 3 // with other goals than they were given
	n := len(r.bus.writes)
	r.wake(slept)
	r.answerEpisode(asked, 40, episode)
	r.step(1)
	for _, goal := range r.bus.writes[n:] {
		if goal[0] != -20 || goal[1] != 20 {
			t.Fatalf("after the suspend it writes %v, want nothing but where the arm stands, [-20 20]", goal)
		}
	}
	if awake := rt.Instant(r.flags.resumedAt.Load()); awake == 0 || awake < r.time.Now().Add(-5*testPeriod) {
		t.Errorf("awake since %v, want the instant of waking: pictures from before it are not used", awake)
	}
	told := 0
	r.events.Drain(func(e event.Event) {
		if e.Code == event.Suspended {
			told++
		}
	})
	if r.stats.chunks.Load() == 0 || r.session.episode == episode || told != 1 {
		t.Errorf("episode %d, was %d; %d events; want another, and one", r.session.episode, episode, told)
	}
	r.step(5)
	if r.session.key == asked {
		t.Fatal("it does not ask again")
	}
	n = len(r.bus.writes)
	r.answerEpisode(r.session.key, 30, r.session.episode)
	r.step(4)
	if len(r.bus.writes) == n {
		t.Fatal("it does not go on")
	}
	last := [testDOF]float32{-20, 20}
	for _, goal := range r.bus.writes[n:] {
		for j := range goal {
			if math.Abs(float64(goal[j]-last[j])) > 3 {
				t.Errorf("it goes on from %v to %v, want steps of at most 3", last, goal)
			}
		}
		last = goal
	}
}
