package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/rollout"
	"github.com/edge-rt/edge-rt/server/status"
)

const (
	// timelineMax is the time that the page's timeline of runs covers.
	timelineMax = 5 * time.Second
	// quietAfter is how long a robot may send nothing before the page marks it as quiet.
	quietAfter = 2 * time.Second

	loadingText = "loading the policy"
)

// Live is the content of the page.
type Live struct {
	State    string       `json:"state"`            // the server's state in a few words
	Ready    bool         `json:"ready"`            // robots get chunks
	Why      string       `json:"why,omitempty"`    // reason when it is not ready or not healthy
	Warnings []string     `json:"warnings"`         // conditions that need a person
	Server   *LiveServer  `json:"server,omitempty"` // absent while the policy loads
	Sessions LiveSessions `json:"sessions"`
	Totals   *LiveTotals  `json:"totals,omitempty"` // counters since the start
	Times    LiveTimes    `json:"times_ms"`
	Device   LiveDevice   `json:"device"`
	Program  *LiveProgram `json:"program,omitempty"` // program that computes the policy; absent: the server does
	Fronts   []LiveFront  `json:"fronts,omitempty"`  // fronts that listen
	Rollout  *LiveRollout `json:"rollout,omitempty"` // absent without a roll-out
}

// LiveRollout is the state of a roll-out, and the robots of both models.
type LiveRollout struct {
	State    string   `json:"state"`               // loading, serving, leaving, failed, or off
	Why      string   `json:"why,omitempty"`       // why the new model is not served, or the reason of the wait
	Edit     string   `json:"edit,omitempty"`      // why the manifest's newest content is not used
	Restart  []string `json:"restart,omitempty"`   // edited keys outside the block, which need a restart
	Bundle   string   `json:"bundle"`              // folder of the new bundle
	SHA256   string   `json:"sha256,omitempty"`    // digest of the new bundle; absent: it is not loaded
	ServerID string   `json:"server_id,omitempty"` // server_id of the new model's server
	Share    float64  `json:"share"`               // share, part of the robots that gets the new model
	Robots   []string `json:"robots"`              // robots that get the new model whatever the share is
	Keep     []string `json:"keep"`                // robots that never get the new model
	Old      int      `json:"old"`                 // open sessions with the first model
	New      int      `json:"new"`                 // open sessions with the new model
	Moving   int      `json:"moving"`              // robots that get the other model when their run allows it
}

// LiveFront is a front for clients of a foreign protocol, with its counts since the start.
type LiveFront struct {
	Protocol string `json:"protocol"` // lerobot or openpi
	Listen   string `json:"listen"`   // address of the front
	Clients  uint64 `json:"clients"`  // clients that connected
	Answered uint64 `json:"answered"` // chunks
	Refused  uint64 `json:"refused"`  // messages and sessions
}

// LiveServer identifies the policy and the server.
type LiveServer struct {
	Prefix      string  `json:"prefix"`      // beginning of the server's keys
	ID          string  `json:"server_id"`   // the server's own name among replicas
	Host        string  `json:"host"`        // name of the machine
	Version     string  `json:"version"`     // version of the program
	Model       string  `json:"model"`       // id of the model
	Revision    string  `json:"revision"`    // revision of the model
	Policy      string  `json:"policy_type"` // type of the policy
	SHA256      string  `json:"sha256"`      // digest of the bundle
	Device      string  `json:"device"`      // device of the policy
	ONNXRuntime string  `json:"onnxruntime"` // version of ONNX Runtime, or of the program of another runtime
	Runtime     string  `json:"runtime"`     // model.runtime of the manifest
	Scheduler   string  `json:"scheduler"`   // order of the robots
	MaxBatch    int     `json:"max_batch"`   // largest number of robots that share an inference
	FPS         float64 `json:"fps"`         // Hz, rate that the policy was trained at
	Chunk       int     `json:"chunk"`       // actions in a chunk
}

