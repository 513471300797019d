package server

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/server/audit"
	"edgert/server/manifest"
	"edgert/wire"
)

// stats counts what the server did since it started.
//
// Atomic; the histograms have one writer, the worker.
type stats struct {
	outcomes   [audit.NumOutcomes]atomic.Uint64 // requests that had their turn
	superseded atomic.Uint64                    // observations replaced by a newer one before their turn
	late       atomic.Uint64                    // observations refused: not newer than one that was here
	noRoom     atomic.Uint64                    // observations refused: the pool is used up
	gaveWay    atomic.Uint64                    // observations that others went before, because their robot runs dry anyway
	unknown    atomic.Uint64                    // observations of robots without a session
	malformed  atomic.Uint64                    // samples without a proper header, or too large
	lostQuery  atomic.Uint64                    // queries refused because too many were waiting
	silenced   atomic.Uint64                    // events not sent because one was sent a moment ago
	replaced   atomic.Uint64                    // chunks that a newer one replaced before they left

	receivedBytes atomic.Uint64 // all observations, served or not
	sentBytes     atomic.Uint64 // all chunks

	opened    atomic.Uint64
	closed    atomic.Uint64
	displaced atomic.Uint64 // those of closed that gave way to another robot
	refused   [numRefused]atomic.Uint64

	modes    [policy.ModeTrainedGuided + 1]atomic.Uint64 // requests by policy.Mode
	spans    [numSpanUses]atomic.Uint64                  // requests by what came of their spans
	stale    [policy.MaxCameras]atomic.Uint64            // pictures older than their robot allows, by camera
	stray    [policy.MaxCameras]atomic.Uint64            // pictures with stray bytes, used all the same, by camera
	squeezed [policy.MaxCameras]atomic.Uint64            // pictures of another shape than the policy's, by camera

	sick   [numSicknesses]atomic.Uint64 // runs that failed, ran out of memory, hung or gave no numbers
	probes [numProbes]atomic.Uint64     // runs of the server's own, by how they ended

	batches [manifest.MaxBatch]atomic.Uint64 // runs by their requests, less one
	reruns  atomic.Uint64                    // batches that failed and ran again one by one

	wait      *durations // from arrival to the run, less decode
	runway    *durations // of robots that say it, when their observation arrived
	decode    *durations // parse, pictures, tensors
	inference *durations // the graph alone
	service   *durations // from arrival to the chunk's hand-over to the transport
}

func newStats() *stats {
	return &stats{wait: newDurations(), runway: newDurations(), decode: newDurations(), inference: newDurations(), service: newDurations()}
}

// A run of the server's own ends in one of these ways.
const (
	probeOK = iota
	probeFailed
	numProbes
)

// shown is what the page shows of a session beside its own counters.
//
// Atomic.
type shown struct {
	runway     atomic.Int64  // ns, of its last request; -1: it has not said
	service    atomic.Int64  // ns, of its last chunk; -1: there was none
	superseded atomic.Uint64 // observations replaced by a newer one before their turn
	gaveWay    atomic.Uint64 // observations that others went before
	failed     atomic.Uint64 // observations that had their turn and got no chunk
}

// spanUse says what came of an observation that names rows of earlier chunks.
type spanUse uint8

const (
	spansNone spanUse = iota
	spansFound
	spansMissing // at least one is forgotten: the chunk is not conditioned
	numSpanUses
)

// cameraSet is some of the policy's cameras: bit i is camera i.
type cameraSet uint32

// camerasNamed finds the policy's cameras: others must not become metric labels.
//
//rt:noalloc
func camerasNamed(cameras []wire.CameraShape, names []string) (set cameraSet) {
	for i := range cameras {
		for _, name := range names {
			if name == cameras[i].Name {
				set |= 1 << i
			}
		}
	}
	return set
}

func (s cameraSet) names(cameras []wire.CameraShape) string {
	var names []string
	for i := range cameras {
		if s&(1<<i) != 0 {
			names = append(names, cameras[i].Name)
		}
	}
	return strings.Join(names, ", ")
}

// count adds the set to the counts by camera and returns its size.
//
//rt:noalloc
func (s cameraSet) count(counts *[policy.MaxCameras]atomic.Uint64) (n uint64) {
	for i := range counts {
		if s&(1<<i) != 0 {
			counts[i].Add(1)
			n++
		}
	}
	return n
}

