package follow

import (
	"fmt"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

const elbow = 2 // index of the joint; its motor has id 3

// misread makes the line change the next n positions in a motor's replies, with valid checksums.
func (a *simArm) misread(offset, n int, ids ...uint8) {
	a.t.Helper()
	a.inject(servosim.Fault{Kind: "misread", IDs: ids, Offset: offset, Count: n})
}

func (a *simArm) mute(on bool, ids ...uint8) {
	for _, id := range ids {
		a.bus.Mute(id, on)
	}
}

// travelled runs ticks for the duration d and returns the largest travel of a shaft.
func (a *simArm) travelled(d time.Duration) (most int) {
	a.t.Helper()
	before := a.bus.States()
	end := time.Now().Add(d)
	a.until("a while", func() bool {
		for i, s := range a.bus.States() {
			most = max(most, s.Position-before[i].Position, before[i].Position-s.Position)
		}
		return time.Now().After(end)
	})
	return most
}

var everyMotor = []uint8{1, 2, 3, 4, 5, 6}

// Goal: when the first replies after a silence have wrong positions with valid checksums, nothing
// moves.
func TestAWrongPositionAfterASilence(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	silences := []struct {
		name string
		ids  []uint8
		for_ time.Duration
	}{{"elbow", []uint8{3}, 150 * time.Millisecond}, {"all", everyMotor, 300 * time.Millisecond},
		{"one reply", []uint8{3}, 15 * time.Millisecond}}
	wrongs := []struct {
		name    string
		offsets []int // errors of the first positions after the silence; 0: correct
	}{
		{"first", []int{885}}, {"first, the other way", []int{-600}}, {"first, near", []int{150}},
		{"second", []int{0, 885}}, {"both, different", []int{885, -600}}, {"three, different", []int{885, -600, 300}},
	}
	for _, silence := range silences {
		t.Run(silence.name, func(t *testing.T) {
			t.Parallel()
			a := drivenArm(t)
			for _, wrong := range wrongs {
				a.mute(true, silence.ids...)
				a.during(silence.for_)
				for i, offset := range wrong.offsets {
					if i > 0 {
						a.mute(false, silence.ids...)
						a.until("the reply before", a.answered())
					}
					if offset != 0 {
						a.misread(offset, 1, silence.ids...)
					}
				}
				a.mute(false, silence.ids...)
				if most := a.travelled(300 * time.Millisecond); most > 4 {
					t.Errorf("%s: a shaft moved %d counts, want none to move", wrong.name, most)
				}
				a.until("driven", func() bool { return !a.silent() && a.frozen() == 0 && a.may[elbow] == mayGoal })
				if a.Phase != Armed || a.NeedsResume() {
					t.Errorf("%s: phase %v, waits %v", wrong.name, a.Phase, a.NeedsResume())
				}
			}
			if doubted := a.arm.Stats().Doubted; doubted < uint64(len(wrongs)/2) {
				t.Errorf("%d positions doubted: the wrong ones were not seen", doubted)
			}
			a.want[elbow] = -20
			a.until("driven again", func() bool { return a.Place[elbow] < -15 })
			a.clean()
		})
	}
}

// answered returns a condition that holds as soon as all joints have been read again.
func (a *simArm) answered() func() bool {
	n := a.arm.Stats().Cycles
	return func() bool { return a.arm.Stats().Cycles > n }
}

// Goal: a position that stays wrong looks like a joint that has moved: the goal moves at the
// velocity limit, and never jumps.
func TestAPositionThatStaysWrong(t *testing.T) {
	t.Parallel()
	for _, offset := range []int{885, -885} {
		t.Run(fmt.Sprint(offset), func(t *testing.T) {
			t.Parallel()
			a := drivenArm(t)
			a.mute(true, 3)
			a.during(150 * time.Millisecond)
			a.misread(offset, 0, 3)
			a.mute(false, 3)
			last, most := a.bus.States()[elbow].Position, 0
			end := time.Now().Add(500 * time.Millisecond)
			a.until("a while", func() bool {
				at := a.bus.States()[elbow].Position
				most, last = max(most, at-last, last-at), at
				return time.Now().After(end)
			})
			if limit := int(250*simPeriod.Seconds()*4095/360) + 1; most > 2*limit {
				t.Errorf("%d counts in a tick, at most %d", most, limit)
			}
			a.clean()
		})
	}
}

// Goal: a position that jumps while its motor answers is reported.
func TestAnEncoderThatSlips(t *testing.T) {
	rttest.RealTime(t) // in 0.1 s between two late readings the joint could have moved that far
	t.Parallel()
	a := drivenArm(t)
	jumps(a.events)
	a.inject(servosim.Fault{Kind: "encoder", IDs: []uint8{3}, Offset: 600, Silent: true})
	var told []event.Event
	a.until("the jump is reported", func() bool { told = jumps(a.events); return len(told) > 0 })
	if from, to := event.WayOf(told[0].B); told[0].A != 1<<elbow || to-from < 40 || to-from > 65 {
		t.Errorf("joint %b from %v to %v, want the elbow by 53 degrees", told[0].A, from, to)
	}
}

// Goal: a single wrong position during a motion or a rest is ignored: it moves no joint and does not end the run.
func TestAWrongPositionOnTheWay(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	a := drivenArm(t)
	for n := range 12 {
		for j := range a.want[:5] {
			a.want[j] = float32(20 * (1 - 2*(n%2)))
		}
		a.during(60 * time.Millisecond)
		a.misread([]int{1200, -700, 400}[n%3], 1, uint8(1+n%5))
		end := time.Now().Add(100 * time.Millisecond)
		a.until("a while", func() bool {
			for i, s := range a.bus.States()[:5] {
				if d := float64(a.Place[i]) - float64(s.Position-2050)*360/4095; d > 20 || d < -20 {
					t.Errorf("motor %d is at %d and counts as at %.1f degrees", s.ID, s.Position, a.Place[i])
				}
			}
			return time.Now().After(end)
		})
	}
	if a.arm.Stats().Doubted < 4 || a.Phase != Armed || a.NeedsResume() {
		t.Errorf("%d positions doubted, phase %v, waits %v", a.arm.Stats().Doubted, a.Phase, a.NeedsResume())
	}
	a.clean()
}

// Goal: a wrong position in any tick of arming, on servos that switch torque on when they get a goal, moves nothing.
func TestAWrongPositionWhileArming(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	for phase := range 8 {
		for _, goalTakes := range []bool{true, false} {
			t.Run(fmt.Sprintf("tick %d, a goal takes torque %v", phase, goalTakes), func(t *testing.T) {
				t.Parallel()
				a := newSimArm(t, servosim.Config{GoalLeavesTorque: !goalTakes}, nil)
				a.begins = false
				a.during(60 * time.Millisecond)
				copy(a.want, a.Place)
				a.begins = true
				for range phase {
					rttest.Do(t, a.step())
				}
				a.misread(-683, 1, 3)
				before := a.bus.States()
				a.until("armed", func() bool { return a.Phase == Armed })
				a.during(200 * time.Millisecond)
				for i, s := range a.bus.States() {
					if d := s.Position - before[i].Position; d > 3 || d < -3 || !s.Torque {
						t.Errorf("motor %d moved %d counts, torque %v", s.ID, d, s.Torque)
					}
				}
				a.clean()
			})
		}
	}
}

// Goal: when the first positions after a replug are wrong, the arm is armed at its true place.
func TestAWrongPositionAfterAReplug(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	for n := 1; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			a := drivenArm(t)
			a.unplug()
			a.misread(700, n, 3)
			a.replug()
			before := a.bus.States()[elbow].Position
			a.armedAgain()
			a.during(200 * time.Millisecond)
			if d := a.bus.States()[elbow].Position - before; d > 4 || d < -4 {
				t.Errorf("%d wrong positions: the elbow moved %d counts", n, d)
			}
			a.clean()
		})
	}
}

// Goal: after a suspension the follower continues from the goals that the motors have kept.
func TestAWrongPositionAfterASuspension(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	a := drivenArm(t)
	for _, offset := range []int{885, -700} {
		a.misread(offset, 1, 3)
		a.tick.Suspended = time.Hour
		rttest.Do(t, a.step())
		a.tick.Suspended = 0
		if most := a.travelled(300 * time.Millisecond); most > 4 {
			t.Errorf("a shaft moved %d counts, want none to move", most)
		}
	}
	a.clean()
}