// LiveProgram is the state of the program that computes the policy.
type LiveProgram struct {
	State     string  `json:"state"`      // the program's state in a few words
	Why       string  `json:"why"`        // reason of the program's last failure
	Failures  uint64  `json:"failures"`   // unexpected ends of the program or its connection
	Restarts  uint64  `json:"restarts"`   // starts or connections after the first
	Errors    uint64  `json:"errors"`     // answers that are an error, or of another form than described
	Timeouts  uint64  `json:"timeouts"`   // batches that exceeded their time limit
	MemoryMiB float64 `json:"memory_mib"` // MiB, memory of the program; 0: unknown
}

// LiveSessions lists the sessions that match the query.
type LiveSessions struct {
	Open  int           `json:"open"`  // open sessions
	Max   int           `json:"max"`   // largest number of sessions that the server takes
	Found int           `json:"found"` // open sessions that match the query
	Rows  []LiveSession `json:"rows"`  // not more than the query allows
}

// LiveSession is one row of the list.
type LiveSession struct {
	Name       string          `json:"name"`           // the robot
	Model      string          `json:"sha256"`         // digest of the model that the robot uses
	Host       string          `json:"host,omitempty"` // host of the robot's process
	Task       string          `json:"task,omitempty"` // the robot's task, or the task of a reset
	Tags       json.RawMessage `json:"tags,omitempty"` // the robot's tags
	Why        string          `json:"why"`            // streams, quiet, or gone
	RunwayMs   *float64        `json:"runway_ms"`      // ms, runway in the robot's last request; null: not given
	LatencyMs  *float64        `json:"latency_ms"`     // ms, latency of the robot's last chunk; null: no chunk yet
	SeenMs     float64         `json:"seen_ms"`        // ms, since the robot's last observation, or its open
	Received   uint64          `json:"received"`       // observations that were not late
	Answered   uint64          `json:"answered"`       // chunks
	Superseded uint64          `json:"superseded"`     // observations that a newer one replaced before their turn
	Late       uint64          `json:"late"`           // observations passed over for other robots
	Failed     uint64          `json:"failed"`         // observations that had their turn and got no chunk
	Stale      uint64          `json:"stale_pictures"` // pictures older than the robot allows
}

// LiveTotals are the counters that the page shows. The maps have no entries with the value 0.
type LiveTotals struct {
	Chunks       uint64            `json:"chunks"`       // observations that were answered
	Failed       map[string]uint64 `json:"failed"`       // [outcome] observations that had their turn and got no chunk
	Refused      map[string]uint64 `json:"refused"`      // [reason] refused sessions
	Conditioning map[string]uint64 `json:"conditioning"` // [mode] chunks by the treatment of their prefix
	Fairness     float64           `json:"fairness"`     // share, Jain's index of the robots' shares of answers
	Dropped      map[string]uint64 `json:"dropped"`      // [reason] observations that had no turn
	Transport    map[string]uint64 `json:"transport"`    // [reason] messages that the links lost
	Opened       uint64            `json:"opened"`       // opened sessions
	Closed       uint64            `json:"closed"`       // closed sessions
	Probes       uint64            `json:"probes"`       // the server's own inferences
	Reruns       uint64            `json:"reruns"`       // batches that failed and ran again one by one
}

// LiveTimes are the durations since the start.
type LiveTimes struct {
	QueueWait Quantiles `json:"queue_wait"` // ms, from an observation's arrival to its inference, less decoding
	Decode    Quantiles `json:"decode"`     // ms, message and pictures into the model's input
	Inference Quantiles `json:"inference"`  // ms, ONNX Runtime
	Service   Quantiles `json:"service"`    // ms, from an observation's arrival to its chunk's hand-over
	Runway    Quantiles `json:"runway"`     // ms, time until the robot's actions end, at an observation's arrival
}

// LiveDevice is the recent work of the device.
type LiveDevice struct {
	NowMs  float64 `json:"now_ms"`  // ms, the server's clock; only differences are meaningful
	BusyMs float64 `json:"busy_ms"` // ms, all inferences
	// runs of the last 5 s, oldest first: begin (ms before now), length (ms), rows, requests, and 1 if the run failed
	Runs []LiveRun `json:"runs"`
}

// LiveRun is begin (before now) and length in ms, rows, requests, and 1 when the run failed.
type LiveRun [5]float64

