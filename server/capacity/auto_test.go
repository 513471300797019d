package capacity

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/batch"
)

// trial tests an Auto of an ACT-like policy with inferences of a given duration, and counts its
// simulations.
type trial struct {
	*Auto
	sizes *batch.Sizes
	here  []Robot
	asked int // number of calls of the method robots
	fed   int
	clock *rttest.Clock
	plays time.Duration // how long each simulation takes
}

func newTrial(took time.Duration) *trial {
	s := &trial{sizes: batch.NewSizes([]int{1}), clock: rttest.NewClock(1)}
	s.Auto = NewAuto(&policy.Meta{ChunkSize: 50, FPS: 30, RTC: "trained", RTCMaxDelay: 10}, "runway", s.sizes, s.clock)
	s.infer(took)
	s.fed = s.Begin()
	return s
}

// infer makes the Auto learn that an inference took this long.
func (s *trial) infer(took time.Duration) {
	for range 100 {
		s.sizes.Learn(1, took)
	}
}

func (s *trial) robots() []Robot {
	s.asked++
	s.clock.Advance(s.plays)
	return append([]Robot(nil), s.here...)
}

func (s *trial) refuse(fps float64, change uint64) string {
	return s.Refuse(s.Robot(fps, 0), change, s.robots)
}

// fill admits robots until one is refused.
func (s *trial) fill() {
	for len(s.here) < mostRobots && s.refuse(0, uint64(len(s.here))) == "" {
		s.here = append(s.here, s.Robot(0, 0))
	}
}

// Auto admits as many robots as Begin returned, and Measure then returns the same number. A refusal names the duration
// of an inference.
func TestAsManyAsAreFed(t *testing.T) {
	s := newTrial(20 * time.Millisecond)
	s.fill()
	if len(s.here) < 2 || len(s.here) != s.fed {
		t.Errorf("%d robots are in, Begin said %d", len(s.here), s.fed)
	}
	rttest.Contains(t, s.refuse(0, uint64(len(s.here))), "20.0 ms here")
	for range 50 {
		if s.fed = s.Measure(uint64(s.asked), uint64(len(s.here)), s.fed, s.robots); s.fed != len(s.here) {
			t.Fatalf("with %d robots there is room for %d", len(s.here), s.fed)
		}
	}
}

// A robot that tries again after a refusal does not start a simulation at each try. A refusal stays
// valid for verdictTime, as long as the sessions are the same, and only for robots with the same or
// a lower rate.
func TestARefusalStandsForAMoment(t *testing.T) {
	s := newTrial(20 * time.Millisecond)
	s.fill()
	change := uint64(len(s.here))
	for _, tt := range []struct {
		name   string
		after  time.Duration
		change uint64
		fps    float64
		asked  bool
	}{
		{"at once", 0, change, 0, false},
		{"soon", verdictTime / 2, change, 0, false},
		{"a slower robot", 0, change, 15, false},
		{"a faster robot", 0, change, 120, true},
		{"the faster robot again", 0, change, 60, false},
		{"the usual again", 0, change, 0, false},
		{"other sessions", 0, change + 1, 0, true},
		{"later", verdictTime, change + 1, 0, true},
	} {
		s.clock.Advance(tt.after)
		before := s.asked
		if why := s.refuse(tt.fps, tt.change); why == "" {
			t.Errorf("%s: the robot is let in", tt.name)
		}
		rttest.Want(t, s.asked != before, tt.asked, "%s: the gate was asked", tt.name)
	}
}

// A temporary slowness is forgotten after idleMeasures, and not earlier, even if no request shows that it is over.
func TestASlowSpellIsForgotten(t *testing.T) {
	s := newTrial(20 * time.Millisecond)
	usual := s.fed
	s.infer(time.Second)
	for second := range 200 {
		s.fed = s.Measure(1, 0, s.fed, s.robots)
		if second == idleMeasures-2 && s.fed >= usual {
			t.Errorf("after %d s of a slow spell there is room for %d", second, s.fed)
		}
	}
	rttest.Want(t, s.fed, usual, "sessions that are fed long after the spell")
}

// Measure calls the function robots only while the sessions or the durations change.
func TestNothingIsPlayedWhileNothingChanges(t *testing.T) {
	s := newTrial(20 * time.Millisecond)
	s.fill()
	measure := func(change uint64) { s.fed = s.Measure(uint64(s.asked), change, s.fed, s.robots) }
	for range 50 {
		measure(7)
	}
	before := s.asked
	measure(7)
	if s.asked != before || !s.settled {
		t.Errorf("robots were played again, settled %v", s.settled)
	}
	if measure(8); s.asked != before+1 {
		t.Errorf("%d times played after a change, want once", s.asked-before)
	}
}

// The simulations for a client that opens and closes in a loop take at most askingMost in a burst, and then
// 1/askingShare of the time. Other clients get an answer meanwhile, and soon a session.
func TestWhoOpensAndLeavesTakesNoCore(t *testing.T) {
	s := newTrial(20 * time.Millisecond)
	s.plays = 10 * time.Millisecond
	const minute = time.Minute
	begin, refused := s.clock.Now(), 0
	// each round, the client has opened a session and closed it
	for change := uint64(0); s.clock.Now().Sub(begin) < minute; change++ {
		if why := s.refuse(0, change); why != "" {
			refused++
			rttest.Contains(t, why, "too many robots open and leave")
			s.clock.Advance(time.Millisecond)
		}
	}
	spent, most := time.Duration(s.asked)*s.plays, askingMost+minute/askingShare
	if spent > most+s.plays || spent < most*9/10 || refused == 0 {
		t.Errorf("robots were played for %v of %v, %d refused, want about %v", spent, minute, refused, most)
	}
	s.clock.Advance(time.Second)
	rttest.Want(t, s.refuse(0, 1<<40), "", "a second later")
}
