package capacity

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/queue"
)

// robot is a simulated robot. It runs actions and requests chunks in virtual time.
type robot struct {
	step      time.Duration // duration of a step of its control loop
	chunk     time.Duration // duration of a chunk's actions
	execute   time.Duration // how long the robot runs a chunk before it requests the next
	roundTrip time.Duration
	delayMax  int // steps that may run while a chunk is under way; 0: any number

	seen    rt.Instant // capture of the observation under way
	arrives rt.Instant // arrival of that observation at the server; it may lie in the future
	ends    rt.Instant // end of the robot's actions
}

// Robot is one robot's demand.
type Robot struct {
	FPS       float64       // control steps per second
	Execute   int           // actions of a chunk that the robot runs before it requests the next
	RoundTrip time.Duration // round trip without the server's own time
}

// robots returns n robots, which take the fleet's values in turn.
func (o *Options) robots(n int) []Robot {
	list := make([]Robot, n)
	for i := range list {
		list[i] = Robot{o.FPS[i%len(o.FPS)], o.Execute[i%len(o.Execute)], o.RoundTrip[i%len(o.RoundTrip)]}
	}
	return list
}

// begin returns robots that begin at random times.
func (o *Options) begin(fleet []Robot) []robot {
	random := rand.New(rand.NewPCG(1, uint64(len(fleet))))
	list := make([]robot, len(fleet))
	for i, f := range fleet {
		step := time.Duration(float64(time.Second) / f.FPS)
		r := robot{
			step:      step,
			chunk:     time.Duration(o.Meta.ChunkSize) * step,
			execute:   time.Duration(f.Execute) * step,
			roundTrip: f.RoundTrip,
			delayMax:  delayMax(o.Meta, f.Execute),
		}
		r.seen = rt.Instant(random.Int64N(int64(r.execute) + 1))
		r.arrives = r.seen.Add(r.roundTrip / 2)
		r.ends = r.seen.Add(r.chunk - r.execute)
		list[i] = r
	}
	return list
}

// get hands the robot the chunk of its observation at the instant at. It returns for how long the robot had no actions,
// and how many steps it had run since it captured the observation.
func (r *robot) get(at rt.Instant) (starved time.Duration, steps int) {
	ran := min(at, r.ends).Sub(r.seen) // an arm without actions runs no step
	starved = max(0, at.Sub(r.ends))
	r.ends = at.Add(r.chunk - ran)
	steps = int(ran / r.step)
	r.seen = at.Add(max(0, r.execute-ran))
	r.arrives = r.seen.Add(r.roundTrip / 2)
	return starved, steps
}

// simulate simulates a fleet for the virtual time played. It returns the row for these robots, and as the result shared
// the largest number of robots that shared an inference.
func (o *Options) simulate(fleet []Robot, played time.Duration) (row Row, shared int) {
	scheduler, err := queue.New(o.Scheduler)
	if err != nil {
		panic(err) // New has checked the name
	}
	n := len(fleet)
	sizes, robots := o.sizes(), o.begin(fleet)
	var waiting []queue.Waiting
	var delays []float64
	var starved time.Duration
	late := false
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%04d", i) // ids that sort like the numbers
	}
	most := o.Took[len(o.Took)-1].Batch
	for now := rt.Instant(0); now < rt.Instant(played); {
		waiting = waiting[:0]
		next := rt.Instant(math.MaxInt64)
		for i := range robots {
			r := &robots[i]
			if r.arrives <= now {
				waiting = append(waiting, queue.Waiting{
					ID:       names[i],
					Robot:    i,
					Since:    r.arrives,
					Deadline: max(r.arrives, r.ends.Add(-r.roundTrip/2)),
				})
			}
			next = min(next, r.arrives)
		}
		if len(waiting) == 0 {
			now = next
			continue
		}
		rows := sizes.Choose(min(len(waiting), most))
		took := sizes.Took(sizes.Fit(rows))
		end := now.Add(took)
		scheduler.Order(waiting, rows, now, end, took)
		for _, w := range waiting[:rows] {
			r := &robots[w.Robot]
			at := end.Add(o.Own + r.roundTrip/2)
			delays = append(delays, at.Sub(r.seen).Seconds()*1e3)
			stood, steps := r.get(at)
			starved += stood
			row.Steps = max(row.Steps, steps)
			late = late || r.delayMax > 0 && steps > r.delayMax
		}
		now, shared = end, max(shared, rows)
	}
	slices.Sort(delays)
	row.Robots = n
	row.Load = float64(len(delays)) / (o.fastest().PerS * played.Seconds())
	row.StarvedMs = starved.Seconds() * 1e3
	if len(delays) > 0 {
		row.DelayP50, row.DelayMax = delays[len(delays)/2], delays[len(delays)-1]
	}
	row.OK = starved == 0 && row.Load <= loadMost && !late
	return row, shared
}

// fastest returns the size of batch that computes the most chunks per second.
func (o *Options) fastest() Size {
	return slices.MaxFunc(o.Took, func(a, b Size) int { return cmp.Compare(a.PerS, b.PerS) })
}

// median returns the median duration of some runs.
func median(run func() error) (time.Duration, error) {
	clock := rt.KernelClock()
	var took []time.Duration
	for begin := clock.Now(); len(took) < measured && clock.Now().Sub(begin) < measureLimit; {
		start := clock.Now()
		if err := run(); err != nil {
			return 0, err
		}
		took = append(took, clock.Now().Sub(start))
	}
	slices.Sort(took)
	return max(took[len(took)/2], 1), nil
}
