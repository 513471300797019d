package follow

import (
	"math"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func testGate() *Gate {
	return &Gate{Min: []float32{-10, 0}, Max: []float32{10, 100}, Step: []float32{3, 4}}
}

func TestGatePass(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tt := range []struct {
		name          string
		goal, action  float32
		want          float32
		ranged, steps uint64
	}{
		{"inside both limits passes", 0, 2, 2, 0, 0},
		{"too fast moves one step", 0, 9, 3, 0, 1},
		{"too fast the other way moves one step", 0, -9, -3, 0, 1},
		{"exactly one step is not clipped", 0, 3, 3, 0, 0},
		{"out of range stops at the range", 9, 11, 10, 1, 0},
		{"not a number keeps the goal", 5, nan, 5, 1, 0},
		{"infinite keeps the goal", 5, inf, 5, 1, 0},
		{"outside the range stays there", 20, 30, 20, 1, 0},
		{"outside the range comes in a step at a time", 20, 5, 17, 0, 1},
		{"below the range comes in a step at a time", -20, 5, -17, 0, 1},
		{"never further out", -20, -25, -20, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := testGate()
			if got := g.Pass(0, tt.goal, tt.action, tt.goal); got != tt.want || g.RangeClips != tt.ranged ||
				g.StepClips != tt.steps {
				t.Errorf("Pass(%v, %v) = %v clips %d %d, want %v clips %d %d", tt.goal, tt.action, got, g.RangeClips,
					g.StepClips, tt.want, tt.ranged, tt.steps)
			}
		})
	}
}

// Goal: a goal is ahead of a blocked joint by at most the joint's lead, and does not jump when the joint is pushed
// away.
func TestGateLead(t *testing.T) {
	g := testGate()
	g.Lead = []float32{5, 5}
	goal := float32(0)
	for range 10 {
		goal = g.Pass(0, goal, 10, 0)
	}
	rttest.Want(t, goal, 5, "the goal of a blocked joint went to")
	rttest.Want(t, g.Pass(0, goal, 10, -8), 2, "the joint was pushed to -8: goal (one step back, 2)")
}

// Goal: preview returns the goals of Pass, since the policy plans its next chunk to continue them.
func TestPreviewEqualsPass(t *testing.T) {
	rows := []float32{9, 50, 9, 50, -9, 200, -20, 0}
	ahead := append([]float32(nil), rows...)
	goal := []float32{0, 48}
	g := testGate()
	g.preview(goal, ahead, 1)
	rttest.Want(t, g.RangeClips+g.StepClips, 0, "Preview counted clips")
	for i := 0; i < len(rows); i += 2 {
		for j := range goal {
			goal[j] = g.Pass(j, goal[j], rows[i+j], goal[j])
		}
		if goal[0] != ahead[i] || goal[1] != ahead[i+1] {
			t.Errorf("row %d: Preview %v, Pass %v", i/2, ahead[i:i+2], goal)
		}
	}
}

// Property: for every action and place the goal moves by at most one step, stays finite, and is never further outside
// the range than before.
func FuzzGate(f *testing.F) {
	f.Add(float32(0), float32(9), float32(0))
	f.Add(float32(20), float32(-9), float32(3))
	f.Fuzz(func(t *testing.T, goal, action, place float32) {
		if notFinite(goal) || math.Abs(float64(goal)) > 1e4 || notFinite(place) || math.Abs(float64(place)) > 1e4 {
			return
		}
		g := testGate()
		g.Lead = []float32{50, 50}
		next := g.Pass(0, goal, action, place)
		if notFinite(next) || math.Abs(float64(next-goal)) > float64(g.Step[0])+2*slack {
			t.Errorf("Pass(%v, %v, %v) = %v, more than %v away", goal, action, place, next, g.Step[0])
		}
		if next > max(g.Max[0], goal) || next < min(g.Min[0], goal) {
			t.Errorf("Pass(%v, %v, %v) = %v, further out than before", goal, action, place, next)
		}
	})
}

func TestGateNoAlloc(t *testing.T) {
	g := testGate()
	rows := make([]float32, 40)
	goal := []float32{0, 0}
	rttest.NoAllocs(t, "the gate allocates %v times, want 0", 100, func() {
		g.preview(goal, rows, 2)
		g.Pass(0, 1, 2, 3)
	})
}
