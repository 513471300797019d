package edge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/page"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// Summary is the result of a run; its JSON keys are a contract (docs/json.md).
type Summary struct {
	Status
	// [us] ticks by the upper bound of their lateness
	LatenessHist map[string]uint64 `json:"lateness_histogram_us,omitempty"`
	// heap objects that the process allocated during path_mallocs_ticks
	PathMallocs uint64 `json:"path_mallocs"`
	// garbage collections during path_mallocs_ticks
	GCCycles uint64            `json:"gc_cycles"`
	Bus      BusSummary        `json:"bus"`
	Frames   map[string]Frames `json:"frames"` // [camera]
	Exit     Ending            `json:"exit"`

	// [phase] us, parts of a tick: read, act, merge, ask, and the whole as tick
	Phases     map[string]ShortQuantiles `json:"phases_us"`
	Compat     bool                      `json:"compat,omitempty"`         // --compat
	Multiplier int                       `json:"interpolation_multiplier"` // ticks per action
	Record     *record.Stats             `json:"record,omitempty"`         // absent with --record off
	Horizon    int                       `json:"horizon"`                  // actions in a chunk
	// actions of a chunk that run before the next request
	SMin         int `json:"s_min"`
	LatencySteps int `json:"latency_estimate_steps"` // latency estimate at the end, in ticks
	// part of starved_ticks: the bus was silent
	StarvedBus uint64 `json:"starved_by_bus"`
	// ticks on which no joint was driven, because the motors complained or were let go
	HeldAll uint64 `json:"ticks_all_held"`
	// [joint] the last complaint about heat or supply, such as supply: 12.4 V
	Complaints map[string]string `json:"complaints,omitempty"`
	// part of starved_ticks: the last action ran again (--fallback repeat_last)
	Repeated uint64 `json:"starved_repeated"`
	// periods without a tick, because an earlier tick took too long
	Skipped uint64 `json:"ticks_skipped"`
	// observations that a newer one replaced before they left
	Replaced   uint64 `json:"observations_replaced"`
	SendErrors uint64 `json:"send_errors"`       // observations that could not be sent
	RangeClips uint64 `json:"clipped_range"`     // goals clipped to a joint's range
	StepClips  uint64 `json:"clipped_step"`      // goals clipped to a joint's travel in one tick
	Timeouts   int    `json:"targets_timed_out"` // targets of the simulated world that were given up
	// ticks of the window in which allocations are counted: from the end of the warm-up to the end
	// of the run
	MallocWindow uint64 `json:"path_mallocs_ticks"`
	MallocBytes  uint64 `json:"path_mallocs_bytes"` // bytes, allocated during path_mallocs_ticks
	// part of gc_cycles: started by the program; the memory limit started the others
	ForcedGC uint64 `json:"gc_forced"`
	// ms, sum of the time by which the ticks in overruns_host exceeded their periods
	ExcusedMS float64 `json:"excused_ms"`
	// ms, taken from this virtual machine by its host, sum of all CPUs
	StealMS     float64      `json:"host_steal_ms"`
	CPUShare    float64      `json:"rt_cpu_share"`          // share, of one core, used by the tick's thread
	RSSMB       float64      `json:"rss_mb"`                // MiB, resident memory at the end
	Sessions    uint64       `json:"sessions_opened"`       // sessions opened at servers
	Page        *page.Stats  `json:"page,omitempty"`        // load from viewers of the page; absent without --http
	Corrections *Corrections `json:"corrections,omitempty"` // absent without --leader
	FirstRun    bool         `json:"first_run,omitempty"`   // the bundle had never run on this arm: it started slowly
	Seconds     float64      `json:"seconds"`               // s, length of the run
	// ms, age limit of actions at the end: --max-action-age, else the limit that the policy needs;
	// 0: no limit
	MaxAgeMS float64 `json:"max_action_age_ms"`
}

