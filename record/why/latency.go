package why

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// Stage has the durations of one part of the way from a picture to the motors. The durations are those of the
// recorded observations whose chunks were merged and moved the arm.
type Stage struct {
	// exposure, capture, encode, send, network, queue, decode, inference, send back, merge, bus; at the
	// end glass to motor, the whole way
	Name string  `json:"stage"`
	N    int     `json:"n"`      // number of observations with this stage; no record has the exposure
	P50  float64 `json:"p50_ms"` // ms
	P99  float64 `json:"p99_ms"` // ms
}

// way is an observation with its chunk and its server's line.
type way struct {
	asked rt.Instant
	sent  *record.Sent
	chunk *record.Chunk
	line  *auditLine // nil: no audit
	ran   rt.Instant // instant at which the goals of the chunk's first action were written
}

// stages measure the parts of a way. A part is -1 if an instant is missing. Without an audit, inference includes
// decoding, and network includes the server's sending.
var stages = []struct {
	name string
	of   func(w *way) time.Duration
}{
	{"exposure", func(*way) time.Duration { return -1 }},
	{"capture", func(w *way) time.Duration { return between(w.sent.Observed, w.asked) }},
	{"encode", func(w *way) time.Duration { return between(w.asked, w.sent.Encoded) }},
	{"send", func(w *way) time.Duration { return between(w.sent.Encoded, w.sent.At) }},
	{"network", func(w *way) time.Duration {
		all := between(w.sent.At, w.chunk.Arrived)
		switch {
		case all < 0:
			return -1
		case w.line != nil:
			return max(0, all-millis(w.line.Service))
		}
		return max(0, all-time.Duration(w.chunk.QueueWait+w.chunk.Inference))
	}},
	{"queue", func(w *way) time.Duration { return time.Duration(w.chunk.QueueWait) }},
	{"decode", func(w *way) time.Duration {
		if w.line == nil {
			return -1
		}
		return millis(w.line.Decode)
	}},
	{"inference", func(w *way) time.Duration {
		if w.line == nil {
			return time.Duration(w.chunk.Inference)
		}
		return millis(w.line.Inference)
	}},
	{"send back", func(w *way) time.Duration {
		if w.line == nil {
			return -1
		}
		return max(0, millis(w.line.Service-w.line.QueueWait-w.line.Decode-w.line.Inference))
	}},
	{"merge", func(w *way) time.Duration { return between(w.chunk.Arrived, w.chunk.At) }},
	{"bus", func(w *way) time.Duration { return between(w.chunk.At, w.ran) }},
	{"glass to motor", func(w *way) time.Duration { return between(w.sent.Observed, w.ran) }},
}

// between returns the time between two instants of the robot; -1 if one of them is not on record.
func between(from, to rt.Instant) time.Duration {
	if from <= 0 || to < from {
		return -1
	}
	return to.Sub(from)
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// ways returns a way for each observation whose chunk moved the arm.
func (l *Log) ways(a *Audit) (all []way) {
	for _, r := range l.requests {
		chunk, ran := r.joined(), l.ran[r.Seq]
		if r.sent == nil || chunk == nil || ran == 0 {
			continue
		}
		line, _ := a.of(r)
		all = append(all, way{r.At, r.sent, chunk, line, ran})
	}
	return all
}

// Latency returns the stages of a run. a is the audit of the run's server, or nil.
func Latency(l *Log, a *Audit) []Stage { return stagesOf(l.ways(a)) }

func stagesOf(ways []way) (all []Stage) {
	for _, stage := range stages {
		var took []time.Duration
		for i := range ways {
			if d := stage.of(&ways[i]); d >= 0 {
				took = append(took, d)
			}
		}
		s := Stage{Name: stage.name, N: len(took)}
		if s.N > 0 {
			slices.Sort(took)
			at := func(share float64) float64 { return took[int(share*float64(s.N-1)+0.5)].Seconds() * 1000 }
			s.P50, s.P99 = at(0.5), at(0.99)
		}
		all = append(all, s)
	}
	return all
}

// WriteLatency prints the stages instead of the findings.
func (r *Report) WriteLatency(w io.Writer) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%-14s  %7s  %9s  %9s\n", "stage", "n", "p50 ms", "p99 ms")
	for _, s := range r.Latency {
		if s.N == 0 {
			fmt.Fprintf(out, "%-14s  %7s  %9s  %9s\n", s.Name, "-", "-", "-")
		} else {
			fmt.Fprintf(out, "%-14s  %7d  %9.2f  %9.2f\n", s.Name, s.N, s.P50, s.P99)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
