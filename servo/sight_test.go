package servo

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

const sightPeriod = 20 * time.Millisecond

// A position is accepted when two successive readings agree within the joint's possible travel.
func TestSightOfAJoint(t *testing.T) {
	// The elbow may travel 500 degrees in a second, which is 113 counts in a tick, plus 16 for
	// noise.
	for _, tt := range []struct {
		name  string
		reads []int // raw positions; 0: the joint is silent
		want  []int // accepted raw position after each read; negative: the joint is stale in that tick
	}{
		{"it rests", []int{2003, 2004}, []int{2003, 2004}},
		{"it moves as fast as it can", []int{2130, 2258}, []int{2130, 2258}},
		{"one wrong reading", []int{2003, 2888, 2005}, []int{2003, -2003, 2005}},
		{"one wrong reading on the way", []int{2060, 900, 2180}, []int{2060, -2060, 2180}},
		{"two different wrong ones", []int{2003, 2888, 1400, 2004}, []int{2003, -2003, -2003, 2004}},
		{"it has moved", []int{2003, 2888, 2890, 2890}, []int{2003, -2003, 2890, 2890}},
		{"a turn off", []int{2003, 6099, 6099, 2004}, []int{2003, -2003, -2003, 2004}},
		{"wrong after a silence", []int{0, 0, 0, 0, 0, 0, 0, 2888, 2003},
			[]int{-2003, -2003, -2003, -2003, -2003, -2003, -2003, -2003, 2003}},
		{"moved in a silence", []int{0, 0, 0, 0, 0, 0, 0, 2888, 2900},
			[]int{-2003, -2003, -2003, -2003, -2003, -2003, -2003, -2003, 2900}},
		{"still after a silence", []int{0, 0, 0, 0, 0, 0, 0, 2010},
			[]int{-2003, -2003, -2003, -2003, -2003, -2003, -2003, 2010}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, l := armedLine(t)
			a.SetPeriod(sightPeriod)
			doubted := uint64(0)
			for i, raw := range tt.reads {
				l.Advance(sightPeriod)
				l.servos[3].mute = raw == 0
				if raw != 0 {
					l.servos[3].put(56, raw)
				}
				stale, want := l.read(a), tt.want[i]
				at := max(want, -want)
				rttest.Want(t, a.Jumped() != 0, tt.name == "it has moved" && i == 2, "jumped in reading %d, %d", i, raw)
				if want < 0 && raw != 0 {
					doubted++
				}
				if stale.Has(2) != (want < 0) || l.dst[2] != degrees(at) || a.raws[2] != at {
					t.Errorf("reading %d, %d: stale %06b, at %d, want %d", i, raw, stale, a.raws[2], want)
				}
			}
			rttest.Want(t, a.Stats().Doubted, doubted, "positions doubted")
		})
	}
}

// OpenArm repeats the read until two readings agree, because the arm would jump to a goal at a wrong position.
func TestSightAtOpening(t *testing.T) {
	l := sixMotors()
	n := 0
	l.tamper = onlyFor(3, func(r []byte) []byte {
		if len(r) == 8 && r[5] == 2003&0xFF && r[6] == 2003>>8 {
			if n++; n == 1 {
				r[6]--
				r[7]++ // the checksum fits
			}
		}
		return r
	})
	a := l.mustOpen(t)
	if a.raws[2] != 2003 || n < 2 {
		t.Errorf("at %d after %d readings, want 2003", a.raws[2], n)
	}
}

// Whichever tick of the arming reads a wrong position, the position does not become a goal.
func TestArmingAtAWrongPosition(t *testing.T) {
	for tick := range 16 {
		a, l := openLine(t)
		if tick%2 != 0 {
			a.SetPeriod(sightPeriod)
		}
		wrong := tick / 2
		armed := false
		for n := 0; !armed; n++ {
			if n > 30 {
				t.Fatalf("wrong in tick %d: not armed", wrong)
			}
			l.Advance(sightPeriod)
			l.servos[3].put(56, 2003)
			if n == wrong {
				l.servos[3].put(56, 1365)
			}
			l.read(a)
			armed = rttest.Must(a.ArmStep(l.deadline(), a.Joints()))(t)
			if goal := l.servos[3].word(42); l.servos[3].mem[40] != 0 && goal != 2003 || goal == 1365 {
				t.Errorf("wrong in tick %d: goal %d in tick %d", wrong, goal, n)
			}
		}
	}
}

// One damaged reading of a goal register after a silence is not reported as another goal.
func TestAGoalRegisterIsReadTwice(t *testing.T) {
	for _, reads := range []int{1, 2} {
		a, l := openLine(t)
		rttest.Do(t, l.arming(a, func() {}))
		a.Recheck()
		found := robot.Joints(0)
		for n := range 10 {
			goal := 2003
			if n < reads {
				goal = 2700
			}
			l.servos[3].put(42, goal)
			l.Advance(sightPeriod)
			l.read(a)
			found |= a.GoalMismatch()
		}
		if (found != 0) != (reads > 1) || a.Unchecked() != 0 {
			t.Errorf("read wrong %d times: other goals %06b, unchecked %06b", reads, found, a.Unchecked())
		}
	}
}

// The direction in which a motor pushes is the sign of its load, reversed when the joint's unit counts in reverse.
func TestPushHasTheLoadsSign(t *testing.T) {
	const down = 1 << 10
	for load, want := range map[int]float32{300: 1, 300 | down: -1, 20: 0, 20 | down: 0} {
		for _, flip := range []bool{false, true} {
			a, l := openLine(t)
			a.joints[2].scale.flip = flip
			since := l.Now()
			if _, known := a.Push(2, since.Add(1)); known {
				t.Error("a load is known before it was read")
			}
			l.servos[3].put(60, load)
			for n := 0; a.health.readings[2].effortAt <= since; n++ {
				if n > 100 {
					t.Fatal("the load is never read")
				}
				a.Prioritize(1 << 2)
				l.Advance(sightPeriod)
				l.read(a)
			}
			got, known := a.Push(2, since)
			if flip {
				got = -got
			}
			if !known || got != want {
				t.Errorf("load %#x, flipped %v: %v turned back, known %v, want %v", load, flip, got, known, want)
			}
		}
	}
}
