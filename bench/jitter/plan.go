package jitter

import (
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
)

// The subjects.
const (
	Cyclictest = "cyclictest"
	Loop       = "loop"
	Edge       = "edge"

	leRobotLoop = "lerobot" // LeRobot's loop, if it is installed; --subject cannot name it
)

// The forms of a slice: a subject apart from cyclictest, or with cyclictest beside it in the same
// seconds.
const (
	apart  = "apart"
	Beside = "beside"
)

// minSlice is the shortest slice with enough ticks for a percentile.
const minSlice = 500 * time.Millisecond

// kind is the subject of a slice.
type kind struct{ subject, form string }

// allKinds lists every kind, in the order of the report. LeRobot's loop never runs beside
// cyclictest: its own lateness makes its period longer than cyclictest's, so their phase would
// drift.
var allKinds = []kind{
	{Cyclictest, apart}, {Loop, apart}, {Edge, apart}, {leRobotLoop, apart}, {Loop, Beside}, {Edge, Beside},
}

func kindsOf(subjects []string, reference, lerobot bool) (all []kind) {
	if reference {
		all = append(all, kind{Cyclictest, apart})
	}
	for _, s := range subjects {
		all = append(all, kind{s, apart})
		if reference {
			all = append(all, kind{s, Beside})
		}
	}
	if lerobot {
		all = append(all, kind{leRobotLoop, apart})
	}
	return all
}

// plan divides the total into rounds. Each round has a slice of every kind, in another order than
// the round before, so that the machine's periodic work affects all kinds. The slices get shorter
// where the total is not enough for one round.
func plan(kinds []kind, total, slice time.Duration) (rounds [][]kind, length time.Duration, err error) {
	n := max(int(total/slice)/len(kinds), 1)
	length = min(slice, total/time.Duration(len(kinds)))
	if length < minSlice {
		return nil, 0, exit.Errorf(exit.Usage, "slices of %v are too short: want --duration %v or more (%d slices to "+
			"a round) and --slice %v or more",
			length, time.Duration(len(kinds))*minSlice, len(kinds), minSlice)
	}
	for i := range n {
		rounds = append(rounds, bench.Turned(kinds, i))
	}
	return rounds, length, nil
}
