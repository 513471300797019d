package queue

import (
	"math"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// One header with numbers that the robot never reaches makes at most two of the robot's observations late.
func TestSequence(t *testing.T) {
	const far = math.MaxUint64
	type step struct {
		epoch uint32
		seq   uint64
		fresh bool
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"in order", []step{{1, 1, true}, {1, 2, true}, {1, 9, true}, {1, 9, false}, {1, 8, false}, {1, 10, true}}},
		{"a robot that runs for long", []step{{1, 1 << 40, true}, {1, 1<<40 + 1, true}}},
		{"the last number, once", []step{{1, 5, true}, {1, far, false}, {1, 6, true}, {1, 7, true}}},
		{"the last number, again and again", []step{{1, 5, true}, {1, far, false}, {1, far, false}, {1, 6, true},
			{1, far, false}, {1, 7, true}}},
		{"the last number comes first", []step{{1, far, true}, {1, 1, false}, {1, 2, true}, {1, 3, true},
			{1, far, false}, {1, 4, true}}},
		{"a number within reach, once", []step{{1, 5, true}, {1, 5 + maxStep, true}, {1, 6, false}, {1, 7, true},
			{1, 8, true}}},
		{"an outage, and late ones from before it", []step{{1, 5, true}, {1, 305, true}, {1, 306, true}, {1, 6, false},
			{1, 7, false}, {1, 307, true}}},
		{"two overtaken ones", []step{{1, 5, true}, {1, 8, true}, {1, 6, false}, {1, 7, false}, {1, 9, true}}},
		{"the last epoch", []step{{1, 5, true}, {math.MaxUint32, 1, true}, {1, 6, false}, {1, 7, true}, {1, 8, true}}},
		{"a robot without epochs that reconnects", []step{{1, 5, true}, {2, 6, true}, {1, 5, false}, {2, 7, true}}},
		{"a long outage", []step{{1, 5, true}, {1, 5 + maxStep, true}, {1, 6 + 2*maxStep, false},
			{1, 7 + 2*maxStep, true}}},
	} {
		var s sequence
		for i, st := range tt.steps {
			rttest.Want(t, s.take(key{st.epoch, st.seq}), st.fresh, "%s: step %d, (%d, %d): new", tt.name, i, st.epoch,
				st.seq)
		}
	}
}
