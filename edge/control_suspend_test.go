package edge

import (
	"math"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/rt"
)

// wake runs the first tick after a suspension of the machine.
func (r *rig) wake(s *rt.Suspension) {
	r.index++
	now := r.Now()
	r.tick(rt.Tick{Index: r.index, Deadline: now, Woke: now, Suspended: s.Passed()})
	r.SleepUntil(now.Add(testPeriod))
}

// Goal: the clock of all ages stops while the machine is suspended. After a suspension no row from
// before it runs, no answer to an earlier request is merged, and no earlier picture is sent. The
// arm, which has sagged meanwhile, continues from its measured position.
func TestNothingFromBeforeASuspendRunsAfterIt(t *testing.T) {
	r := newRig(t)
	r.slope = 0.5
	r.serve(60, 3, 10)
	r.request()
	asked, episode := r.session.key, r.session.episode
	if left := r.view().Size; left < 5 || r.run.state != stateStreaming {
		t.Fatalf("%d actions left in state %v: not what this test is about", left, r.run.state)
	}
	slept := rt.NewSuspension(r.Clock)
	r.Suspend(3 * time.Hour)
	r.bus.at, r.bus.strayed = [testDOF]float32{-20, 20}, 3 // the motors hold other goals than those that they got last
	n := r.writes()
	r.wake(slept)
	r.answerEpisode(asked, 40, episode)
	r.step(1)
	for _, goal := range r.bus.writes[n:] {
		if goal[0] != -20 || goal[1] != 20 {
			t.Fatalf("after the suspend it writes %v, want nothing but where the arm stands, [-20 20]", goal)
		}
	}
	if awake := rt.Instant(r.out.ResumedAt.Load()); awake == 0 || awake < r.Now().Add(-5*testPeriod) {
		t.Errorf("awake since %v, want the instant of waking: pictures from before it are not used", awake)
	}
	told := len(r.told(event.Suspended))
	if r.chunks() == 0 || r.session.episode == episode || told != 1 {
		t.Errorf("episode %d, was %d; %d events; want another, and one", r.session.episode, episode, told)
	}
	r.step(5)
	if r.session.key == asked {
		t.Fatal("it does not ask again")
	}
	n = r.writes()
	r.answerEpisode(r.session.key, 30, r.session.episode)
	r.step(4)
	if r.writes() == n {
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
