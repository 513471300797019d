package server

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/server/status"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const (
	// timelineMax is the length of the page's timeline of runs.
	timelineMax = 5 * time.Second
	// quietAfter is how long a robot may send nothing before the page marks it as quiet.
	quietAfter = 2 * time.Second

	loadingText = "loading the policy"
)

// Live is the content of the page. docs/page.md describes its keys.
type Live struct {
	State    string         `json:"state"` // one word, or a few
	Ready    bool           `json:"ready"`
	Why      string         `json:"why,omitempty"` // reason when it is not ready or not healthy
	Warnings []string       `json:"warnings"`
	Server   *LiveServer    `json:"server,omitempty"` // absent while the policy loads
	Sessions LiveSessions   `json:"sessions"`
	Totals   map[string]any `json:"totals,omitempty"`
	Times    LiveTimes      `json:"times_ms"`
	Device   LiveDevice     `json:"device"`
}

// LiveServer identifies the policy and the server.
type LiveServer struct {
	Prefix      string  `json:"prefix"`
	ID          string  `json:"server_id"`
	Host        string  `json:"host"`
	Version     string  `json:"version"`
	Model       string  `json:"model"`
	Revision    string  `json:"revision"`
	Policy      string  `json:"policy_type"`
	SHA256      string  `json:"sha256"`
	Device      string  `json:"device"`
	ONNXRuntime string  `json:"onnxruntime"`
	Scheduler   string  `json:"scheduler"`
	MaxBatch    int     `json:"max_batch"`
	FPS         float64 `json:"fps"`
	Chunk       int     `json:"chunk"`
}

// LiveSessions lists the sessions that match the query.
type LiveSessions struct {
	Open  int           `json:"open"`
	Max   int           `json:"max"`
	Found int           `json:"found"` // open sessions that match the query
	Rows  []LiveSession `json:"rows"`  // at most as many as the query allows
}

// LiveSession is one row of the list.
type LiveSession struct {
	Name       string          `json:"name"`
	Host       string          `json:"host,omitempty"`
	Task       string          `json:"task,omitempty"`
	Tags       json.RawMessage `json:"tags,omitempty"`
	Why        string          `json:"why"`        // streams, quiet, or gone
	RunwayMs   *float64        `json:"runway_ms"`  // of its last request; null: the request gave no runway
	LatencyMs  *float64        `json:"latency_ms"` // of its last chunk; null: it has had no chunk
	SeenMs     float64         `json:"seen_ms"`    // since its last observation, or its open
	Received   uint64          `json:"received"`
	Answered   uint64          `json:"answered"`
	Superseded uint64          `json:"superseded"`
	Late       uint64          `json:"late"`
	Failed     uint64          `json:"failed"`
	Stale      uint64          `json:"stale_pictures"`
}

// LiveTimes are the durations since the start.
type LiveTimes struct {
	QueueWait Quantiles `json:"queue_wait"`
	Decode    Quantiles `json:"decode"`
	Inference Quantiles `json:"inference"`
	Service   Quantiles `json:"service"`
	Runway    Quantiles `json:"runway"`
}

// LiveDevice is the recent work of the device.
type LiveDevice struct {
	NowMs  float64   `json:"now_ms"` // the server's clock; only differences are meaningful
	BusyMs float64   `json:"busy_ms"`
	Runs   []LiveRun `json:"runs"` // of the last seconds, oldest first
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
	l.judge(s)
	l.list(s, q, now)
	l.Totals = s.totals()
	l.Times = LiveTimes{quantiles(s.stats.wait.Hist), quantiles(s.stats.decode.Hist), quantiles(s.stats.inference.Hist),
		quantiles(s.stats.service.Hist), quantiles(s.stats.runway.Hist)}
	l.Device.NowMs, l.Device.BusyMs = round(ms(time.Duration(now))), round(ms(s.worker.engine.past.Busy()))
	for _, r := range s.worker.engine.past.Read(make([]batch.Run, 0, batch.PastMax)) {
		if now.Sub(r.Begun) <= timelineMax {
			failed := 0.0
			if r.Failed {
				failed = 1
			}
			l.Device.Runs = append(l.Device.Runs, LiveRun{round(ms(now.Sub(r.Begun))), round(ms(r.Took)),
				float64(r.Size), float64(r.Requests), failed})
		}
	}
	return l
}

