package server

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
)

// stats counts the events since the server's start.
//
// Atomic; the histograms have one writer, the worker.
type stats struct {
	outcomes   [audit.NumOutcomes]atomic.Uint64 // requests that had their turn
	superseded atomic.Uint64                    // observations replaced by a newer one before their turn
	late       atomic.Uint64                    // observations refused: not newer than the newest received
	noRoom     atomic.Uint64                    // observations refused: the pool is used up
	// observations passed over for others, because their robot's actions end too early in any case
	passedOver atomic.Uint64
	unknown    atomic.Uint64 // observations of robots without a session
	malformed  atomic.Uint64 // samples without a proper header, or too large
	lostQuery  atomic.Uint64 // queries refused because too many were waiting
	silenced   atomic.Uint64 // events not sent because one was sent a moment before
	replaced   atomic.Uint64 // chunks replaced by a newer one before they left

	receivedBytes atomic.Uint64 // all observations, served or not
	sentBytes     atomic.Uint64 // all chunks

	opened    atomic.Uint64
	closed    atomic.Uint64
	displaced atomic.Uint64 // those of closed that gave way to another robot
	refused   [numRefused]atomic.Uint64

	modes    [policy.ModeTrainedGuided + 1]atomic.Uint64 // requests by policy.Mode
	spans    [numSpanUses]atomic.Uint64                  // requests by the result of their spans
	stale    [policy.MaxCameras]atomic.Uint64            // pictures older than their robot allows, by camera
	stray    [policy.MaxCameras]atomic.Uint64            // pictures with stray bytes, used nevertheless, by camera
	squeezed [policy.MaxCameras]atomic.Uint64            // pictures of another shape than the policy's, by camera

	// runs that failed, ran out of memory, hung or returned values that are not finite
	failures [numFailures]atomic.Uint64
	probes   [numProbes]atomic.Uint64 // the server's own runs, by their result

	batches [manifest.MaxBatch]atomic.Uint64 // runs by their number of requests, less one
	reruns  atomic.Uint64                    // batches that failed and ran again one by one

	pace pace

	wait      *durations // from arrival to the run, less decode
	runway    *durations // left when the observation arrived, of robots that report it
	decode    *durations // parse, pictures, tensors
	inference *durations // the graph alone
	service   *durations // from arrival to the chunk's hand-over to the transport
}

func newStats() *stats {
	return &stats{
		wait:      newDurations(),
		runway:    newDurations(),
		decode:    newDurations(),
		inference: newDurations(),
		service:   newDurations(),
	}
}

// The results of the server's own runs.
const (
	probeOK = iota
	probeFailed
	numProbes
)

// shown holds the values of a session that the page shows beside its counters.
//
// Atomic.
type shown struct {
	runway     atomic.Int64  // ns, of its last request; -1: not given
	service    atomic.Int64  // ns, of its last chunk; -1: no chunk yet
	superseded atomic.Uint64 // observations replaced by a newer one before their turn
	passedOver atomic.Uint64 // observations passed over for others
	failed     atomic.Uint64 // observations that had their turn and got no chunk
}

// spanUse is the result of an observation's spans, which name rows of earlier chunks.
type spanUse uint8

const (
	spansNone spanUse = iota
	spansFound
	spansMissing // at least one span is forgotten: the chunk is not conditioned
	numSpanUses
)

// cameraSet is a set of the policy's cameras: bit i is camera i.
type cameraSet uint32

// camerasNamed returns the policy's cameras in names; unknown names must not become metric labels.
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

func sum(counts []atomic.Uint64) (n uint64) {
	for i := range counts {
		n += counts[i].Load()
	}
	return n
}

// bounds are the upper ends of the buckets of /metrics, in seconds, close together around one
// inference of a small and of a large policy.
var bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 7500 * time.Microsecond,
	10 * time.Millisecond, 15 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 75 * time.Millisecond,
	100 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 10 * time.Second,
}

// durations records durations, finely for quantiles and in the few buckets of bounds for /metrics.
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

// cumulative returns the number of all durations and their sum in seconds, and fills buckets with
// the number of those up to each bound.
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