// fairness is Jain's index of the shares of their observations that sessions got
// chunks for, 1 when nobody sent any.
func fairness(sessions []*Session) float64 {
	var n, sum, squares float64
	for _, s := range sessions {
		if received := s.received.Load(); received > 0 {
			share := min(1, float64(s.answered.Load())/float64(received))
			n, sum, squares = n+1, sum+share, squares+share*share
		}
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (n * squares)
}

func sum(counts []atomic.Uint64) (n uint64) {
	for i := range counts {
		n += counts[i].Load()
	}
	return n
}

// bounds are the upper ends of the buckets that /metrics shows, in seconds: fine
// around one inference of a small and of a large policy.
var bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 7500 * time.Microsecond,
	10 * time.Millisecond, 15 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 75 * time.Millisecond,
	100 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 10 * time.Second,
}

// durations counts how long something took, finely for quantiles and in the
// few buckets of bounds for /metrics.
//
// Owner: one goroutine records, any may read meanwhile.
type durations struct {
	*rt.Hist
	buckets [len(bounds) + 1]atomic.Uint64
	sum     atomic.Int64 // ns
}

func newDurations() *durations { return &durations{Hist: rt.NewHist()} }

//rt:noalloc
func (d *durations) record(v time.Duration) {
	d.Record(v)
	i := 0
	for i < len(bounds) && v > bounds[i] {
		i++
	}
	d.sum.Add(int64(v))
	d.buckets[i].Add(1)
}

// cumulative returns how many there were in all and their sum in seconds, and puts
// how many took at most each bound into buckets.
//
//rt:noalloc
func (d *durations) cumulative(buckets []uint64) (count uint64, sum float64) {
	for i := range d.buckets {
		count += d.buckets[i].Load()
		if i < len(bounds) {
			buckets[i] = count
		}
	}
	return count, time.Duration(d.sum.Load()).Seconds()
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
	Device     string `json:"device"` // where the policy computed
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
	Memory struct {
		LimitMB float64 `json:"limit_mb"`
		UsedMB  float64 `json:"used_mb"`
		MostMB  float64 `json:"most_mb"`
	} `json:"memory"` // of sessions, observations and captures
	Refusals         map[string]uint64 `json:"refusals"`          // of sessions, by reason; only those that happened
	StalePictures    uint64            `json:"stale_pictures"`    // older than their robot allows
	WarnedPictures   uint64            `json:"warned_pictures"`   // with stray bytes, used all the same
	SqueezedPictures uint64            `json:"squeezed_pictures"` // of another shape than the policy's, scaled all the same
	Conditioning     map[string]uint64 `json:"conditioning"`      // requests by what was done with the prefix
	QueueWaitMs      Quantiles         `json:"queue_wait_ms"`
	DecodeMs         Quantiles         `json:"decode_ms"`
	InferenceMs      Quantiles         `json:"inference_ms"`
	ServiceMs        Quantiles         `json:"service_ms"`
	PathMallocs      uint64            `json:"path_mallocs"`       // heap objects allocated since the worker was ready
	GCCycles         uint64            `json:"gc_cycles"`          // collections since then
	GCForced         uint64            `json:"gc_by_hand"`         // those of them run between two requests
	GCPauseMaxMs     float64           `json:"gc_pause_max_ms"`    // the longest that a collection stopped the process
	RSSMB            float64           `json:"rss_mb"`             // resident size at the end
	LogLinesLost     uint64            `json:"log_lines_lost"`     // nobody read the log, and no more could wait
	LogLinesLeftOut  uint64            `json:"log_lines_left_out"` // like lines had come a moment ago
	Exit             struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	} `json:"exit"`
}

// changes counts how often the sessions have changed.
func (s *stats) changes() uint64 { return s.opened.Load() + s.closed.Load() }

// refusals are how many sessions were refused, by reason; only those that happened.
func (s *stats) refusals() map[string]uint64 {
	refused := make(map[string]uint64)
	for r := range numRefused {
		if n := s.refused[r].Load(); n > 0 {
			refused[r.String()] = n
		}
	}
	return refused
}

