package edge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strconv"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"edgert/chunk"
	"edgert/edge/page"
	"edgert/internal/exit"
	"edgert/rt"
)

// Summary is what a run did; its JSON keys are a contract (docs/json.md).
type Summary struct {
	Ticks         uint64             `json:"ticks"`
	OverrunsOwn   uint64             `json:"overruns_own"`
	OverrunsHost  uint64             `json:"overruns_host"`
	StarvedTicks  uint64             `json:"starved_ticks"`
	LatenessUS    Quantiles          `json:"lateness_us"`
	LatenessHist  map[string]uint64  `json:"lateness_histogram_us,omitempty"` // upper bound in microseconds: ticks
	Requests      uint64             `json:"requests"`
	Chunks        uint64             `json:"chunks"`
	ChunksDropped map[string]uint64  `json:"chunks_dropped"`
	RTTms         ShortQuantiles     `json:"rtt_ms"`
	ActionAgeMS   ShortQuantiles     `json:"action_age_ms"`
	NetworkMS     ShortQuantiles     `json:"network_ms"`
	PathMallocs   uint64             `json:"path_mallocs"`
	GCCycles      uint64             `json:"gc_cycles"`
	Bus           BusSummary         `json:"bus"`
	Frames        map[string]Frames  `json:"frames"`
	Targets       int                `json:"targets_reached"`
	Collisions    int                `json:"collisions"`
	InState       map[string]float64 `json:"seconds_in_state"`
	RT            Granted            `json:"rt"`
	Exit          Ending             `json:"exit"`

	// Beyond the contract.
	Phases        map[string]ShortQuantiles `json:"phases_us"` // of a tick: read, act, merge, ask, and all of it as tick
	ID            string                    `json:"id"`
	Schedule      string                    `json:"schedule"`
	Compat        bool                      `json:"compat,omitempty"`
	Multiplier    int                       `json:"interpolation_multiplier"`
	Recorded      uint64                    `json:"actions_recorded,omitempty"`
	RecordLost    uint64                    `json:"actions_not_recorded,omitempty"`
	FPS           float64                   `json:"fps"`
	Horizon       int                       `json:"horizon"`
	SMin          int                       `json:"s_min"`
	LatencySteps  int                       `json:"latency_estimate_steps"`
	StarvedBus    uint64                    `json:"starved_by_bus"` // of starved_ticks: the bus was silent
	Actions       uint64                    `json:"actions"`
	ActionsTooOld uint64                    `json:"actions_too_old"`
	Skipped       uint64                    `json:"ticks_skipped"`
	Replaced      uint64                    `json:"observations_replaced"`
	SendErrors    uint64                    `json:"send_errors"`
	RangeClips    uint64                    `json:"clipped_range"`
	StepClips     uint64                    `json:"clipped_step"`
	Timeouts      int                       `json:"targets_timed_out"`
	MallocWindow  uint64                    `json:"path_mallocs_ticks"`
	MallocBytes   uint64                    `json:"path_mallocs_bytes"`
	ForcedGC      uint64                    `json:"gc_forced"`
	ExcusedMS     float64                   `json:"excused_ms"` // of overruns_host: how much longer than their periods, together
	StealMS       float64                   `json:"host_steal_ms"`
	CPUShare      float64                   `json:"rt_cpu_share"`
	RSSMB         float64                   `json:"rss_mb"`
	Sessions      uint64                    `json:"sessions_opened"`
	Server        *ServerSummary            `json:"server,omitempty"`
	Page          *page.Stats               `json:"page,omitempty"` // what people who looked have cost
	Seconds       float64                   `json:"seconds"`
}

// Quantiles are of a histogram, in the unit that the key names.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// ShortQuantiles leave out the 99.9th percentile of what happens too rarely.
type ShortQuantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// BusSummary is the servo bus; times are of one read and write of all joints.
type BusSummary struct {
	Cycles  uint64  `json:"cycles"`
	Lost    uint64  `json:"lost"`
	Corrupt uint64  `json:"corrupt"`
	Retries uint64  `json:"retries"`
	P50     float64 `json:"us_p50"`
	P99     float64 `json:"us_p99"`

	// Beyond the contract, of Dynamixels.
	FastReads uint64 `json:"fast_reads,omitempty"`     // of cycles: one merged reply brought all
	Fallbacks uint64 `json:"fast_fallbacks,omitempty"` // times that plain reads took over
	FastTries uint64 `json:"fast_tries,omitempty"`     // times that a fast one was tried again
}

