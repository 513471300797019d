package fleet

import (
	"fmt"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/sim"
)

// Result is the sum of the outcomes of all worlds of a Run.
type Result struct {
	Outcome
	Ticks int // ticks in each episode
	Delay int
}

// Run plays worlds of that many seeds in each direction, one after the other, and returns the sum of their
// outcomes. It fails when the config is impossible or the policy fails.
func Run(cfg Config, seeds int) (Result, error) {
	r, err := Open(cfg)
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	cfg = r.cfg
	result := Result{Ticks: cfg.Ticks, Delay: cfg.Delay}
	for i := range seeds {
		for _, direction := range []int{1, -1} {
			outcome, err := r.Play(DefaultSeed+uint64(i), direction)
			if err != nil {
				return result, err
			}
			result.Outcome.add(&outcome)
		}
	}
	return result, nil
}

// add adds another outcome to r.
func (r *Outcome) add(o *Outcome) {
	r.Runs += o.Runs
	r.Right.add(o.Right)
	r.Left.add(o.Left)
	for _, n := range []struct{ to, from *int }{
		{&r.Actions, &o.Actions}, {&r.Starved, &o.Starved}, {&r.Waited, &o.Waited}, {&r.Requests, &o.Requests},
		{&r.Inferences, &o.Inferences},
		{&r.Superseded, &o.Superseded}, {&r.Lost, &o.Lost}, {&r.UpBytes, &o.UpBytes}, {&r.DownBytes, &o.DownBytes},
		{&r.Switches, &o.Switches},
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

// per20s scales a sum to one robot and 20 seconds.
func (r *Result) per20s(n int) float64 {
	return float64(n) * defaultTicks / float64(r.Ticks) / float64(r.Runs)
}

// LegsPer20s returns the mean number of legs that a robot ends in 20 seconds.
func (r *Result) LegsPer20s() float64 { return r.per20s(r.Both().legs()) }

// StarvedPer20s returns the mean number of starved ticks of a robot in 20 seconds.
func (r *Result) StarvedPer20s() float64 { return r.per20s(r.Starved) }

// RequestsPer20s returns the mean number of requests of a robot in 20 seconds.
func (r *Result) RequestsPer20s() float64 { return r.per20s(r.Requests) }

// LegSeconds returns the q-quantile of the duration of reached legs in seconds; 0 when no leg was
// reached.
func (r *Outcome) LegSeconds(q float64) float64 { return float64(Quantile(r.LegTicks, q)) / FPS }

// Jump returns the q-quantile of the jumps of pan or elbow at merges, in degrees.
func (r *Outcome) Jump(q float64) float64 { return Quantile(r.Jumps, q) }

// String returns one line of a report.
func (r *Result) String() string {
	b := r.Both()
	return fmt.Sprintf("delay %d: success/leg %.4f (right %.4f left %.4f) of %d legs, collided %d, timeouts %d | "+
		"legs/20s %.2f, s/leg median %.2f p95 %.2f"+
		" | jump median %.2f p95 %.2f deg, starved/20s %.1f, requests/20s %.1f, age p99 %d ticks, estimate at most %d",
		r.Delay, b.success(), r.Right.success(), r.Left.success(), b.legs(), b.Collided, b.TimedOut, r.LegsPer20s(),
		r.LegSeconds(.5), r.LegSeconds(.95),
		r.Jump(.5), r.Jump(.95), r.StarvedPer20s(), r.RequestsPer20s(), r.Age(.99), r.MaxEstimate)
}

// still is a policy that answers every observation with the observation's state, so that the arm
// never moves.
type still struct {
	chunk [stillHorizon * sim.DOF]float32
}

const stillHorizon = 50

// Horizon returns the demo policy's horizon.
func (*still) Horizon() int { return stillHorizon }

// DOF returns the arm's number of joints.
func (*still) DOF() int { return sim.DOF }

// Picture returns the simulator's own size.
func (*still) Picture() (width, height int) { return sim.NativeWidth, sim.NativeHeight }

// PrefixEnd returns 0, which means no limit.
func (*still) PrefixEnd() int { return 0 }

// Answer returns a chunk in which every row is the state.
func (s *still) Answer(o *Observation) (Answer, error) {
	for i := range stillHorizon {
		copy(s.chunk[i*sim.DOF:], o.State[:])
	}
	return Answer{Robot: s.chunk[:]}, nil
}

// Forget does nothing.
func (*still) Forget() {}
