package limit

import (
	"math"
	"testing"
)

func testLimiter() *Limiter {
	return &Limiter{Min: []float32{-10, 0}, Max: []float32{10, 100}, Step: []float32{3, 4}}
}

func TestLimiterApply(t *testing.T) {
	nan := float32(math.NaN())
	tests := []struct {
		name          string
		goal, action  [2]float32
		frozen        uint32
		want          [2]float32
		ranged, steps uint64
	}{
		{"inside both limits passes", [2]float32{0, 50}, [2]float32{2, 52}, 0, [2]float32{2, 52}, 0, 0},
		{"too fast moves one step", [2]float32{0, 50}, [2]float32{9, 40}, 0, [2]float32{3, 46}, 0, 2},
		{"exactly one step is not clipped", [2]float32{0, 50}, [2]float32{3, 54}, 0, [2]float32{3, 54}, 0, 0},
		{"out of range stops at the range", [2]float32{9, 99}, [2]float32{11, 101}, 0, [2]float32{10, 100}, 2, 0},
		{"frozen joint keeps its goal", [2]float32{0, 50}, [2]float32{1, 51}, 1, [2]float32{0, 51}, 0, 0},
		{"not a number keeps its goal", [2]float32{5, 50}, [2]float32{nan, 50}, 0, [2]float32{5, 50}, 1, 0},
		{"infinite keeps its goal", [2]float32{5, 50}, [2]float32{float32(math.Inf(1)), 50}, 0, [2]float32{5, 50}, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := testLimiter()
			goal := tt.goal
			l.Apply(goal[:], tt.action[:], nil, tt.frozen)
			if goal != tt.want || l.RangeClips != tt.ranged || l.StepClips != tt.steps {
				t.Errorf("apply(%v, %v) = %v clips %d %d, want %v clips %d %d", tt.goal, tt.action, goal, l.RangeClips, l.StepClips, tt.want, tt.ranged, tt.steps)
			}
		})
	}
}

// The prefix that conditions the policy must be what apply will really do.
func TestLimiterPreviewEqualsApply(t *testing.T) {
	rows := []float32{9, 50, 9, 50, -9, 200, -20, 0}
	ahead := append([]float32(nil), rows...)
	goal := []float32{0, 48}
	l := testLimiter()
	l.Preview(goal, ahead, 1)
	if l.RangeClips+l.StepClips != 0 {
		t.Errorf("preview counted %d clips, want 0", l.RangeClips+l.StepClips)
	}
	for i := 0; i < len(rows); i += 2 {
		l.Apply(goal, rows[i:i+2], nil, 0)
		if goal[0] != ahead[i] || goal[1] != ahead[i+1] {
			t.Errorf("row %d: preview %v, apply %v", i/2, ahead[i:i+2], goal)
		}
	}
}

func TestLimiterNoAlloc(t *testing.T) {
	l := testLimiter()
	goal, rows := []float32{0, 0}, make([]float32, 40)
	if n := testing.AllocsPerRun(100, func() { l.Apply(goal, rows[:2], nil, 0); l.Preview(goal, rows, 1) }); n != 0 {
		t.Errorf("limiter allocates %v times, want 0", n)
	}
}
