package edge

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/sim"
)

// Summary is the result of a policy's run; its JSON keys are a contract (docs/json.md).
type Summary struct {
	Status
	drive.Totals
	// heap objects that the process allocated during path_mallocs_ticks
	PathMallocs uint64 `json:"path_mallocs"`
	// garbage collections during path_mallocs_ticks
	GCCycles uint64 `json:"gc_cycles"`

	// [phase] us, parts of a tick: read, act, merge, ask, and the whole as tick
	Phases     map[string]drive.ShortQuantiles `json:"phases_us"`
	Compat     bool                            `json:"compat,omitempty"`         // --compat
	Multiplier int                             `json:"interpolation_multiplier"` // ticks per action
	Horizon    int                             `json:"horizon"`                  // actions in a chunk
	// actions of a chunk that run before the next request
	SMin         int `json:"s_min"`
	LatencySteps int `json:"latency_estimate_steps"` // latency estimate at the end, in ticks
	// part of starved_ticks: the bus was silent
	StarvedBus uint64 `json:"starved_by_bus"`
	// part of starved_ticks: waiting for an episode's first chunk, within --degraded-after of its start
	StarvedStart uint64 `json:"starved_at_start"`
	// part of starved_ticks: the last action ran again (--fallback repeat_last)
	Repeated uint64 `json:"starved_repeated"`
	// observations that a newer one replaced before they left
	Replaced   uint64 `json:"observations_replaced"`
	SendErrors uint64 `json:"send_errors"` // observations that could not be sent
	// ticks of the window in which allocations are counted: from the end of the warm-up to the end
	// of the run
	MallocWindow uint64 `json:"path_mallocs_ticks"`
	MallocBytes  uint64 `json:"path_mallocs_bytes"` // bytes, allocated during path_mallocs_ticks
	// part of gc_cycles: started by the program; the memory limit started the others
	ForcedGC    uint64       `json:"gc_forced"`
	Sessions    uint64       `json:"sessions_opened"`       // sessions opened at servers
	Corrections *Corrections `json:"corrections,omitempty"` // absent without --leader
	FirstRun    bool         `json:"first_run,omitempty"`   // the bundle was new to this arm, so the arm started slowly
	// digests of the bundles that drove the arm, in their order; absent unless the model changed
	// (--model-change episode)
	Models []string `json:"models,omitempty"`
	// differences of the first observations from the policy's training, as sentences
	Findings []string `json:"observation_findings,omitempty"`
	// ms, age limit of actions at the end: --max-action-age, else the limit that the policy needs;
	// 0: no limit
	MaxAgeMS float64 `json:"max_action_age_ms"`
}

// Corrections counts the take-overs by people.
type Corrections struct {
	Takeovers uint32 `json:"takeovers"` // requested take-overs: by edge-rt ctl correct, or a push
	Ticks     uint64 `json:"ticks"`     // ticks on which a person drove the arm
}

// status reads the counters of a run.
func (e *Edge) status() Status {
	st := e.control.stats
	s := Status{
		Status:        e.drive.Status(),
		Server:        serverSummary(e.control.in.Sessions().Newest),
		StarvedTicks:  st.starved.Load(),
		Actions:       st.actions.Load(),
		ActionsTooOld: st.tooOld.Load(),
		ActionAgeMS:   drive.Short(st.age, time.Millisecond),
		Requests:      st.requests.Load(),
		Chunks:        st.chunks.Load(),
		ChunksDropped: st.dropTotals(e.link.Stats),
		RTTms:         drive.Short(st.rtt, time.Millisecond),
		NetworkMS:     drive.Short(st.network, time.Millisecond),
		Profile:       e.cfg.Profile,
		BufferMS:      drive.Millis(time.Duration(st.buffer.Load())),
	}
	s.ID, s.FPS = e.identity.ID, e.cfg.rate()
	s.Schedule, s.Task = e.cfg.Schedule.Schedule, e.control.out.TaskText()
	s.InState, s.Episodes = st.seconds(), e.episodes.Status()
	if h := e.control.out.Steps; h != nil {
		anew, full := h.Counts()
		s.History = &History{Steps: h.N, Anew: anew, NoRoom: full}
	}
	s.Leader = e.remotes.Stats(e.clock.Now())
	score := e.sims.Score()
	s.Targets, s.Collisions = score.Reached, score.Collided
	return s
}