func (s *stats) fill(out *Summary) {
	out.Requests, out.Errors = s.outcomes[audit.Answered].Load(), sum(s.outcomes[audit.Answered+1:])
	out.Superseded, out.Late = s.superseded.Load(), s.late.Load()
	out.Unknown, out.Malformed = s.unknown.Load(), s.malformed.Load()
	out.Sessions.Opened, out.Sessions.Closed, out.Sessions.Refused = s.opened.Load(), s.closed.Load(), sum(s.refused[:])
	out.Refusals = s.refusals()
	out.StalePictures, out.WarnedPictures, out.SqueezedPictures = sum(s.stale[:]), sum(s.stray[:]), sum(s.squeezed[:])
	out.Conditioning = make(map[string]uint64)
	for mode := range s.modes {
		out.Conditioning[policy.Mode(mode).String()] = s.modes[mode].Load()
	}
	out.QueueWaitMs, out.DecodeMs = quantiles(s.wait.Hist), quantiles(s.decode.Hist)
	out.RSSMB = float64(rt.ResidentSize()) / (1 << 20)
	out.InferenceMs, out.ServiceMs = quantiles(s.inference.Hist), quantiles(s.service.Hist)
}

// Print writes the summary as the table a person reads at the end of a run.
func (s *Summary) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, `lean-server  %s  (%s) on %s
  requests      %8d   errors %d, superseded %d, late %d, unknown session %d, malformed %d, stale pictures %d, with stray bytes %d, squeezed %d
  sessions      %8d   opened; %d closed, %d refused, %d still open
  memory        %8.0f   MB of %.0f for robots at most, %.0f at the end
  prefix        %8d   trained, %d guided, %d free
                   p50       p99       max   ms
  queue wait  %8.2f  %8.2f  %8.2f
  decode      %8.2f  %8.2f  %8.2f
  inference   %8.2f  %8.2f  %8.2f
  service     %8.2f  %8.2f  %8.2f
  heap          %8d   objects allocated while serving, %d collections (%d by hand), none of which stopped the rest for more than %.2f ms, RSS %.0f MB
  log           %8d   lines lost, which nobody read; %d left out, which were like others
`, s.Service, s.ServerID, s.Device,
		s.Requests, s.Errors, s.Superseded, s.Late, s.Unknown, s.Malformed, s.StalePictures, s.WarnedPictures, s.SqueezedPictures,
		s.Sessions.Opened, s.Sessions.Closed, s.Sessions.Refused, s.Sessions.Active,
		s.Memory.MostMB, s.Memory.LimitMB, s.Memory.UsedMB,
		s.Conditioning["trained"], s.Conditioning["guided"], s.Conditioning["free"],
		s.QueueWaitMs.P50, s.QueueWaitMs.P99, s.QueueWaitMs.Max, s.DecodeMs.P50, s.DecodeMs.P99, s.DecodeMs.Max,
		s.InferenceMs.P50, s.InferenceMs.P99, s.InferenceMs.Max, s.ServiceMs.P50, s.ServiceMs.P99, s.ServiceMs.Max,
		s.PathMallocs, s.GCCycles, s.GCForced, s.GCPauseMaxMs, s.RSSMB, s.LogLinesLost, s.LogLinesLeftOut)
	return err
}

// pace is how long one inference of one row takes, so that robots can tell a slow server
// from a dead one. The self-test at load and the warm-up count until robots are served.
//
// Atomic.
type pace struct {
	least  atomic.Int64 // ns, the quickest; 0: none is known
	most   atomic.Int64 // ns, the slowest before robots were served
	steady atomic.Int64 // ns, the slowest of these but the first, which on a GPU takes long; of one, that
	runs   atomic.Int64 // before robots were served
}

// warm notes an inference before any robot was served.
func (p *pace) warm(took time.Duration) {
	p.served(took)
	p.most.Store(max(p.most.Load(), int64(took)))
	if p.runs.Add(1) <= 2 {
		p.steady.Store(int64(took))
	}
	p.steady.Store(max(p.steady.Load(), int64(took)))
}

// served notes an inference for robots.
//
//rt:noalloc
func (p *pace) served(took time.Duration) {
	if took <= 0 {
		return
	}
	if least := p.least.Load(); least == 0 || int64(took) < least {
		p.least.Store(int64(took))
	}
}

// slowest is the time that 99 of 100 inferences need at most; 0: none has run.
func (s *service) slowest() time.Duration {
	if h := s.stats.inference.Hist; h.Count() > 0 {
		return h.Quantile(0.99)
	}
	return time.Duration(s.pace.steady.Load())
}