// showLive returns the content of the page; s is nil while the policy loads.
func showLive(s *Server, q status.Query) *Live {
	l := &Live{
		State:    loadingText,
		Warnings: []string{},
		Sessions: LiveSessions{Rows: []LiveSession{}},
		Device:   LiveDevice{Runs: []LiveRun{}},
	}
	if s == nil {
		return l
	}
	now := s.clock.Now()
	l.describe(s)
	if away := s.worker.engine.away; away != nil {
		c := away.Condition()
		l.Program = &LiveProgram{
			State:     c.State,
			Why:       c.Why,
			Failures:  c.Failures,
			Restarts:  c.Restarts,
			Errors:    c.Errors,
			Timeouts:  c.Timeouts,
			MemoryMiB: round(mib(c.Memory)),
		}
	}
	for _, f := range frontsOf(&s.cfg) {
		if c := &s.stats.fronts; f.address != "" {
			l.Fronts = append(l.Fronts, LiveFront{
				Protocol: f.kind.String(),
				Listen:   f.address,
				Clients:  c.Clients[f.kind].Load(),
				Answered: c.Answered[f.kind].Load(),
				Refused:  sum(c.Refused[f.kind][:]),
			})
		}
	}
	l.rollOut(s)
	l.judge(s)
	l.list(s, q, now)
	l.Totals = s.totals()
	l.Times = LiveTimes{quantiles(s.stats.wait.Hist), quantiles(s.stats.decode.Hist), quantiles(s.stats.inference.Hist),
		quantiles(s.stats.service.Hist), quantiles(s.stats.runway.Hist)}
	l.Device.read(s, now)
	return l
}

// read sets the runs of all models.
func (d *LiveDevice) read(s *Server, now rt.Instant) {
	d.NowMs = round(ms(time.Duration(now)))
	for _, model := range s.models() {
		past := &model.worker.engine.past
		d.BusyMs += round(ms(past.Busy()))
		for _, r := range past.Read(make([]batch.Run, 0, batch.PastMax)) {
			if now.Sub(r.Begun) <= timelineMax {
				failed := 0.0
				if r.Failed {
					failed = 1
				}
				d.Runs = append(d.Runs, LiveRun{round(ms(now.Sub(r.Begun))), round(ms(r.Took)), float64(r.Size),
					float64(r.Requests), failed})
			}
		}
	}
	slices.SortStableFunc(d.Runs, func(a, b LiveRun) int { return cmp.Compare(b[0], a[0]) })
}

// rollOut sets the state of a roll-out.
func (l *Live) rollOut(s *Server) {
	r := s.rollout.Report()
	if r.State == rollout.Off && r.Plan.Model.RepoOrPath == "" && r.Edit == "" && len(r.Restart) == 0 {
		return
	}
	l.Rollout = &LiveRollout{
		State:    r.State.String(),
		Why:      r.Why,
		Edit:     r.Edit,
		Restart:  r.Restart,
		Bundle:   r.Plan.Model.RepoOrPath,
		SHA256:   r.SHA256,
		ServerID: r.ServerID,
		Share:    r.Plan.Share,
		Robots:   append([]string{}, r.Plan.Robots...),
		Keep:     append([]string{}, r.Plan.Keep...),
		Old:      len(s.sessions.all()),
		New:      s.sessions.count() - len(s.sessions.all()),
	}
	for _, model := range s.models() {
		for _, session := range model.sessions.all() {
			if session.extended && r.New(session.uuid) != (model != s) {
				l.Rollout.Moving++
			}
		}
	}
}

func (l *Live) describe(s *Server) {
	host, _ := os.Hostname()
	l.Server = &LiveServer{
		Prefix:      s.prefix,
		ID:          s.id,
		Host:        host,
		Version:     s.cfg.Version,
		Model:       s.caps.ModelRepo,
		Revision:    s.caps.ModelRevision,
		Policy:      s.caps.PolicyType,
		SHA256:      s.caps.ModelSHA256,
		Device:      s.placement.Device.String(),
		ONNXRuntime: s.runtime,
		Runtime:     cmp.Or(s.cfg.Model.Runtime, manifest.RuntimeONNX),
		Scheduler:   s.cfg.Scheduler,
		MaxBatch:    s.worker.engine.model.MaxBatch(),
		FPS:         s.caps.TrainedFPS,
		Chunk:       s.caps.ChunkSize,
	}
}