// Frames is one camera.
type Frames struct {
	Captured uint64  `json:"captured"`
	Dropped  uint64  `json:"dropped"`
	Age      float64 `json:"age_ms_p99"`
	Errors   uint64  `json:"errors"`   // failed attempts to get one
	Missed   uint64  `json:"missed"`   // of the dropped: the driver had no room, or lost them
	Skipped  uint64  `json:"skipped"`  // of the dropped: a newer one was there already
	Broken   uint64  `json:"broken"`   // marked bad by the driver, or JPEG that was not whole
	Restarts uint64  `json:"restarts"` // times that the camera was set up again
	Stale    uint64  `json:"stale"`    // observations with a picture older than its max-age

	// Beyond the contract, of the pictures that were decoded here.
	Warned    uint64 `json:"warned"`    // JPEG with stray bytes, used all the same
	Undecoded uint64 `json:"undecoded"` // JPEG of which a part is missing: the picture before it was used
}

// trouble says what did not go well, or nothing.
func (f *Frames) trouble() (text string) {
	for _, c := range []struct {
		n    uint64
		what string
	}{{f.Broken, "broken"}, {f.Undecoded, "undecodable"}, {f.Warned, "with stray bytes"}, {f.Restarts, "restarts"}, {f.Stale, "observations with a stale picture"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}

// Granted says whether the kernel gave the tick its real-time priority.
type Granted struct {
	Granted bool   `json:"granted"`
	Why     string `json:"why"`
}

// Ending is how the process ended.
type Ending struct {
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}

// ServerSummary is whom the edge last worked with.
type ServerSummary struct {
	Model    string `json:"model"`
	Revision string `json:"revision"`
	SHA256   string `json:"model_sha256,omitempty"`
	Prefix   string `json:"prefix"`
}

func short(h *rt.Hist, unit time.Duration) ShortQuantiles {
	q := long(h, unit)
	return ShortQuantiles{q.P50, q.P99, q.Max}
}

func long(h *rt.Hist, unit time.Duration) Quantiles {
	in := func(d time.Duration) float64 { return round3(float64(d) / float64(unit)) }
	return Quantiles{in(h.Quantile(0.5)), in(h.Quantile(0.99)), in(h.Quantile(0.999)), in(h.Max())}
}

// histogram lists the buckets by their upper bound in the unit.
func histogram(h *rt.Hist, unit time.Duration) map[string]uint64 {
	m := map[string]uint64{}
	for upper, n := range h.Buckets {
		m[strconv.FormatFloat(float64(upper)/float64(unit), 'f', -1, 64)] += n
	}
	return m
}

func round3(v float64) float64 { return float64(int64(v*1000+0.5)) / 1000 }

// WriteJSON writes the summary, one object, indented.
func (s *Summary) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(s)
}

// NotOpened is the summary of a run that ended before it began: nothing but why.
func NotOpened(err error) *Summary {
	return &Summary{
		ChunksDropped: map[string]uint64{}, Frames: map[string]Frames{}, InState: map[string]float64{}, Phases: map[string]ShortQuantiles{},
		Exit: ending(err, "stopped before the arm was opened"),
	}
}

// WriteTable writes what a person wants to read after a run.
func (s *Summary) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	schedule := s.Schedule
	if s.Compat {
		schedule += " --compat"
	}
	row("robot", "%s, %.0f s at %.0f Hz, %s", s.ID, s.Seconds, s.FPS, schedule)
	row("ticks", "%d, starved %d, overruns own %d, host %d", s.Ticks, s.StarvedTicks, s.OverrunsOwn, s.OverrunsHost)
	row("lateness", "p50 %.0f us, p99 %.0f us, p99.9 %.0f us, max %.0f us", s.LatenessUS.P50, s.LatenessUS.P99, s.LatenessUS.P999, s.LatenessUS.Max)
	row("bus", "%d cycles, p50 %.0f us, p99 %.0f us, lost %d, corrupt %d", s.Bus.Cycles, s.Bus.P50, s.Bus.P99, s.Bus.Lost, s.Bus.Corrupt)
	row("phases", "p50/p99 us: %s", phases(s.Phases))
	row("requests", "%d sent, %d chunks merged, dropped %s", s.Requests, s.Chunks, counts(s.ChunksDropped))
	row("round trip", "p50 %.1f ms, p99 %.1f ms, max %.1f ms; network p50 %.1f ms; estimate %d ticks", s.RTTms.P50, s.RTTms.P99, s.RTTms.Max, s.NetworkMS.P50, s.LatencySteps)
	row("action age", "p50 %.0f ms, p99 %.0f ms, max %.0f ms", s.ActionAgeMS.P50, s.ActionAgeMS.P99, s.ActionAgeMS.Max)
	for _, name := range keys(s.Frames) {
		f := s.Frames[name]
		row("camera "+name, "%d frames, %d dropped, age p99 %.1f ms%s", f.Captured, f.Dropped, f.Age, f.trouble())
	}
	row("memory", "%d allocations and %d collections in %d ticks, RSS %.0f MB", s.PathMallocs, s.GCCycles, s.MallocWindow, s.RSSMB)
	if p := s.Page; p != nil {
		row("page", "%d connections, %d requests, %d pictures, %d refused, %d collections", p.Connections, p.Requests, p.Pictures, p.Refused, p.Collections)
	}
	if s.RT.Granted {
		row("real time", "granted")
	} else {
		row("real time", "no: %s", s.RT.Why)
	}
	row("states", "%s", seconds(s.InState))
	row("targets", "%d reached, %d collisions, %d timed out", s.Targets, s.Collisions, s.Timeouts)
	row("exit", "%d, %s", s.Exit.Code, s.Exit.Reason)
	return t.Flush()
}

