package sim

import (
	"math"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestHoldingStillNeverScores(t *testing.T) {
	for seed := range uint64(50) {
		for _, direction := range []int{1, -1} {
			w := NewWorld(seed, direction)
			q := w.Q()
			for range 20 * ticksPerSecond {
				w.Step(q[:])
			}
			r, c, o := w.Legs()
			if r != 0 || c != 0 || o != 3 {
				t.Errorf("seed %d, %+d: Legs() = %d, %d, %d, want 0, 0, 3", seed, direction, r, c, o)
			}
		}
	}
}

func TestATargetNotReachedStaysOnItsSide(t *testing.T) {
	w := NewWorld(5, -1)
	q := w.Q()
	for range 5 * legTicksMax {
		w.Step(q[:])
	}
	if leg := w.LastLeg(); leg != (Leg{Side: -1, Outcome: TimedOut, Ticks: legTicksMax}) {
		t.Errorf("LastLeg() = %+v, want a timeout on the left after %d ticks", leg, legTicksMax)
	}
	if w.Target().X >= 0 {
		t.Errorf("target at %v, want the left side", w.Target())
	}
}

func TestATouchedPostSpoilsOneLegAndTheWorldGoesOn(t *testing.T) {
	w := NewWorld(1, 1)
	through := poseAt(w.Post(), 0)
	for range 60 {
		w.Step(through[:])
	}
	reachTarget(t, w)
	if r, c, _ := w.Legs(); r != 0 || c != 1 {
		t.Fatalf("after touching the post: reached %d, collided %d, want 0, 1", r, c)
	}
	if w.Target().X >= 0 {
		t.Errorf("target at %v, want the other side", w.Target())
	}
	var e Teacher
	for r, _, _ := w.Legs(); r == 0; r, _, _ = w.Legs() {
		if w.LegTicks() > legTicksMax-2 {
			t.Fatal("the next leg was not reached either")
		}
		goal := e.Goal(w.tip(), w.Target(), w.Post(), w.Q()[gripper])
		w.Step(goal[:])
	}
}

func TestTheTargetMustBeHeldForTenTicks(t *testing.T) {
	w := NewWorld(2, 1)
	there := poseAt(w.Target(), 0)
	first := w.Target()
	inside := 0
	for w.Target() == first {
		w.Step(there[:])
		if distance(w.tip(), first) < targetRadius {
			inside++
		}
	}
	rttest.Want(t, inside, dwellTicks, "ticks at the target until the leg's end")
}

func TestServosKeepTheirSpeedLimit(t *testing.T) {
	w := NewWorld(0, 1)
	q := w.Q()
	goal := [DOF]float64{q[0] + 100, q[1] - 100, q[2] + 1, q[3], q[4] - 2.5, 100}
	w.Step(goal[:])
	want := [DOF]float64{q[0] + 3, q[1] - 3, q[2] + 1, q[3], q[4] - 2.5, 4}
	rttest.Want(t, w.Q(), want, "after one tick q")
}

func TestResetIsANewWorld(t *testing.T) {
	w := NewWorld(3, 1)
	reachTarget(t, w)
	w.reset(9, -1)
	rttest.Want(t, *w, *NewWorld(9, -1), "Reset(9, -1)")
}

func TestWorldNoAlloc(t *testing.T) {
	w := NewWorld(0, 1)
	goal := make([]float64, DOF)
	small := make([]byte, NativeWidth*NativeHeight*3)
	large := make([]byte, 640*480*3)
	rttest.NoAllocs(t, "Step, Render and Reset allocate %v times, want 0", 50, func() {
		w.Step(goal)
		w.Render(small, NativeWidth, NativeHeight)
		w.Render(large, 640, 480)
		w.reset(1, -1)
	})
}

// Rules change how the arm moves and how the world judges, never the places. With the zero value
// the world is the demo world, to the last bit.
func TestRules(t *testing.T) {
	demo := NewWorld(5, 1)
	same := NewWorld(5, 1)
	narrow := NewWorld(5, 1)
	same.ResetUnder(Rules{}, 5, 1)
	narrow.ResetUnder(Narrow, 5, 1)
	if *same != *demo {
		t.Error("the zero rules give another world")
	}
	if narrow.Target() != demo.Target() || narrow.Post() != demo.Post() || narrow.Q() != demo.Q() {
		t.Error("other rules moved the places")
	}
	goal := demo.Q()
	goal[pan] += 90
	start := demo.Q()[pan]
	var demoPan, narrowPan []float64
	for range 4 {
		demo.Step(goal[:])
		narrow.Step(goal[:])
		demoPan, narrowPan = append(demoPan, demo.Q()[pan]-start), append(narrowPan, narrow.Q()[pan]-start)
	}
	for i, want := range []float64{3, 6, 9, 12} {
		if math.Abs(demoPan[i]-want) > 1e-9 {
			t.Errorf("demo: %v degrees after %d ticks, want %v", demoPan[i], i+1, want)
		}
	}
	for i, want := range []float64{0, 0, 6, 12} { // the servos are two ticks late and twice as fast
		if math.Abs(narrowPan[i]-want) > 1e-9 {
			t.Errorf("narrow: %v degrees after %d ticks, want %v", narrowPan[i], i+1, want)
		}
	}
	// The tip at 60 mm from the post's centre collides in the narrow world only.
	for _, tt := range []struct {
		rules Rules
		hit   bool
	}{{Rules{}, false}, {Narrow, true}} {
		w := new(World)
		w.ResetUnder(tt.rules, 5, 1)
		w.q = poseAt(Point{X: w.post.X, Y: w.post.Y + 0.060}, 0)
		hold := w.q
		for range maxLag {
			w.late[0] = hold
			w.late[1] = hold
			w.Step(hold[:])
		}
		rttest.Want(t, w.hit, tt.hit, "%+v: the post is touched at 60 mm", tt.rules)
	}
}

// Two stretched arms, each 0.56 m long: apart, towards each other, beside each other.
func TestGap(t *testing.T) {
	for _, tt := range []struct{ left, right, apart, want float64 }{
		{180, 0, 1, 1},
		{0, 180, 2, 2 - 2*0.56},
		{90, 90, 0.8, 0.8},
		{0, 90, 0.8, 0.24},
		{0, 180, 1, 0}, // the arms lie side by side on one line
	} {
		got := Gap([DOF]float64{pan: tt.left}, [DOF]float64{pan: tt.right}, tt.apart)
		if math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("Gap(pan %v, pan %v, %v) = %v, want %v", tt.left, tt.right, tt.apart, got, tt.want)
		}
	}
}