// judge sets the server's state in words, and the warnings on which a person has to act.
func (l *Live) judge(s *Server) {
	healthy, why := s.healthy()
	l.Ready, l.Why = s.ready()
	switch {
	case !s.phase.warmed.Load():
		l.State = "warming up"
	case s.worker.engine.failed.Load() != nil:
		l.State, l.Why = "the device failed", why
	case s.phase.draining.Load():
		l.State, l.Why = "draining", "robots are sent to other servers"
	case !healthy:
		l.State, l.Why = "stuck", why
	case l.Ready:
		l.State = "serving"
	default:
		l.State = "not ready"
	}
	warn := func(when bool, text string) {
		if when {
			l.Warnings = append(l.Warnings, text)
		}
	}
	warn(s.instead() != "", "the policy computes on the CPU instead of a GPU: "+s.instead())
	warn(s.missing.Lost() > 0, "lines of the log were lost: its reader is too slow or has stopped")
	warn(s.audit.Counted().LinesDropped.Load() > 0, "audit lines were lost: the disk is too slow")
	warn(s.sessions.count() >= s.sessions.capacity(), "full: new robots are sent to other servers")
	warn(s.transportStats().Revoked > 0, "links were ended because the memory for messages was used up")
	warn(s.worker.engine.away == nil && s.stats.probes[probeFailed].Load() > 0, // else the program's state shows why
		"runs of the server's own have failed: look at the device")
	if r := l.Rollout; r != nil {
		warn(r.State == rollout.Failed.String(), "the roll-out of "+r.Bundle+" failed, and the first model serves "+
			"all robots: "+r.Why)
		warn(r.Edit != "", "the manifest's newest content is not used, and the roll-out stays as it was: "+r.Edit)
		warn(len(r.Restart) > 0, "keys of the manifest have changed and need a restart: "+strings.Join(r.Restart, ", "))
	}
	if p := l.Program; p != nil {
		warn(p.Failures+p.Errors+p.Timeouts > 0,
			fmt.Sprintf("the policy's program (%s) has failed %d times, reported %d "+
				"errors and was too slow %d times; the last reason: %s", p.State, p.Failures, p.Errors, p.Timeouts,
				p.Why))
	}
	l.Warnings = append(l.Warnings, s.certificates.texts()...)
}