func (e *Edge) summarize(err error) *Summary {
	c := e.control
	st := e.control.stats
	s := &Summary{
		Status:       e.status(),
		Totals:       e.drive.Totals(e.arms.Stats(), e.cameras),
		Phases:       map[string]drive.ShortQuantiles{"tick": drive.Short(c.phases.Whole(), time.Microsecond)},
		Compat:       e.cfg.Schedule.Compat,
		Multiplier:   c.core.Stages.Multiplier(),
		Horizon:      e.contract.Horizon,
		SMin:         c.core.Schedule.View().SMin,
		LatencySteps: c.core.Schedule.View().Estimate,
		StarvedBus:   st.starvedBus.Load(),
		StarvedStart: st.starvedStart.Load(),
		Repeated:     st.repeated.Load(),
		Replaced:     e.link.Stats.Replaced.Load(),
		SendErrors:   e.link.Stats.SendErrors.Load(),
		Sessions:     c.in.Sessions().Opened,
		FirstRun:     e.firstRun.Load(),
		MaxAgeMS:     drive.Millis(c.core.MaxAge),
		Findings:     e.sender.Findings(),
	}
	if models := e.models.Load(); models != nil {
		s.Models = *models
	}
	s.HeldAll = st.heldAll.Load()
	s.Exit = drive.EndingOf(err, e.drive.Asked(e.cfg.Episodes.Count, s.HeldAll))
	grant := e.drive.Grant()
	s.RT = drive.Granted{Granted: grant.Granted, Why: grant.Why}
	var sum sim.Score
	for i, score := range e.scores {
		sum.Add(score)
		if s.Parts != nil && e.simulated() {
			s.Parts[i].Targets, s.Parts[i].Collisions = score.Reached, score.Collided
		}
	}
	s.Targets, s.Collisions = sum.Reached, sum.Collided
	s.Timeouts = sum.Timeouts
	s.Page = e.page.Stats()
	if e.led() {
		s.Corrections = &Corrections{st.takeovers.Load(), st.corrected.Load()}
	}
	s.Record = e.recording.Stats()
	if h := &e.heap; h.closed {
		s.PathMallocs, s.GCCycles = h.to.Allocs-h.from.Allocs, h.to.Cycles-h.from.Cycles
		s.ForcedGC, s.MallocWindow = h.to.Forced-h.from.Forced, h.last-h.first
		s.MallocBytes = h.to.Bytes - h.from.Bytes
	}
	for i, name := range phaseNames {
		s.Phases[name] = drive.Short(c.phases.Part(i), time.Microsecond)
	}
	return s
}

// WriteJSON writes the summary as one indented JSON object.
func (s *Summary) WriteJSON(w io.Writer) error { return drive.WriteJSON(w, s) }

// NotOpened returns the summary when edge-rt ended before the run began. It has only the reason.
func NotOpened(err error) *Summary {
	s := &Summary{Status: Status{ChunksDropped: map[string]uint64{}}, Phases: map[string]drive.ShortQuantiles{}}
	s.InState, s.Frames = map[string]float64{}, map[string]drive.Frames{}
	s.Exit = drive.EndingOf(err, "stopped before the arm was opened")
	return s
}

// WriteTable writes the summary for people.
func (s *Summary) WriteTable(w io.Writer) error {
	schedule := s.Schedule
	if s.Compat {
		schedule += " --compat"
	}
	if s.Profile != "" {
		schedule += ", profile " + s.Profile
	}
	return drive.WriteTable(w, schedule, &s.Status.Status, &s.Totals, func(row drive.Row) {
		row("phases", "p50/p99 us: %s", phases(s.Phases))
		row("requests", "%d sent, %d chunks merged, dropped %s", s.Requests, s.Chunks,
			drive.List(s.ChunksDropped, "%d"))
		row("round trip", "p50 %.1f ms, p99 %.1f ms, max %.1f ms; network p50 %.1f ms; estimate %d ticks",
			s.RTTms.P50, s.RTTms.P99, s.RTTms.Max, s.NetworkMS.P50, s.LatencySteps)
		if s.BufferMS > 0 {
			row("buffer", "%.0f ms", s.BufferMS)
		}
		row("actions", "%d, age p50 %.0f ms, p99 %.0f ms, max %.0f ms; starved ticks %d", s.Actions, s.ActionAgeMS.P50,
			s.ActionAgeMS.P99, s.ActionAgeMS.Max, s.StarvedTicks)
		row("memory", "%d allocations and %d collections in %d ticks, RSS %.0f MB", s.PathMallocs, s.GCCycles,
			s.MallocWindow, s.RSSMB)
		if l := s.Leader; l != nil {
			row("leader", "%s", l)
		}
		if h := s.History; h != nil {
			row("history", "%d observations together, begun anew %d times, %d steps left out", h.Steps, h.Anew,
				h.NoRoom)
		}
		if s.FirstRun {
			row("first run", "of this bundle on this arm: it started slowly")
		}
		if c := s.Corrections; c != nil {
			row("corrections", "%d times, %d ticks", c.Takeovers, c.Ticks)
		}
	})
}

func phases(all map[string]drive.ShortQuantiles) string {
	var out []string
	for _, name := range append(phaseNames[:], "tick") {
		if q, ok := all[name]; ok {
			out = append(out, fmt.Sprintf("%s %.0f/%.0f", name, q.P50, q.P99))
		}
	}
	return strings.Join(out, "  ")
}
