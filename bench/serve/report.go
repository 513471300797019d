package serve

import (
	"fmt"
	"io"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
)

// Report is the result of Measure.
type Report struct {
	Bench      string        `json:"bench"`       // serve
	Version    string        `json:"version"`     // version of bench
	Runtime    string        `json:"onnxruntime"` // version of ONNX Runtime
	Machine    bench.Machine `json:"machine"`
	Bundle     string        `json:"bundle"`    // folder of the bundle
	SHA256     string        `json:"sha256"`    // digest of the bundle
	Policy     string        `json:"policy"`    // type of the policy
	Device     string        `json:"device"`    // device of the policy
	Threads    int           `json:"threads"`   // CPU threads of one inference
	MaxBatch   int           `json:"max_batch"` // robots that may share an inference
	SliceS     float64       `json:"slice_s"`   // s, a turn of the server, or of ONNX Runtime alone
	Crowds     []Crowd       `json:"crowds"`
	Many       Many          `json:"many"` // many sessions; also answered, lost, jain and round_trip_ms, as in crowds
	Schedulers []Scheduler   `json:"schedulers"`
	Beside     []Beside      `json:"beside"`
	Steady     Steady        `json:"steady"` // result of --steady; all zeros without this flag
}

// Crowd is a number of robots that send requests as fast as they are answered.
type Crowd struct {
	Robots     int     `json:"robots"`       // robots that ask as fast as they get answers
	Rounds     int     `json:"rounds"`       // turns of each
	ChunksPerS float64 `json:"chunks_per_s"` // 1/s, chunks of the server: median of the rounds
	BarePerS   float64 `json:"bare_per_s"`   // 1/s, chunks of ONNX Runtime alone with the same batches
	Ratio      float64 `json:"ratio"`        // ratio, of chunks_per_s to bare_per_s: median of the rounds
	Busy       float64 `json:"busy"`         // ratio, share of the turns in which the device computed
	MeanBatch  float64 `json:"mean_batch"`   // requests, mean number in an inference
	// ms, decoding and answering: the server's time without waits and inference
	Own       bench.Spread `json:"own_ms"`
	Wait      bench.Spread `json:"queue_wait_ms"` // ms, as in the audit
	Decode    bench.Spread `json:"decode_ms"`     // ms, as in the audit
	Inference bench.Spread `json:"inference_ms"`  // ms, as in the audit
	Answers
}

// Answers is how the requests of all robots of a server were answered.
type Answers struct {
	Answered  int          `json:"answered"`      // requests with a chunk
	Lost      int          `json:"lost"`          // requests without a chunk
	Jain      float64      `json:"jain"`          // ratio, Jain's fairness index of the robots' chunks
	RoundTrip bench.Spread `json:"round_trip_ms"` // ms, from a robot's message to its chunk
}

// Many is a server with many sessions.
type Many struct {
	Sessions int `json:"sessions"` // robots with a session at once
	Left     int `json:"left"`     // robots that are still served at the end
	Answers
}

// Scheduler is the result of one scheduler, at one load, for robots whose actions run out.
type Scheduler struct {
	Scheduler string  `json:"scheduler"`  // runway or round_robin
	Robots    int     `json:"robots"`     // robots whose actions run out
	Load      float64 `json:"load"`       // ratio, share of the server's time that the robots request
	Seconds   float64 `json:"seconds"`    // s, of all its turns
	Requests  int     `json:"requests"`   // requests with a chunk
	Lost      int     `json:"lost"`       // requests without a chunk
	StarvedMs float64 `json:"starved_ms"` // ms, time without actions, summed over all robots
	Busy      int     `json:"busy"`       // computing processes beside the server, --busy
}