func (l *Live) list(s *Server, q status.Query, now rt.Instant) {
	l.Sessions.Open, l.Sessions.Max = s.sessions.count(), s.sessions.capacity()
	rows := make([]LiveSession, 0, l.Sessions.Open)
	for _, model := range s.models() {
		for _, session := range model.sessions.all() {
			if q.Find == "" || strings.Contains(session.uuid, q.Find) {
				row := session.live(now)
				row.Model = model.caps.ModelSHA256
				rows = append(rows, row)
			}
		}
	}
	l.Sessions.Found = len(rows)
	slices.SortFunc(rows, func(a, b LiveSession) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(rows, func(a, b LiveSession) int { return compareSessions(&a, &b, q.Sort) })
	l.Sessions.Rows = rows[:min(len(rows), q.Rows)]
}

// compareSessions sorts the sessions that need attention to the top.
func compareSessions(a, b *LiveSession, sort string) int {
	runway := func(l *LiveSession) float64 { // the last runway of a robot that no longer sends is out of date
		if l.RunwayMs == nil || l.Why != "streams" {
			return math.Inf(1)
		}
		return *l.RunwayMs
	}
	or := func(v *float64, none float64) float64 {
		if v == nil {
			return none
		}
		return *v
	}
	switch sort {
	case "runway":
		return cmp.Compare(runway(a), runway(b))
	case "latency":
		return cmp.Compare(or(b.LatencyMs, -1), or(a.LatencyMs, -1))
	case "drops":
		return cmp.Compare(b.Superseded+b.Late+b.Failed, a.Superseded+a.Late+a.Failed)
	case "quiet":
		return cmp.Compare(b.SeenMs, a.SeenMs)
	}
	return 0
}

// live returns the session's row on the page.
func (s *session) live(now rt.Instant) LiveSession {
	l := LiveSession{
		Name:       s.uuid,
		Host:       s.host,
		Task:       s.opened.text,
		Tags:       json.RawMessage(s.tags),
		Why:        "streams",
		SeenMs:     round(ms(now.Sub(rt.Instant(s.seenAt.Load())))),
		Received:   s.received.Load(),
		Answered:   s.answered.Load(),
		Superseded: s.shown.superseded.Load(),
		Late:       s.shown.passedOver.Load(),
		Failed:     s.shown.failed.Load(),
		Stale:      s.stalePictures.Load(),
	}
	if announced := s.announced.Load(); announced != nil {
		l.Task = announced.text
	}
	if v := s.shown.runway.Load(); v >= 0 {
		l.RunwayMs = new(round(ms(time.Duration(v))))
	}
	if v := s.shown.service.Load(); v >= 0 {
		l.LatencyMs = new(round(ms(time.Duration(v))))
	}
	switch {
	case !s.alive():
		l.Why = "gone"
	case l.SeenMs > ms(quietAfter):
		l.Why = "quiet"
	}
	return l
}

// totals returns the counters that the page shows.
func (s *Server) totals() *LiveTotals {
	st, t := s.stats, s.transportStats()
	some := func(counts map[string]uint64) map[string]uint64 {
		maps.DeleteFunc(counts, func(_ string, n uint64) bool { return n == 0 })
		return counts
	}
	failed := s.byLabel("outcomes_total")
	delete(failed, audit.Answered.String())
	return &LiveTotals{
		Chunks:       st.outcomes[audit.Answered].Load(),
		Failed:       failed,
		Refused:      s.byLabel("opens_rejected_total"),
		Conditioning: s.byLabel("conditioning_total"),
		Fairness:     round(fairness(s.sessions.everywhere())),
		Dropped: some(map[string]uint64{
			"superseded":      st.superseded.Load(),
			"late":            st.late.Load(),
			"gave way":        st.passedOver.Load(),
			"memory":          st.noRoom.Load(),
			"unknown session": st.unknown.Load(),
			"malformed":       st.malformed.Load(),
		}),
		Transport: some(map[string]uint64{
			"congested":       t.Dropped,
			"chunks replaced": st.replaced.Load(),
			"fragments":       t.Unassembled,
			"late frames":     t.StaleSN,
			"relayed":         t.RelayDropped,
		}),
		Opened: st.opened.Load(),
		Closed: st.closed.Load(),
		Probes: st.probes[probeOK].Load(),
		Reruns: st.reruns.Load(),
	}
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

// Summary is the result of a run, printed at its end as a table and with --json.
type Summary struct {
	Service    string `json:"service"`    // beginning of the server's keys
	ServerID   string `json:"server_id"`  // the server's own name among replicas
	Device     string `json:"device"`     // device of the policy, such as cpu or cuda:0
	Requests   uint64 `json:"requests"`   // observations that were answered with a chunk
	Errors     uint64 `json:"errors"`     // observations that had their turn and got no chunk
	Superseded uint64 `json:"superseded"` // observations that a newer one of their robot replaced before their turn
	// observations refused because a newer one had arrived
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
	GCCycles    uint64    `json:"gc_cycles"`    // garbage collections since the worker was ready
	// part of gc_cycles: between two requests, or at the start of an inference
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
	MostMB  float64 `json:"most_mb"` // MiB, largest memory in use so far
}

// Ending is the end of the process.
type Ending struct {
	Code   int    `json:"code"`   // exit code
	Reason string `json:"reason"` // why the server ended
}

// longestPause returns the longest stop by a garbage collection since the server began to serve.
func (s *Server) longestPause() time.Duration {
	if s.baseline.Load() == nil {
		return 0
	}
	return s.pauses.Max()
}

// summary returns the counters since the start.
func (s *Server) summary() Summary {
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
			Active:  s.sessions.count(),
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
