package sim

import "testing"

func TestTheTeacherReachesElevenTargetsIn20Seconds(t *testing.T) {
	const seeds = 20
	reached := 0
	for seed := range uint64(seeds) {
		w := NewWorld(seed, 1-2*int(seed%2))
		var e Teacher
		for range 20 * ticksPerSecond {
			goal := e.Goal(w.tip(), w.Target(), w.Post(), w.Q()[gripper])
			w.Step(goal[:])
		}
		r, c, o := w.Legs()
		if c != 0 || o != 0 {
			t.Errorf("seed %d: %d collided, %d timed out, want none", seed, c, o)
		}
		reached += r
	}
	// The same teacher in numpy, which chooses at random when both sides are equal, reaches 11.05
	// targets.
	if mean := float64(reached) / seeds; mean < 10.5 || mean > 11.6 {
		t.Errorf("the teacher reaches %.2f targets in 20 s, want about 11.05", mean)
	}
}