func (l *Live) describe(s *Server) {
	host, _ := os.Hostname()
	onnx, _ := policy.RuntimeVersion()
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
		ONNXRuntime: onnx,
		Scheduler:   s.cfg.Scheduler,
		MaxBatch:    s.worker.engine.model.MaxBatch(),
		FPS:         s.caps.TrainedFPS,
		Chunk:       s.caps.ChunkSize,
	}
}

// judge sets the server's state in words, and the warnings that need a person.
func (l *Live) judge(s *Server) {
	healthy, why := s.healthy()
	l.Ready, l.Why = s.Ready()
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
	warn(s.placement.Instead != nil, "the policy computes on the CPU instead of a GPU: "+s.placement.Why())
	warn(s.lostLines() > 0, "lines of the log were lost: its reader is too slow or has stopped")
	warn(s.audit != nil && s.audit.Counts.LinesDropped.Load() > 0, "audit lines were lost: the disk is too slow")
	warn(len(s.sessions.all()) >= s.sessions.capacity(), "full: new robots are sent to other servers")
	warn(s.transportStat(func(t zenoh.Stats) uint64 {
		return t.Revoked
	}) > 0, "links were ended because the memory for messages was used up")
	warn(s.stats.probes[probeFailed].Load() > 0, "runs of the server's own have failed: look at the device")
	l.Warnings = append(l.Warnings, s.certificates.texts()...)
}

func (l *Live) list(s *Server, q status.Query, now rt.Instant) {
	all := s.sessions.all()
	l.Sessions.Open, l.Sessions.Max = len(all), s.sessions.capacity()
	rows := make([]LiveSession, 0, len(all))
	for _, session := range all {
		if q.Find == "" || strings.Contains(session.uuid, q.Find) {
			rows = append(rows, session.live(now))
		}
	}
	l.Sessions.Found = len(rows)
	// rows are sorted by name already
	slices.SortStableFunc(rows, func(a, b LiveSession) int { return compareSessions(&a, &b, q.Sort) })
	l.Sessions.Rows = rows[:min(len(rows), q.Rows)]
}

// compareSessions sorts the sessions that need attention to the top.
func compareSessions(a, b *LiveSession, sort string) int {
	runway := func(l *LiveSession) float64 { // the last runway of a robot that sends nothing is long over
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
func (s *Session) live(now rt.Instant) LiveSession {
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

// totals returns the counters that the page shows, those by reason without the zeros.
func (s *Server) totals() map[string]any {
	st := s.stats
	some := func(counts map[string]uint64) map[string]uint64 {
		for name, n := range counts {
			if n == 0 {
				delete(counts, name)
			}
		}
		return counts
	}
	outcomes := map[string]uint64{}
	for o := audit.Answered + 1; o < audit.NumOutcomes; o++ {
		outcomes[o.String()] = st.outcomes[o].Load()
	}
	modes := map[string]uint64{}
	for mode := range st.modes {
		modes[policy.Mode(mode).String()] = st.modes[mode].Load()
	}
	lost := func(value func(zenoh.Stats) uint64) uint64 { return uint64(s.transportStat(value)) }
	return map[string]any{
		"chunks": st.outcomes[audit.Answered].Load(), "failed": some(outcomes), "refused": st.refusals(),
		"conditioning": some(modes), "fairness": round(fairness(s.sessions.all())),
		"dropped": some(map[string]uint64{
			"superseded": st.superseded.Load(), "late": st.late.Load(), "gave way": st.passedOver.Load(),
			"memory": st.noRoom.Load(), "unknown session": st.unknown.Load(), "malformed": st.malformed.Load(),
		}),
		"transport": some(map[string]uint64{
			"congested": lost(func(t zenoh.Stats) uint64 {
				return t.Dropped
			}), "chunks replaced": st.replaced.Load(), "fragments": lost(func(t zenoh.Stats) uint64 {
				return t.Unassembled
			}),
			"late frames": lost(func(t zenoh.Stats) uint64 {
				return t.StaleSN
			}), "relayed": lost(func(t zenoh.Stats) uint64 { return t.RelayDropped }),
		}),
		"opened": st.opened.Load(), "closed": st.closed.Load(), "probes": st.probes[probeOK].Load(),
		"reruns": st.reruns.Load(),
	}
}

// round rounds to three decimals.
func round(v float64) float64 { return math.Round(v*1e3) / 1e3 }
