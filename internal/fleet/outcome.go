package fleet

import (
	"fmt"
	"slices"
	"time"

	"edgert/chunk"
	"edgert/sim"
)

// agesMax is the oldest action that is told apart, in ticks.
const agesMax = 1024

// Side counts the legs towards targets on one side.
type Side struct{ Reached, Collided, TimedOut int }

// Legs is how many ended.
func (s Side) Legs() int { return s.Reached + s.Collided + s.TimedOut }

// Success is the share of ended legs that reached their target without touching
// the post; 0 when no leg ended.
func (s Side) Success() float64 {
	if s.Legs() == 0 {
		return 0
	}
	return float64(s.Reached) / float64(s.Legs())
}

// Outcome is what came of one world, or of several added up.
type Outcome struct {
	Seed      uint64
	Direction int
	Runs      int

	Right, Left Side // by where the target lay

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

	LegTicks   []int           // of reached legs
	Jumps      []float64       // degrees between the live row and the one that replaced it
	Seams      []float64       // degrees between a chunk's first action and where the last two led
	Recoveries []time.Duration // from the first message lost to the next merge
	Again      []int           // ticks from a lost request to the next, less the estimate at the lost one
	AgainDue   []int           // the same without the ticks on which an older answer had left more actions than the trigger fires at

	ages [agesMax + 1]int
}

// Result sums up all worlds of a Run.
type Result struct {
	Outcome
	Ticks int // of each
	Delay int
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

// Add adds another outcome to r.
func (r *Outcome) Add(o *Outcome) {
	r.Runs += o.Runs
	for _, s := range []struct{ to, from *Side }{{&r.Right, &o.Right}, {&r.Left, &o.Left}} {
		s.to.Reached += s.from.Reached
		s.to.Collided += s.from.Collided
		s.to.TimedOut += s.from.TimedOut
	}
	for _, n := range []struct{ to, from *int }{
		{&r.Actions, &o.Actions}, {&r.Starved, &o.Starved}, {&r.Waited, &o.Waited}, {&r.Requests, &o.Requests}, {&r.Inferences, &o.Inferences},
		{&r.Superseded, &o.Superseded}, {&r.Lost, &o.Lost}, {&r.UpBytes, &o.UpBytes}, {&r.DownBytes, &o.DownBytes}, {&r.Switches, &o.Switches},
	} {
		*n.to += *n.from
	}
	if r.Outcomes == nil {
		r.Outcomes = map[chunk.Outcome]int{}
	}
	for k, n := range o.Outcomes {
		r.Outcomes[k] += n
	}
	r.MaxEstimate = max(r.MaxEstimate, o.MaxEstimate)
	r.LegTicks = append(r.LegTicks, o.LegTicks...)
	r.Jumps = append(r.Jumps, o.Jumps...)
	r.Seams = append(r.Seams, o.Seams...)
	r.Recoveries = append(r.Recoveries, o.Recoveries...)
	r.Again = append(r.Again, o.Again...)
	r.AgainDue = append(r.AgainDue, o.AgainDue...)
	for i, n := range o.ages {
		r.ages[i] += n
	}
}

func (r *Result) add(o *Outcome) { r.Outcome.Add(o) }

// Both sums the sides.
func (r *Outcome) Both() Side {
	return Side{
		Reached:  r.Right.Reached + r.Left.Reached,
		Collided: r.Right.Collided + r.Left.Collided,
		TimedOut: r.Right.TimedOut + r.Left.TimedOut,
	}
}

// Success is that of both sides.
func (r *Outcome) Success() float64 { return r.Both().Success() }

// per20s scales a sum to one robot and 20 seconds.
func (r *Result) per20s(n int) float64 {
	return float64(n) * DefaultTicks / float64(r.Ticks) / float64(r.Runs)
}

// LegsPer20s returns the legs that a robot ends in 20 seconds.
func (r *Result) LegsPer20s() float64 { return r.per20s(r.Both().Legs()) }

// StarvedPer20s returns the ticks in 20 seconds on which a robot had no action.
func (r *Result) StarvedPer20s() float64 { return r.per20s(r.Starved) }

// RequestsPer20s returns the requests of a robot in 20 seconds.
func (r *Result) RequestsPer20s() float64 { return r.per20s(r.Requests) }

// LegSeconds returns the q-quantile of a reached leg's time in seconds, 0
// without one.
func (r *Outcome) LegSeconds(q float64) float64 { return float64(Quantile(r.LegTicks, q)) / FPS }

// Jump returns the q-quantile of what a merge moves pan or elbow by, in degrees.
func (r *Outcome) Jump(q float64) float64 { return Quantile(r.Jumps, q) }

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

// String is one line of a report.
func (r *Result) String() string {
	b := r.Both()
	return fmt.Sprintf("delay %d: success/leg %.4f (right %.4f left %.4f) of %d legs, collided %d, timeouts %d | legs/20s %.2f, s/leg median %.2f p95 %.2f"+
		" | jump median %.2f p95 %.2f deg, starved/20s %.1f, requests/20s %.1f, age p99 %d ticks, estimate at most %d",
		r.Delay, b.Success(), r.Right.Success(), r.Left.Success(), b.Legs(), b.Collided, b.TimedOut, r.LegsPer20s(), r.LegSeconds(.5), r.LegSeconds(.95),
		r.Jump(.5), r.Jump(.95), r.StarvedPer20s(), r.RequestsPer20s(), r.Age(.99), r.MaxEstimate)
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