// Summary is the result of a run, printed at its end as a table and with --json.
type Summary struct {
	Service    string `json:"service"`    // beginning of the server's keys
	ServerID   string `json:"server_id"`  // its own name among replicas
	Device     string `json:"device"`     // device of the policy, such as cpu or cuda:0
	Requests   uint64 `json:"requests"`   // observations that were answered with a chunk
	Errors     uint64 `json:"errors"`     // observations that had their turn and got no chunk
	Superseded uint64 `json:"superseded"` // observations that a newer one of their robot replaced before their turn
	// observations refused because a newer one had arrived, or others were more urgent
	Late      uint64        `json:"late"`
	Unknown   uint64        `json:"unknown_session"` // observations that arrived after their session's end
	Malformed uint64        `json:"malformed"`       // messages without a proper header, or too large
	Sessions  SessionCounts `json:"sessions"`
	Memory    MemoryUse     `json:"memory"`
	// [reason] refused sessions by reason, as in lean_server_opens_rejected_total, without zeros
	Refusals       map[string]uint64 `json:"refusals"`
	StalePictures  uint64            `json:"stale_pictures"`  // pictures older than their robot allows
	WarnedPictures uint64            `json:"warned_pictures"` // pictures with stray bytes, used nevertheless
	// pictures of another shape than the policy's, scaled nevertheless
	SqueezedPictures uint64 `json:"squeezed_pictures"`
	// [mode] requests by the treatment of their prefix: free, guided, trained, trained_guided
	Conditioning map[string]uint64 `json:"conditioning"`
	// ms, from an observation's arrival to its inference, less decoding
	QueueWaitMs Quantiles `json:"queue_wait_ms"`
	DecodeMs    Quantiles `json:"decode_ms"`    // ms, message and pictures into the model's input
	InferenceMs Quantiles `json:"inference_ms"` // ms, ONNX Runtime
	// ms, from an observation's arrival to the hand-over of its chunk to the transport
	ServiceMs   Quantiles `json:"service_ms"`
	PathMallocs uint64    `json:"path_mallocs"` // heap objects allocated since the worker was ready
	GCCycles    uint64    `json:"gc_cycles"`    // garbage collections since then
	// part of gc_cycles: between two requests, or at the begin of an inference
	GCForced        uint64  `json:"gc_by_hand"`
	GCPauseMaxMs    float64 `json:"gc_pause_max_ms"`    // ms, longest stop of the process by a collection
	RSSMB           float64 `json:"rss_mb"`             // MiB, resident memory at the end
	LogLinesLost    uint64  `json:"log_lines_lost"`     // log lines dropped because their reader was too slow
	LogLinesLeftOut uint64  `json:"log_lines_left_out"` // log lines left out because of similar ones a moment before
	Exit            Ending  `json:"exit"`
}

// SessionCounts counts the sessions of a run.
type SessionCounts struct {
	Opened  uint64 `json:"opened"`  // opened sessions
	Closed  uint64 `json:"closed"`  // closed sessions
	Refused uint64 `json:"refused"` // refused sessions
	Active  int    `json:"active"`  // sessions still open at the end
}

// MemoryUse is the memory that sessions, observations and captures take.
type MemoryUse struct {
	// MiB, limit of the memory that robots can use: [server.md](server.md#memory-and-places)
	LimitMB float64 `json:"limit_mb"`
	UsedMB  float64 `json:"used_mb"` // MiB, in use at the end
	MostMB  float64 `json:"most_mb"` // MiB, most that was ever in use
}

// Ending is the end of the process.
type Ending struct {
	Code   int    `json:"code"`   // exit code
	Reason string `json:"reason"` // why the server ended
}

// changes counts how often the sessions have changed.
func (s *stats) changes() uint64 { return s.opened.Load() + s.closed.Load() }

// longestPause returns the longest stop of the process by a garbage collection since it serves.
func (s *Server) longestPause() time.Duration {
	if s.baseline.Load() == nil {
		return 0
	}
	return s.pauses.Max()
}

