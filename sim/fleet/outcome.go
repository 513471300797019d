package fleet

import (
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/sim"
)

// agesMax is the oldest action that is counted by its age, in ticks.
const agesMax = 1024

// Side counts the legs towards targets on one side.
type Side struct{ Reached, Collided, TimedOut int }

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

	Right, Left Side // by the side of the target

	Actions     int // ticks with an action
	Starved     int // ticks without one, after the first
	Waited      int // ticks before the first one, beyond what an answer takes without faults
	Requests    int
	Inferences  int // requests that the server computed
	Superseded  int // requests that a newer one replaced in the server's mailbox
	Lost        int // requests that were lost, or whose answer was
	UpBytes     int // observations
	DownBytes   int // chunks
	Outcomes    map[chunk.Outcome]int
	MaxEstimate int // longest latency estimate in steps
	Switches    int // new plans that pass the post on another side than the plan before

	Idles      []int           // ticks of each stretch without an action, after the first action
	LegTicks   []int           // ticks of each leg that was reached
	Jumps      []float64       // degrees between the live row and the row that replaced it
	Seams      []float64       // degrees between a chunk's first action and the extrapolation of the last two
	Recoveries []time.Duration // from the first message lost to the next merge
	Again      []int           // ticks from a lost request to the next, less the estimate at the lost one
	// the same without the ticks on which an older answer had left more actions than the trigger
	// fires at
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

// Both returns the sum of the sides.
func (r *Outcome) Both() Side {
	return Side{
		Reached:  r.Right.Reached + r.Left.Reached,
		Collided: r.Right.Collided + r.Left.Collided,
		TimedOut: r.Right.TimedOut + r.Left.TimedOut,
	}
}

// Success returns the success on both sides together.
func (r *Outcome) Success() float64 { return r.Both().success() }

// Age returns the q-quantile of the executed actions' age in ticks.
func (r *Outcome) Age(q float64) int {
	seen := 0
	for ticks, n := range r.ages {
		if seen += n; n > 0 && float64(seen) >= q*float64(r.Actions) {
			return ticks
		}
	}
	return 0
}

// Quantile returns the nearest-rank q-quantile, zero without values.
func Quantile[T int | float64 | time.Duration](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}