// Corrections counts the take-overs by people.
type Corrections struct {
	Takeovers uint32 `json:"takeovers"` // requested take-overs: by edge-rt ctl correct, or a push
	Ticks     uint64 `json:"ticks"`     // ticks on which a person drove the arm
}

// problems lists the problems of a camera, for the end of a line.
func (f *Frames) problems() (text string) {
	for _, c := range []struct {
		n    uint64
		what string
	}{{f.Broken, "broken"}, {f.Undecoded, "undecodable"}, {f.Warned, "with stray bytes"}, {f.Repeated, "repeated"},
		{f.Restarts, "restarts"}, {f.Stale, "observations with a stale picture"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}

// Ending is the end of the process.
type Ending struct {
	Code   int    `json:"code"`   // exit code
	Reason string `json:"reason"` // why the run ended
}

// status reads the counters of a run.
func (e *Edge) status() Status {
	st, loop := e.control.stats, e.drive.Stats()
	s := Status{
		ID:            e.identity.ID,
		Schedule:      e.cfg.Schedule.Schedule,
		Task:          e.control.out.TaskText(),
		FPS:           e.cfg.FPS,
		Server:        serverSummary(e.control.in.Sessions().Newest),
		Ticks:         loop.Ticks,
		OverrunsOwn:   loop.OverrunsOwn,
		OverrunsHost:  loop.OverrunsHost,
		LatenessUS:    long(loop.Lateness, time.Microsecond),
		StarvedTicks:  st.starved.Load(),
		Actions:       st.actions.Load(),
		ActionsTooOld: st.tooOld.Load(),
		ActionAgeMS:   short(st.age, time.Millisecond),
		Requests:      st.requests.Load(),
		Chunks:        st.chunks.Load(),
		ChunksDropped: st.dropTotals(e.link.Stats),
		RTTms:         short(st.rtt, time.Millisecond),
		NetworkMS:     short(st.network, time.Millisecond),
		InState:       st.seconds(),
	}
	s.Episodes = e.episodes.Status()
	if h := e.control.out.Steps; h != nil {
		anew, full := h.Counts()
		s.History = &History{Steps: h.N, Anew: anew, NoRoom: full}
	}
	if grant := e.drive.Grant(); loop.Ticks > 0 {
		s.RT = Granted{grant.Granted, grant.Why}
	}
	if e.world != nil {
		score := e.world.Score()
		s.Targets, s.Collisions = score.Reached, score.Collided
	}
	return s
}

// asked returns the cause of a requested end.
func (e *Edge) asked() string {
	switch n := e.cfg.Episodes.Count; e.drive.Cause() {
	case drive.Duration:
		return fmt.Sprintf("ran for %v as asked", e.cfg.Duration)
	case drive.Operator:
		return "stopped by an operator"
	case drive.Episodes:
		if n == 1 {
			return "recorded 1 episode as asked"
		}
		return fmt.Sprintf("recorded %d episodes as asked", n)
	}
	return "stopped by signal"
}

// complaints returns the last complaint about heat or supply of each joint, nil without any.
func (e *Edge) complaints() (all map[string]string) {
	for j, m := range e.robot.Motors {
		text := event.ComplaintText(e.control.arm.Complaint(j))
		if text == "" {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[m.Name] = text
	}
	return all
}

func (e *Edge) summarize(err error) *Summary {
	c := e.control
	st := e.control.stats
	loop := e.drive.Stats()
	asked, complaints := e.asked(), e.complaints()
	if held := st.heldAll.Load(); 2*held > loop.Ticks { // for most of the run
		asked += fmt.Sprintf("; no joint was driven for %.0f s: %s", (time.Duration(held) * e.cfg.period()).Seconds(),
			distinct(complaints))
	}
	took := e.clock.Now().Sub(e.started)
	s := &Summary{
		Status:       e.status(),
		Bus:          busSummary(e.arm.Stats()),
		Frames:       map[string]Frames{},
		Phases:       map[string]ShortQuantiles{},
		ExcusedMS:    round3(loop.Excused.Seconds() * 1e3),
		Skipped:      loop.Skipped,
		LatenessHist: histogram(loop.Lateness, time.Microsecond),
		Compat:       e.cfg.Schedule.Compat,
		Multiplier:   c.core.Stages.Multiplier(),
		Horizon:      e.contract.Horizon,
		SMin:         c.core.Schedule.View().SMin,
		LatencySteps: c.core.Schedule.View().Estimate,
		StarvedBus:   st.starvedBus.Load(),
		Repeated:     st.repeated.Load(),
		HeldAll:      st.heldAll.Load(),
		Complaints:   complaints,
		Replaced:     e.link.Stats.Replaced.Load(),
		SendErrors:   e.link.Stats.SendErrors.Load(),
		RangeClips:   c.arm.Gate().RangeClips,
		StepClips:    c.arm.Gate().StepClips,
		Sessions:     c.in.Sessions().Opened,
		StealMS:      round3(float64(rt.StealTime()-e.steal) / 1e6),
		RSSMB:        round3(float64(rt.ResidentSize()) / (1 << 20)),
		Seconds:      round3(took.Seconds()),
		CPUShare:     round3(loop.CPU.Seconds() / max(took.Seconds(), 1e-9)),
		FirstRun:     e.firstRun,
		Exit:         exitOf(err, asked),
		MaxAgeMS:     round3(float64(c.core.MaxAge) / 1e6),
	}
	grant := e.drive.Grant()
	s.RT = Granted{grant.Granted, grant.Why}
	s.Targets = e.score.Reached
	s.Collisions = e.score.Collided
	s.Timeouts = e.score.Timeouts
	if e.page != nil {
		s.Page = new(e.page.Stats())
	}
	if e.leader != nil {
		s.Corrections = &Corrections{st.takeovers.Load(), st.corrected.Load()}
	}
	s.Record = e.recording.Stats()
	if h := &e.heap; h.closed {
		s.PathMallocs, s.GCCycles = h.to.Allocs-h.from.Allocs, h.to.Cycles-h.from.Cycles
		s.ForcedGC, s.MallocWindow = h.to.Forced-h.from.Forced, h.last-h.first
		s.MallocBytes = h.to.Bytes - h.from.Bytes
	}
	for _, cam := range e.cameras {
		s.Frames[cam.Name] = framesOf(cam)
	}
	s.Phases["tick"] = short(c.phases.Whole(), time.Microsecond)
	for i, name := range phaseNames {
		s.Phases[name] = short(c.phases.Part(i), time.Microsecond)
	}
	return s
}

func histogram(h *rt.Hist, unit time.Duration) map[string]uint64 {
	m := map[string]uint64{}
	for upper, n := range h.Buckets {
		m[strconv.FormatFloat(float64(upper)/float64(unit), 'f', -1, 64)] += n
	}
	return m
}

// WriteJSON writes the summary, one object, indented.
func (s *Summary) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(s)
}

// NotOpened returns the summary of a run that ended before it began. It has only the reason.
func NotOpened(err error) *Summary {
	return &Summary{
		Status: Status{ChunksDropped: map[string]uint64{}, InState: map[string]float64{}},
		Frames: map[string]Frames{},
		Phases: map[string]ShortQuantiles{},
		Exit:   exitOf(err, "stopped before the arm was opened"),
	}
}

// WriteTable writes the summary for people.
func (s *Summary) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	schedule := s.Schedule
	if s.Compat {
		schedule += " --compat"
	}
	row("robot", "%s, %.0f s at %.0f Hz, %s", s.ID, s.Seconds, s.FPS, schedule)
	row("ticks", "%d, starved %d, overruns own %d, host %d", s.Ticks, s.StarvedTicks, s.OverrunsOwn, s.OverrunsHost)
	row("lateness", "p50 %.0f us, p99 %.0f us, p99.9 %.0f us, max %.0f us", s.LatenessUS.P50, s.LatenessUS.P99,
		s.LatenessUS.P999, s.LatenessUS.Max)
	row("bus", "%d cycles, p50 %.0f us, p99 %.0f us, lost %d, corrupt %d", s.Bus.Cycles, s.Bus.P50, s.Bus.P99,
		s.Bus.Lost, s.Bus.Corrupt)
	row("phases", "p50/p99 us: %s", phases(s.Phases))
	row("requests", "%d sent, %d chunks merged, dropped %s", s.Requests, s.Chunks, list(s.ChunksDropped, "%d"))
	row("round trip", "p50 %.1f ms, p99 %.1f ms, max %.1f ms; network p50 %.1f ms; estimate %d ticks", s.RTTms.P50,
		s.RTTms.P99, s.RTTms.Max, s.NetworkMS.P50, s.LatencySteps)
	row("action age", "p50 %.0f ms, p99 %.0f ms, max %.0f ms", s.ActionAgeMS.P50, s.ActionAgeMS.P99, s.ActionAgeMS.Max)
	for _, name := range keys(s.Frames) {
		f := s.Frames[name]
		row("camera "+name, "%d frames, %d dropped, age p99 %.1f ms%s", f.Captured, f.Dropped, f.Age, f.problems())
	}
	row("memory", "%d allocations and %d collections in %d ticks, RSS %.0f MB", s.PathMallocs, s.GCCycles,
		s.MallocWindow, s.RSSMB)
	if h := s.History; h != nil {
		row("history", "%d observations together, begun anew %d times, %d steps left out", h.Steps, h.Anew, h.NoRoom)
	}
	if p := s.Episodes; p != nil {
		row("episodes", "%d: %d success, %d failure, %d timeout, %d discard, %d rerecord", p.Number, p.Success,
			p.Failure, p.Timeout, p.Discard, p.Rerecord)
	}
	if s.FirstRun {
		row("first run", "of this bundle on this arm: it started slowly")
	}
	if c := s.Corrections; c != nil {
		row("corrections", "%d times, %d ticks", c.Takeovers, c.Ticks)
	}
	if p := s.Page; p != nil {
		row("page", "%d connections, %d requests, %d pictures, %d refused, %d collections", p.Connections, p.Requests,
			p.Pictures, p.Refused, p.Collections)
	}
	if r := s.Record; r != nil {
		row("record", "%s", recording.Line(r))
	}
	if s.RT.Granted {
		row("real time", "granted")
	} else {
		row("real time", "no: %s", s.RT.Why)
	}
	if len(s.Complaints) > 0 {
		row("complaints", "%s; no joint was driven on %d ticks", list(s.Complaints, "%s"), s.HeldAll)
	}
	row("states", "%s", list(s.InState, "%.1f s"))
	row("targets", "%d reached, %d collisions, %d timed out", s.Targets, s.Collisions, s.Timeouts)
	row("exit", "%d, %s", s.Exit.Code, s.Exit.Reason)
	return t.Flush()
}

// distinct joins a map's values, each once; an empty map gives "the motors complained".
func distinct(m map[string]string) string {
	return cmp.Or(strings.Join(slices.Compact(slices.Sorted(maps.Values(m))), ", "), "the motors complained")
}

// list formats a map's non-zero values in the order of their names.
func list[V uint64 | float64 | string](m map[string]V, format string) string {
	var out []string
	for _, name := range keys(m) {
		if m[name] != *new(V) {
			out = append(out, name+" "+fmt.Sprintf(format, m[name]))
		}
	}
	return cmp.Or(strings.Join(out, ", "), "none")
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// exitOf returns the summary's exit for an error, or for a requested end.
func exitOf(err error, asked string) Ending {
	if err != nil {
		return Ending{int(exit.Of(err)), err.Error()}
	}
	return Ending{int(exit.Clean), asked}
}

func phases(all map[string]ShortQuantiles) string {
	var out []string
	for _, name := range append(phaseNames[:], "tick") {
		if q, ok := all[name]; ok {
			out = append(out, fmt.Sprintf("%s %.0f/%.0f", name, q.P50, q.P99))
		}
	}
	return strings.Join(out, "  ")
}
