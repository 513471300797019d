package recipe

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/stage"
)

// Part is an edge with one recipe. It runs in a process of its own, as `bench part edge`.
type Part struct {
	Cell
	FPS         float64       `name:"fps" required:""`
	Duration    time.Duration `required:""`
	Connect     string        `required:""` // the server's endpoint
	Bus         string        `required:""` // the arm's port
	Calibration string        `required:""` // the calibration's file
}

// Result is the output of a Part.
type Result struct {
	Edge *edge.Summary `json:"edge"`

	Threads  string  `json:"threads"`  // number of threads in each scheduling class while the arm moved
	Children string  `json:"children"` // scheduling class of a child process that a thread of the edge starts
	RTShare  float64 `json:"rt_share"` // share, of all CPUs' time, taken by real-time threads of the process
	RTPeak   float64 `json:"rt_peak"`  // share, rt_share in the worst quarter of a second
}

const (
	tickPriority = 80 // priority of rt.Loop
	otherRR      = 40
	fifo         = 1   // SCHED_FIFO
	roundRobin   = 2   // SCHED_RR
	niceHigh     = -10 // nice value of edge-rt's other threads
	gcPercent    = 100 // Go's default
	watchEvery   = 50 * time.Millisecond
	shareEvery   = 250 * time.Millisecond
)

// Run runs the edge and writes a Result as JSON.
func (p Part) Run(ctx context.Context, w io.Writer) error {
	camera, err := capture.Parse("top=sim") // the demo policy needs a camera, even when the arm is at a port
	if err != nil {
		return err
	}
	e, err := edge.Open(ctx, edge.Config{
		FPS:                     p.FPS,
		FPSMismatch:             "allow",
		Bus:                     p.Bus,
		Calibration:             p.Calibration,
		Robot:                   "so101",
		Cameras:                 []capture.Config{camera},
		Connect:                 []string{p.Connect},
		Schedule:                chunk.Config{Schedule: "drtc", Epsilon: chunk.DefaultEpsilon},
		Duration:                p.Duration,
		CPU:                     rt.UnpinnedCPU,
		JPEGQuality:             90,
		OnExit:                  "hold",
		Fallback:                "hold",
		MaxActionAge:            3 * time.Second,
		DegradedAfter:           500 * time.Millisecond,
		RequestTimeout:          5 * time.Second,
		ReconnectInitialBackoff: 500 * time.Millisecond,
		ReconnectMaxBackoff:     10 * time.Second,
		MaxOffline:              20 * time.Second,
		Log:                     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var r Result
	var all sync.WaitGroup
	all.Go(func() { p.watch(running, &r) })
	startLoad(running, &all, p.Load)
	r.Edge, err = e.Run(ctx)
	stop()
	all.Wait()
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(r)
}

// watch applies the recipe to the process's threads as they appear, and adds to r how the kernel
// schedules them, until ctx ends. It begins once the tick is real-time.
func (p Part) watch(ctx context.Context, r *Result) {
	var shares shareMeter
	done := map[int]bool{}
	for ctx.Err() == nil {
		threads := bench.ThreadsOf(os.Getpid())
		if _, ticking := bench.TickThread(threads, tickPriority); ticking {
			if p.GC == "on" {
				debug.SetGCPercent(gcPercent) // the edge had switched the collector off
			}
			if fresh := p.schedule(threads, done); fresh == nil && r.Children == "" {
				r.Threads, r.Children = bench.ClassesOf(threads), childClass(ctx)
			}
			shares.read(threads)
		}
		stage.Sleep(ctx, watchEvery)
	}
	r.RTShare, r.RTPeak = shares.total(), shares.peak
}

// schedule gives the recipe's class to every thread that is not in done, except the tick, and returns these threads.
func (p Part) schedule(threads []bench.Thread, done map[int]bool) (fresh []int) {
	for _, t := range threads {
		if t.Priority == tickPriority || done[t.TID] {
			continue
		}
		done[t.TID] = true
		fresh = append(fresh, t.TID)
		var err error
		switch p.Others {
		case "nice0":
			err = setNice(t.TID, 0)
		case "nice-10":
			err = setNice(t.TID, niceHigh)
		case "rr40":
			err = setRealTime(t.TID, roundRobin, otherRR)
		}
		if err != nil {
			done[t.TID] = false // the thread may have ended; otherwise the classes in the report show the failure
		}
	}
	return fresh
}
