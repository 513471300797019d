package fleet

import (
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/sim"
)

// agesMax is the largest age, in ticks, that is counted separately; an older action counts as that old.
const agesMax = 1024

// Side counts the legs towards targets on one side.
type Side struct{ Reached, Collided, TimedOut int }

func (s *Side) add(o Side) {
	s.Reached += o.Reached
	s.Collided += o.Collided
	s.TimedOut += o.TimedOut
}

// legs returns the number of ended legs.
func (s Side) legs() int { return s.Reached + s.Collided + s.TimedOut }

// success returns the share of ended legs that reached their target without touching the post; 0
// when no leg ended.
func (s Side) success() float64 {
	if s.legs() == 0 {
		return 0
	}
	return float64(s.Reached) / float64(s.legs())
}

// Outcome is the result of one world, or of several added up.
type Outcome struct {
	Seed      uint64
	Direction int
	Runs      int

	Right, Left Side // legs by the side of their target

	Actions     int // ticks with an action
	Starved     int // ticks without an action, after the first action
	Waited      int // ticks before the first action, minus the time of an answer without faults
	Requests    int
	Inferences  int // requests that the server computed
	Superseded  int // requests that a newer one replaced in the server's mailbox
	Lost        int // requests that were lost or whose answer was lost
	UpBytes     int // bytes of all observations
	DownBytes   int // bytes of all chunks
	Outcomes    map[chunk.Outcome]int
	MaxEstimate int // longest latency estimate, in steps
	Switches    int // plans that pass the post on another side than the plan before

	Idles    []int     // for each time without an action after the first action: its length in ticks
	LegTicks []int     // ticks of each leg that was reached
	Jumps    []float64 // for each merge: degrees between the next live row and the row that replaced it
	// for each chunk: degrees between its first action and the line through the last two goals
	Seams      []float64
	Recoveries []time.Duration // times from the first lost message to the next merge
	// for each lost request: ticks until the next request, minus the lost request's estimate
	Again []int
	// The same numbers without the ticks on which no request was due, because an older answer had
	// left enough actions.
	AgainDue []int

	ages [agesMax + 1]int
}

func (r *Outcome) leg(l sim.Leg) {
	side := &r.Right
	if l.Side < 0 {
		side = &r.Left
	}
	switch l.Outcome {
	case sim.Reached:
		side.Reached++
		r.LegTicks = append(r.LegTicks, l.Ticks)
	case sim.Collided:
		side.Collided++
	case sim.TimedOut:
		side.TimedOut++
	}
}

func (r *Outcome) age(ticks int) { r.ages[min(max(ticks, 0), agesMax)]++ }

// Both returns the sum of the two sides.
func (r *Outcome) Both() Side {
	sum := r.Right
	sum.add(r.Left)
	return sum
}

// Success returns the success of both sides together.
func (r *Outcome) Success() float64 { return r.Both().success() }

// Age returns the q-quantile of the ages of executed actions, in ticks.
func (r *Outcome) Age(q float64) int {
	seen := 0
	for ticks, n := range r.ages {
		if seen += n; n > 0 && float64(seen) >= q*float64(r.Actions) {
			return ticks
		}
	}
	return 0
}

// Quantile returns the nearest-rank q-quantile; zero when there are no values.
func Quantile[T int | float64 | time.Duration](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}
