package edge

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/page"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/webpage/metric"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/otlp"
)

// metrics returns the answer to /metrics, in Prometheus's format.
func (e *Edge) metrics() http.Handler { return metric.Handler(e.newMetrics) }

// newMetrics returns the metrics of the run. Owner: one goroutine at a time.
func (e *Edge) newMetrics() *metric.Set {
	set := new(metric.Set)
	var live *Live
	e.drive.AddMetrics(set, func() drive.Metered {
		live = e.live()
		m := drive.Metered{Status: &live.Status.Status, Live: &live.Live, Cycle: e.drive.Sum(e.arms.Stats()).Cycle}
		m.Hottest, m.Lowest = e.arms.Extremes()
		return m
	})
	e.addPolicyMetrics(set, func() *Live { return live })
	return set
}

// telemetry publishes the metrics of a run for an operator's tools. Owner: the housekeeping goroutine.
type telemetry struct {
	every time.Duration
	next  rt.Instant
	set   *metric.Set
	to    wire.Publisher // nil: off
}

// openTelemetry prepares the telemetry if --telemetry selects it.
func (e *Edge) openTelemetry() error {
	t := &e.housekeeping.telemetry
	if t.every = e.cfg.Telemetry; t.every == 0 {
		return nil
	}
	key, err := wire.TelemetryKey(e.contract.Prefix, e.identity.ID)
	if err != nil {
		return err
	}
	t.set = e.newMetrics()
	if t.to, err = e.net.Publisher(key, wire.TelemetryQoS); err != nil {
		return err
	}
	e.collectWithoutPage()
	e.log.Info("telemetry", "key", key, "every", t.every)
	return nil
}

// openTraces prepares the traces if --traces selects them.
func (e *Edge) openTraces() error {
	switch {
	case e.cfg.Traces == "":
		return nil
	case e.record == nil:
		return exit.Errorf(exit.Usage, "--traces: an arm of so many joints has no record to make them from")
	}
	to, err := otlp.Open(e.cfg.Traces, "edge-rt", e.identity.ID, func(why string) {
		e.log.Warn("traces are lost until the collector takes them", "why", why)
	})
	if err != nil {
		return err
	}
	e.onClose(func() {
		to.Close()
		e.log.Info("traces", "sent", to.Sent.Load(), "dropped", to.Dropped.Load())
	})
	e.record.Visit(recording.Traces(to, e.record.Wall))
	e.collectWithoutPage()
	return nil
}

// collectWithoutPage starts the thread that collects the garbage of telemetry and traces, unless it
// runs already or the page's thread does this.
func (e *Edge) collectWithoutPage() {
	if e.collects || e.page != nil || e.exporter != nil {
		return
	}
	e.collects = true
	done := make(chan struct{})
	e.onClose(func() { close(done) })
	go page.Collect(done, func() (uint64, bool) { return e.drive.Stats().Ticks, true }, new(atomic.Uint64))
}

func (t *telemetry) look(now rt.Instant) {
	if t.to == nil || now < t.next {
		return
	}
	t.next = now.Add(t.every)
	if text, err := t.set.JSON(drive.MetricPrefix); err == nil {
		_ = t.to.Put(text, nil) // a lost link is reported elsewhere
	}
}

// addPolicyMetrics adds the metrics that only a run of a policy has.
func (e *Edge) addPolicyMetrics(set *metric.Set, live func() *Live) {
	st := e.control.stats
	for _, c := range []struct {
		name, help string
		of         func() uint64
	}{
		{"actions_total", "Actions that ran.", st.actions.Load},
		{"starved_ticks_total", "Ticks without an action though one was due.", st.starved.Load},
		{"starved_by_bus_ticks_total", "Starved ticks on which the bus was silent.", st.starvedBus.Load},
		{"starved_at_start_ticks_total", "Starved ticks before the first chunk of an episode, up to --degraded-after.",
			st.starvedStart.Load},
		{"actions_too_old_total", "Actions that did not run because they were too old.", st.tooOld.Load},
		{"held_ticks_total", "Ticks on which no joint was driven because the motors complained.", st.heldAll.Load},
		{"requests_total", "Requests for a chunk.", st.requests.Load},
		{"chunks_total", "Chunks merged into the schedule.", st.chunks.Load},
		{"observations_replaced_total", "Observations that a newer one replaced before they left.",
			e.link.Stats.Replaced.Load},
		{"send_errors_total", "Observations that could not be sent.", e.link.Stats.SendErrors.Load},
		{"sessions_total", "Sessions opened at servers.", func() uint64 { return e.control.in.Sessions().Opened }},
	} {
		set.Counter(drive.MetricPrefix+c.name, c.help, nil, func() float64 { return float64(c.of()) })
	}
	set.Counters(drive.MetricPrefix+"chunks_dropped_total", "Chunks that were not merged, by reason.", "reason",
		func(v *metric.Vector) {
			for reason, n := range live().ChunksDropped {
				v.Add(reason, float64(n))
			}
		})
	for _, g := range []struct {
		name, help string
		of         func() float64
	}{
		{"queue_actions", "Actions that wait.", func() float64 { return float64(live().Queue) }},
		{"runway_seconds", "Time for which the actions that wait last.",
			func() float64 { return float64(live().Queue) / e.cfg.FPS }},
		{"session_open", "1 while a session is open.", func() float64 {
			if e.control.in.Sessions().Open != nil {
				return 1
			}
			return 0
		}},
		{"episode", "Number of the episode.", func() float64 { return float64(live().Episode) }},
	} {
		set.Gauge(drive.MetricPrefix+g.name, g.help, nil, g.of)
	}
	set.Gauges(drive.MetricPrefix+"model_info", "1 for the bundle of the newest session, by its sha256.", "sha256",
		func(v *metric.Vector) {
			if s := live().Server; s != nil {
				v.Add(s.SHA256, 1)
			}
		})
	set.Gauges(drive.MetricPrefix+"certificate_end_timestamp_seconds", "End of the validity of a certificate file.",
		"file", func(v *metric.Vector) {
			security := e.cfg.transport().TLS
			security.Ends(func(file string, end time.Time) { v.Add(file, float64(end.Unix())) })
		})
	for _, h := range []struct {
		name, help string
		of         *rt.Hist
	}{
		{"action_age_seconds", "From the measurement of an action's state, or its oldest picture, to its run.", st.age},
		{"round_trip_seconds", "From the reading of a request's state to the merge of its chunk.", st.rtt},
		{"network_seconds", "A round trip less the time that the server reports.", st.network},
	} {
		set.Durations(drive.MetricPrefix+h.name, h.help, func() *rt.Hist { return h.of })
	}
}
