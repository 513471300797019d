package server

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"edgert/policy"
	"edgert/rt"
)

// stats counts what the server did since it started.
//
// Atomic; the histograms have one writer, the worker.
type stats struct {
	requests   atomic.Uint64 // answered with a chunk
	superseded atomic.Uint64 // observations replaced by a newer one before their turn
	late       atomic.Uint64 // observations refused: not newer than one that was here
	unknown    atomic.Uint64 // observations of robots without a session
	malformed  atomic.Uint64 // samples without a proper header, or too large
	bad        atomic.Uint64 // observations that did not decode or fit the policy
	failed     atomic.Uint64 // inferences that failed
	notFinite  atomic.Uint64 // chunks with NaN or infinity, not published
	unsent     atomic.Uint64 // chunks the transport refused
	lostQuery  atomic.Uint64 // queries refused because too many were waiting
	silenced   atomic.Uint64 // events not sent because one was sent a moment ago

	opened  atomic.Uint64
	closed  atomic.Uint64
	refused atomic.Uint64

	modes [policy.ModeTrainedGuided + 1]atomic.Uint64 // requests by policy.Mode

	wait      *rt.Hist // from arrival to the start of work
	decode    *rt.Hist // parse, pictures, tensors
	inference *rt.Hist // the graph alone
	service   *rt.Hist // from arrival to the chunk's hand-over to the transport
}

func newStats() *stats {
	return &stats{wait: rt.NewHist(), decode: rt.NewHist(), inference: rt.NewHist(), service: rt.NewHist()}
}

// errors is every request that got no chunk though it had its turn.
func (s *stats) errors() uint64 {
	return s.bad.Load() + s.failed.Load() + s.notFinite.Load() + s.unsent.Load()
}

// Quantiles of a duration in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func quantiles(h *rt.Hist) Quantiles {
	if h.Count() == 0 {
		return Quantiles{}
	}
	return Quantiles{ms(h.Quantile(0.5)), ms(h.Quantile(0.99)), ms(h.Max())}
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// Summary is what a run did, printed at its end as a table and with --json.
type Summary struct {
	Service    string `json:"service"` // key prefix
	ServerID   string `json:"server_id"`
	Requests   uint64 `json:"requests"`
	Errors     uint64 `json:"errors"`
	Superseded uint64 `json:"superseded"`
	Late       uint64 `json:"late"`
	Unknown    uint64 `json:"unknown_session"`
	Malformed  uint64 `json:"malformed"`
	Sessions   struct {
		Opened  uint64 `json:"opened"`
		Closed  uint64 `json:"closed"`
		Refused uint64 `json:"refused"`
		Active  int    `json:"active"`
	} `json:"sessions"`
	Conditioning map[string]uint64 `json:"conditioning"` // requests by what was done with the prefix
	QueueWaitMs  Quantiles         `json:"queue_wait_ms"`
	DecodeMs     Quantiles         `json:"decode_ms"`
	InferenceMs  Quantiles         `json:"inference_ms"`
	ServiceMs    Quantiles         `json:"service_ms"`
	PathMallocs  uint64            `json:"path_mallocs"` // heap objects allocated since the worker was ready
	GCCycles     uint64            `json:"gc_cycles"`    // collections since then
	GCForced     uint64            `json:"gc_by_hand"`   // those of them run while idle
	Exit         struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	} `json:"exit"`
}

func (s *stats) fill(out *Summary) {
	out.Requests, out.Errors = s.requests.Load(), s.errors()
	out.Superseded, out.Late = s.superseded.Load(), s.late.Load()
	out.Unknown, out.Malformed = s.unknown.Load(), s.malformed.Load()
	out.Sessions.Opened, out.Sessions.Closed, out.Sessions.Refused = s.opened.Load(), s.closed.Load(), s.refused.Load()
	out.Conditioning = make(map[string]uint64)
	for mode := range s.modes {
		out.Conditioning[policy.Mode(mode).String()] = s.modes[mode].Load()
	}
	out.QueueWaitMs, out.DecodeMs = quantiles(s.wait), quantiles(s.decode)
	out.InferenceMs, out.ServiceMs = quantiles(s.inference), quantiles(s.service)
}

// Print writes the summary as the table a person reads at the end of a run.
func (s *Summary) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, `lean-server  %s  (%s)
  requests      %8d   errors %d, superseded %d, late %d, unknown session %d, malformed %d
  sessions      %8d   opened; %d closed, %d refused, %d still open
  prefix        %8d   trained, %d guided, %d free
                   p50       p99       max   ms
  queue wait  %8.2f  %8.2f  %8.2f
  decode      %8.2f  %8.2f  %8.2f
  inference   %8.2f  %8.2f  %8.2f
  service     %8.2f  %8.2f  %8.2f
  heap          %8d   objects allocated while serving, %d collections (%d while idle)
`, s.Service, s.ServerID,
		s.Requests, s.Errors, s.Superseded, s.Late, s.Unknown, s.Malformed,
		s.Sessions.Opened, s.Sessions.Closed, s.Sessions.Refused, s.Sessions.Active,
		s.Conditioning["trained"], s.Conditioning["guided"], s.Conditioning["free"],
		s.QueueWaitMs.P50, s.QueueWaitMs.P99, s.QueueWaitMs.Max, s.DecodeMs.P50, s.DecodeMs.P99, s.DecodeMs.Max,
		s.InferenceMs.P50, s.InferenceMs.P99, s.InferenceMs.Max, s.ServiceMs.P50, s.ServiceMs.P99, s.ServiceMs.Max,
		s.PathMallocs, s.GCCycles, s.GCForced)
	return err
}
