// Package capacity computes how many robots one server feeds. It simulates robots of given rates and
// links in virtual time with this device's inference times (simulate.go) and the server's own
// schedulers and batches, and searches for the largest number of robots that never run out of
// actions.
package capacity

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/server/queue"
)

// Fleet describes the robots; if a list has several values, robots take them in turn. Its tags are flags of
// `lean-server plan`.
type Fleet struct {
	FPS       []float64       `help:"Control steps per second of the robots; default: the bundle's." placeholder:"HZ,…"`
	Execute   []int           `help:"Actions of a chunk that run before the next is requested; default: 0.4 of a chunk, as in edge-rt." placeholder:"N,…"`
	RoundTrip []time.Duration `default:"5ms,40ms" help:"From a robot to the server and back, without the server's time." placeholder:"TIME,…"`
	Own       time.Duration   `range:"0s..10s" default:"1ms" help:"Time of a request beside waits and inference: decoding, answering, jitter."`
}

// mostRobots bounds the search.
const mostRobots = 1000

const (
	// played is the simulated time.
	played = time.Minute
	// loadMost is the share of the device's capacity that a plan uses. The other part is kept for slower moments.
	loadMost = 0.95
	// executeShare is the share of a chunk that edge-rt runs before it requests the next.
	executeShare = 0.4
	// measured and measureLimit bound how often, and for how long, Measure runs each size of batch.
	measured, measureLimit = 15, 5 * time.Second
)

// Options are the inputs of a plan.
type Options struct {
	Fleet
	Meta      *policy.Meta
	Took      []Size
	Scheduler string
	Threads   int
}

// Size is a size of batch and the duration of its inferences.
type Size struct {
	Batch int     `json:"batch"`        // rows of an inference
	Ms    float64 `json:"ms"`           // ms, median time
	PerS  float64 `json:"chunks_per_s"` // 1/s, chunks
}

// Report is a plan.
type Report struct {
	Bundle    string  `json:"bundle"`      // folder of the bundle
	Device    string  `json:"device"`      // device of the policy
	Runtime   string  `json:"onnxruntime"` // version of ONNX Runtime
	Threads   int     `json:"threads"`     // threads of one inference
	Scheduler string  `json:"scheduler"`   // order of the robots
	ChunkSize int     `json:"chunk_size"`  // actions in a chunk
	DelayMax  int     `json:"delay_max"`   // steps that the policy can be conditioned for; 0: it is not conditioned
	Sizes     []Size  `json:"sizes"`
	Tries     []Row   `json:"tries"`
	Sessions  int     `json:"max_sessions"` // largest number of robots that are fed; 0: not even one
	MaxBatch  int     `json:"max_batch"`    // most robots in one inference, when max_sessions robots are fed
	Why       string  `json:"why"`          // why one robot more is not fed
	Limit     float64 `json:"played_s"`     // s, virtual time of each try
	// folder of a roll-out's new bundle (the sizes have the times of the slower model); absent: no roll-out
	Rollout string `json:"rollout,omitempty"`
}

// Row is the result for a number of robots.
type Row struct {
	Robots    int     `json:"robots"`     // simulated robots
	Load      float64 `json:"load"`       // ratio, requested chunks to the chunks that the device can compute
	DelayP50  float64 `json:"delay_p50"`  // ms, from observation to chunk, including the round trip
	DelayMax  float64 `json:"delay_max"`  // ms, the longest
	Steps     int     `json:"steps_max"`  // largest number of steps that ran meanwhile
	StarvedMs float64 `json:"starved_ms"` // ms, without actions, sum of all robots
	// every arm moved on, every chunk was in time, and the device has capacity left
	OK bool `json:"ok"`
}

const (
	// fpsMost and fpsLeast are the highest and lowest simulated rate of a robot, Hz. Below fpsLeast, the duration of a
	// chunk would overflow.
	fpsMost  = 1000
	fpsLeast = 0.001
)

// playable reports whether robots with hz control steps per second can be simulated.
func playable(hz float64) bool { return hz >= fpsLeast && hz <= fpsMost }

// Check refuses impossible values.
func (f *Fleet) Check(m *policy.Meta) error {
	for _, hz := range f.FPS {
		if !playable(hz) {
			return fmt.Errorf("--fps is %v, want %g to %d each", f.FPS, fpsLeast, fpsMost)
		}
	}
	for _, n := range f.Execute {
		if n < 1 || n >= m.ChunkSize {
			return fmt.Errorf("--execute is %v, want at least 1 and less than the %d actions of a chunk", f.Execute,
				m.ChunkSize)
		}
	}
	for _, d := range f.RoundTrip {
		if d < 0 || d > time.Minute {
			return fmt.Errorf("--round-trip is %v, want 0 to 1m each", f.RoundTrip)
		}
	}
	return nil
}

// delayMax returns how many steps a robot may run while its chunk is under way: as many as the
// policy can be conditioned for. It returns 0, which allows any number, for a policy that is not
// conditioned.
func delayMax(m *policy.Meta, execute int) int {
	switch {
	case m.Guided():
		return m.ChunkSize - execute
	case m.Trained():
		return m.RTCMaxDelay
	}
	return 0
}

// execute returns how many actions of a chunk edge-rt runs by default before it requests the next.
func execute(m *policy.Meta) int { return max(1, int(executeShare*float64(m.ChunkSize))) }