// Beside is another project's server, with one robot that sends requests as fast as they are
// answered, in turn with ours.
type Beside struct {
	Name       string       `json:"name"`          // name of --beside; lerobot also without the flag
	Absent     string       `json:"absent"`        // reason why the measurement is absent or incomplete; else empty
	Rounds     int          `json:"rounds"`        // number of its turns
	ChunksPerS float64      `json:"chunks_per_s"`  // 1/s, chunks for one robot: median of the rounds
	RoundTrip  bench.Spread `json:"round_trip_ms"` // ms, from a robot's message to its chunk
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	facts := report.Facts("bench serve",
		fmt.Sprintf("%s (%s, %.12s) on %s, %d threads, batches up to %d, ONNX Runtime %s", r.Bundle, r.Policy, r.SHA256,
			r.Device, r.Threads, r.MaxBatch, r.Runtime), r.Machine.Rows())
	if r.Steady.Seconds > 0 {
		fmt.Fprint(w, facts)
		return r.Steady.write(w)
	}
	crowds := report.Table{Columns: []string{"robots", "chunks/s", "bare/s", "ratio", "busy", "batch", "lost", "Jain",
		"own p50 ms", "p99", "wait p50", "decode p50", "inference p50", "round trip p50", "p99"}}
	for _, c := range r.Crowds {
		crowds.Addf("%d\t%.1f\t%.1f\t%.3f\t%.3f\t%.2f\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f", c.Robots,
			c.ChunksPerS, c.BarePerS, c.Ratio, c.Busy, c.MeanBatch, c.Lost, c.Jain, c.Own.P50, c.Own.P99, c.Wait.P50,
			c.Decode.P50, c.Inference.P50, c.RoundTrip.P50, c.RoundTrip.P99)
	}
	dry := report.Table{Left: 1,
		Columns: []string{"scheduler", "busy", "robots", "load", "seconds", "requests", "lost", "starved ms",
			"ms each second"}}
	for _, s := range r.Schedulers {
		dry.Addf("%s\t%d\t%d\t%.2f\t%.1f\t%d\t%d\t%.1f\t%.2f", s.Scheduler, s.Busy, s.Robots, s.Load, s.Seconds,
			s.Requests, s.Lost, s.StarvedMs, s.StarvedMs/max(s.Seconds, 1e-3))
	}
	_, err := fmt.Fprintf(w, "%v\n%v\n%v\n", facts, crowds, dry)
	if r.Many.Sessions == 0 { // only the schedulers were measured
		return err
	}
	for _, b := range r.Beside {
		text := fmt.Sprintf("%.1f chunks/s for one robot (%d rounds), round trip p50 %.1f ms, p99 %.1f ms",
			b.ChunksPerS, b.Rounds, b.RoundTrip.P50, b.RoundTrip.P99)
		if b.Absent != "" {
			text = "absent: " + b.Absent
		}
		fmt.Fprintf(w, "%s: %s.\n", b.Name, text)
	}
	_, err = fmt.Fprintf(w, "%d sessions: %d left, %d requests, %d lost, Jain %.3f, round trip p50 %.1f ms, p99 "+
		"%.1f ms.\n"+
		"bare: ONNX Runtime alone with the same batches, in turn with the server. own: decoding and answering.\n",
		r.Many.Sessions, r.Many.Left, r.Many.Answered, r.Many.Lost, r.Many.Jain, r.Many.RoundTrip.P50,
		r.Many.RoundTrip.P99)
	return err
}

func (s *Steady) write(w io.Writer) error {
	p := &s.Provoked
	_, err := fmt.Fprintf(w, `
%d robots, %.0f s: %d requests, %d lost, %d inferences of several at once
allocated     %8d objects beside what two looks at the counters take (%d each), %d collections
heap          %8.2f MB more at the end; the process had %.1f MB, at most %.1f, at the end %.1f
with garbage  %8d collections in %.0f s and %d requests, %d by hand; none stopped all else for more than %.3f ms
`, s.Robots, s.Seconds, s.Requests, s.Lost, s.Shared, s.Allocations, s.ScrapeCost, s.Collections,
		s.HeapGrewMB, s.RSSBeginMB, s.RSSMostMB, s.RSSEndMB, p.Collections, p.Seconds, p.Requests, p.ByHand,
		p.PauseMaxMs)
	return err
}