func keys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func counts(m map[string]uint64) string {
	out := ""
	for _, name := range keys(m) {
		out += fmt.Sprintf(", %s %d", name, m[name])
	}
	if out == "" {
		return "none"
	}
	return out[2:]
}

func seconds(m map[string]float64) string {
	out := ""
	for _, name := range keys(m) {
		if m[name] > 0 {
			out += fmt.Sprintf(", %s %.1f s", name, m[name])
		}
	}
	if out == "" {
		return "none"
	}
	return out[2:]
}

// ending is the summary's exit for an error, or for an end as asked.
func ending(err error, asked string) Ending {
	if err != nil {
		return Ending{int(exit.Of(err)), err.Error()}
	}
	return Ending{int(exit.Clean), asked}
}

// Why a chunk was dropped, in addition to chunk's own outcomes.
const (
	dropHeader  = iota // no header, or not one of ours
	dropBody           // the message does not decode, or breaks a limit
	dropEpoch          // it answers an earlier session
	dropEpisode        // it answers an earlier episode
	dropUnknown        // its request was never sent, or was answered, or is forgotten
	dropNewer          // a newer one came before it was merged
	dropForeign        // it answers a request that another robot of this name sent, or another server made it
	dropOutcome        // + chunk.Outcome
	numDrops    = dropOutcome + 16
)

var dropNames = func() (names [numDrops]string) {
	copy(names[:], []string{"header", "body", "epoch", "episode", "unknown_seq", "superseded", "foreign"})
	for _, o := range chunk.Outcomes() {
		names[dropOutcome+int(o)] = o.String()
	}
	return names
}()

// tickStats is what the run counts. One thread writes each field, any reads.
type tickStats struct {
	// Written by the tick.
	requests, chunks, starved, actions, tooOld atomic.Uint64
	starvedBus                                 atomic.Uint64 // of starved: the bus was silent
	size                                       atomic.Int64
	state, episode                             atomic.Uint32
	touched, armed, busFault, needResume       atomic.Bool             // touched: torque may be on; needResume: an operator is waited for; busFault: gave up for the bus's sake
	inState                                    [numStates]atomic.Int64 // nanoseconds
	rtt, age, network                          *rt.Hist

	// Written by the tick and the receiver.
	dropped [numDrops]atomic.Uint64

	// Written by the sender.
	sent, replaced, late atomic.Uint64 // late: no publisher or no picture yet
	sendErrors           atomic.Uint64

	// Written by the receiver.
	notices atomic.Uint64 // events from the server
}

func newTickStats() *tickStats {
	s := &tickStats{rtt: rt.NewHist(), age: rt.NewHist(), network: rt.NewHist()}
	s.state.Store(uint32(Connecting))
	return s
}

//rt:noalloc
func (s *tickStats) drop(reason int) { s.dropped[reason].Add(1) }

// dropTotals returns the counts by reason, those that happened.
func (s *tickStats) dropTotals() map[string]uint64 {
	m := map[string]uint64{}
	for i := range s.dropped {
		if n := s.dropped[i].Load(); n > 0 {
			m[dropNames[i]] = n
		}
	}
	return m
}

// seconds returns how long the run was in each State.
func (s *tickStats) seconds() map[string]float64 {
	m := map[string]float64{}
	for state := range numStates {
		m[state.String()] = round3(float64(s.inState[state].Load()) / 1e9)
	}
	return m
}

// phases lists the parts of a tick in their order.
func phases(all map[string]ShortQuantiles) string {
	var b []byte
	for _, name := range append(phaseNames[:], "tick") {
		if q, ok := all[name]; ok {
			b = fmt.Appendf(b, "%s %.0f/%.0f  ", name, q.P50, q.P99)
		}
	}
	return string(bytes.TrimSpace(b))
}