// New simulates more and more robots until some run out of actions, or get chunks too late for the policy to be
// conditioned; from there it halves the step, and finds the largest number of robots that are fed.
func New(o Options) (*Report, error) {
	if err := o.Check(o.Meta); err != nil {
		return nil, err
	}
	if _, err := queue.New(o.Scheduler); err != nil {
		return nil, err
	}
	if len(o.FPS) == 0 {
		o.FPS = []float64{o.Meta.FPS}
	}
	if len(o.Execute) == 0 {
		o.Execute = []int{execute(o.Meta)}
	}
	if len(o.RoundTrip) == 0 {
		o.RoundTrip = []time.Duration{0}
	}
	r := &Report{
		Threads:   o.Threads,
		Scheduler: o.Scheduler,
		ChunkSize: o.Meta.ChunkSize,
		Sizes:     o.Took,
		Limit:     played.Seconds(),
	}
	r.DelayMax = delayMax(o.Meta, slices.Max(o.Execute))
	largest := 1
	fits := func(n int) bool {
		row, used := o.simulate(o.robots(n), played)
		r.Tries = append(r.Tries, row)
		if row.OK {
			r.Sessions, largest = n, used
		} else {
			r.Why = why(row, r.DelayMax)
		}
		return row.OK
	}
	search(fits)
	r.MaxBatch = largest
	return r, nil
}

// search returns the largest number up to mostRobots for which fits returns true; 0 when there is
// no such number. It doubles the number until fits returns false, and then halves the step.
func search(fits func(n int) bool) int {
	n := 1
	for n <= mostRobots && fits(n) {
		n *= 2
	}
	low, high := n/2, min(n, mostRobots+1)
	for high-low > 1 {
		if middle := (low + high) / 2; fits(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

func why(row Row, delayMax int) string {
	if row.StarvedMs > 0 {
		return fmt.Sprintf("%d robots are without actions for %.0f ms each minute together", row.Robots, row.StarvedMs)
	}
	if row.Load > loadMost {
		return fmt.Sprintf("%d robots request %.0f %% of the chunks that the device can compute, and %.0f %% are "+
			"planned for: the rest is for slower moments", row.Robots, 100*row.Load, 100*loadMost)
	}
	return fmt.Sprintf("of %d robots one runs %d steps until its chunk arrives, and the policy can be conditioned "+
		"for %d", row.Robots, row.Steps, delayMax)
}

// Model is the policy that Measure runs.
type Model interface {
	MaxBatch() int
	Run(batch int) error
}

// Measure runs each size of batch several times and returns the medians.
func Measure(m Model) ([]Size, error) {
	var list []Size
	for _, n := range policy.BatchSizes(m.MaxBatch()) {
		took, err := median(func() error { return m.Run(n) })
		if err != nil {
			return nil, err
		}
		list = append(list, sizeOf(n, took))
	}
	return list, nil
}

// sizes returns a batch.Sizes with the durations in o.Took, as in a server that has measured them.
func (o *Options) sizes() *batch.Sizes {
	var rows []int
	for _, s := range o.Took {
		rows = append(rows, s.Batch)
	}
	sizes := batch.NewSizes(rows)
	for _, s := range o.Took {
		sizes.Learn(s.Batch, s.took())
	}
	return sizes
}

// took returns Ms as a duration.
func (s *Size) took() time.Duration { return time.Duration(s.Ms * float64(time.Millisecond)) }

// Print writes the plan for people.
func (r *Report) Print(w io.Writer) error {
	var t strings.Builder
	fmt.Fprintf(&t, "%s on %s, ONNX Runtime %s, %d threads, scheduler %s\n\n  batch        ms  chunks/s\n", r.Bundle,
		r.Device, r.Runtime, r.Threads, r.Scheduler)
	if r.Rollout != "" {
		fmt.Fprintf(&t, "  (the slower of this model and of the roll-out's, %s)\n", r.Rollout)
	}
	for _, s := range r.Sizes {
		fmt.Fprintf(&t, "  %5d  %8.2f  %8.1f\n", s.Batch, s.Ms, s.PerS)
	}
	fmt.Fprintf(&t, "\n  robots  load  delay p50 ms      max  steps  starved ms\n")
	for _, row := range r.Tries {
		verdict := "starved"
		switch {
		case row.OK:
			verdict = "ok"
		case row.StarvedMs == 0 && row.Load > loadMost:
			verdict = "full"
		case row.StarvedMs == 0:
			verdict = "late"
		}
		fmt.Fprintf(&t, "  %6d  %4.2f  %12.1f  %7.1f  %5d  %10.1f  %s\n", row.Robots, row.Load, row.DelayP50,
			row.DelayMax, row.Steps, row.StarvedMs, verdict)
	}
	if r.Sessions == 0 {
		fmt.Fprintf(&t, "\nNot even one robot is fed: %s.\n", r.Why)
	} else {
		fmt.Fprintf(&t, "\nIn the manifest:\n\nmax_sessions: %d\nmax_batch: %d\nthreads: %d\nscheduler: %s\n",
			r.Sessions, r.MaxBatch, r.Threads, r.Scheduler)
	}
	if r.Sessions > 0 && r.Why != "" {
		fmt.Fprintf(&t, "\nBeyond: %s.\n", r.Why)
	}
	_, err := io.WriteString(w, t.String())
	return err
}