// Summary returns the counters since the start.
func (s *Server) Summary() Summary {
	st := s.stats
	out := Summary{
		Service:    s.prefix,
		ServerID:   s.id,
		Device:     s.placement.Device.String(),
		Requests:   st.outcomes[audit.Answered].Load(),
		Errors:     sum(st.outcomes[audit.Answered+1:]),
		Superseded: st.superseded.Load(),
		Late:       st.late.Load(),
		Unknown:    st.unknown.Load(),
		Malformed:  st.malformed.Load(),
		Sessions: SessionCounts{
			Opened:  st.opened.Load(),
			Closed:  st.closed.Load(),
			Refused: sum(st.refused[:]),
			Active:  len(s.sessions.all()),
		},
		Memory: MemoryUse{
			LimitMB: mib(s.memory.Limit()),
			UsedMB:  mib(s.memory.Used()),
			MostMB:  mib(s.memory.Most()),
		},
		Refusals:         s.byLabel("opens_rejected_total"),
		StalePictures:    sum(st.stale[:]),
		WarnedPictures:   sum(st.stray[:]),
		SqueezedPictures: sum(st.squeezed[:]),
		Conditioning:     make(map[string]uint64),
		QueueWaitMs:      quantiles(st.wait.Hist),
		DecodeMs:         quantiles(st.decode.Hist),
		InferenceMs:      quantiles(st.inference.Hist),
		ServiceMs:        quantiles(st.service.Hist),
		GCPauseMaxMs:     ms(s.longestPause()),
		RSSMB:            mib(rt.ResidentSize()),
		LogLinesLost:     s.missing.Lost(),
		LogLinesLeftOut:  s.missing.LeftOut(),
	}
	for mode := range st.modes {
		out.Conditioning[policy.Mode(mode).String()] = st.modes[mode].Load()
	}
	if before := s.baseline.Load(); before != nil {
		now := rt.ReadHeap()
		out.PathMallocs = now.Allocs - before.Allocs
		out.GCCycles, out.GCForced = now.Cycles-before.Cycles, now.Forced-before.Forced
	}
	return out
}

// Print writes the summary as a table for people.
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
  heap          %8d   objects allocated while serving, %d collections (%d by hand), of which the longest stopped the process for %.2f ms, RSS %.0f MB
  log           %8d   lines lost because they were not read in time; %d left out because they were similar to others
`, s.Service, s.ServerID, s.Device,
		s.Requests, s.Errors, s.Superseded, s.Late, s.Unknown, s.Malformed, s.StalePictures, s.WarnedPictures,
		s.SqueezedPictures,
		s.Sessions.Opened, s.Sessions.Closed, s.Sessions.Refused, s.Sessions.Active,
		s.Memory.MostMB, s.Memory.LimitMB, s.Memory.UsedMB,
		s.Conditioning["trained"], s.Conditioning["guided"], s.Conditioning["free"],
		s.QueueWaitMs.P50, s.QueueWaitMs.P99, s.QueueWaitMs.Max, s.DecodeMs.P50, s.DecodeMs.P99, s.DecodeMs.Max,
		s.InferenceMs.P50, s.InferenceMs.P99, s.InferenceMs.Max, s.ServiceMs.P50, s.ServiceMs.P99, s.ServiceMs.Max,
		s.PathMallocs, s.GCCycles, s.GCForced, s.GCPauseMaxMs, s.RSSMB, s.LogLinesLost, s.LogLinesLeftOut)
	return err
}

// pace is the duration of one inference of one row, by which robots distinguish a slow server from
// a dead one. Until robots are served it is that of the self-test at load and the warm-up.
//
// Atomic.
type pace struct {
	least atomic.Int64 // ns, the shortest; 0: unknown
	most  atomic.Int64 // ns, the longest before robots were served
	// ns, the longest of these but the first, which is slow on a GPU; the first itself where it is
	// the only one
	steady atomic.Int64
	runs   atomic.Int64 // before robots were served
}

// warm records an inference before any robot was served.
func (p *pace) warm(took time.Duration) {
	p.served(took)
	p.most.Store(max(p.most.Load(), int64(took)))
	if p.runs.Add(1) <= 2 {
		p.steady.Store(int64(took))
	}
	p.steady.Store(max(p.steady.Load(), int64(took)))
}

// served records an inference for robots.
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

// slowest returns the 99 % quantile of the inferences; 0: no inference has run.
func (s *stats) slowest() time.Duration {
	if h := s.inference.Hist; h.Count() > 0 {
		return h.Quantile(0.99)
	}
	return time.Duration(s.pace.steady.Load())
}

// failure is the kind of a device's failure.
type failure int

const (
	failureRun failure = iota
	failureMemory
	failureHang
	failureNotFinite
	numFailures
)

func (f failure) String() string {
	return [numFailures]string{"run", "memory", "hang", "not_finite"}[f]
}
