package server

import (
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"edgert/policy"
	"edgert/rt"
	"edgert/server/audit"
	"edgert/server/manifest"
	"edgert/wire"
	"edgert/wire/zenoh/access"
)

const metricPrefix = "lean_server_"

// metrics shows a server to Prometheus. It reads the counters when it is
// scraped: the request path only adds to atomics, and nothing is counted twice.
type metrics struct {
	*prometheus.Registry
	server func() *Server // nil before the policy is loaded; then everything is 0
}

// metricsOf returns the registry of a server that may come later; dropped counts the
// connections to the health port that gave way to others.
func metricsOf(server func() *Server, dropped *atomic.Uint64) *prometheus.Registry {
	m := &metrics{prometheus.NewRegistry(), server}
	m.countRequests()
	m.countSessions()
	m.countDevice()
	m.countAccess()
	m.countAudit()
	m.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: metricPrefix + "health_connections_dropped_total", Help: "Connections to this port that were closed because there were too many.",
	}, func() float64 { return float64(dropped.Load()) }))
	m.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), perServer(server))
	return m.Registry
}

func (m *metrics) counter(name, help string, labels prometheus.Labels, value func(*stats) *atomic.Uint64) {
	m.add(name, help, labels, func(s *Server) float64 { return float64(value(s.stats).Load()) })
}

func (m *metrics) add(name, help string, labels prometheus.Labels, value func(*Server) float64) {
	m.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: metricPrefix + name, Help: help, ConstLabels: labels}, m.read(value)))
}

func (m *metrics) gauge(name, help string, value func(*Server) float64) {
	m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricPrefix + name, Help: help}, m.read(value)))
}

func (m *metrics) read(value func(*Server) float64) func() float64 {
	return func() float64 {
		if s := m.server(); s != nil {
			return value(s)
		}
		return 0
	}
}

func (m *metrics) countRequests() {
	m.counter("requests_total", "Observations answered with a chunk.", nil, func(s *stats) *atomic.Uint64 { return &s.outcomes[audit.Answered] })
	for o := range audit.NumOutcomes {
		value := func(s *stats) *atomic.Uint64 { return &s.outcomes[o] }
		m.counter("outcomes_total", "Observations that had their turn, by how it ended.", prometheus.Labels{"outcome": o.String()}, value)
		if reason := o.String(); o != audit.Answered {
			if o == audit.InferenceFailed {
				reason = "inference" // its name since before outcomes had names
			}
			m.counter("errors_total", "Observations that had their turn and got no chunk.", prometheus.Labels{"reason": reason}, value)
		}
	}
	for reason, value := range map[string]func(*stats) *atomic.Uint64{
		"superseded":      func(s *stats) *atomic.Uint64 { return &s.superseded },
		"late":            func(s *stats) *atomic.Uint64 { return &s.late },
		"memory":          func(s *stats) *atomic.Uint64 { return &s.noRoom },
		"unknown_session": func(s *stats) *atomic.Uint64 { return &s.unknown },
		"malformed":       func(s *stats) *atomic.Uint64 { return &s.malformed },
	} {
		m.counter("observations_dropped_total", "Observations that never had a turn.", prometheus.Labels{"reason": reason}, value)
	}
	m.counter("late_requests_total", "Observations that others went before, because their robot's actions end before a chunk could come.", nil,
		func(s *stats) *atomic.Uint64 { return &s.gaveWay })
	for mode := policy.ModeFree; mode <= policy.ModeTrainedGuided; mode++ {
		m.counter("conditioning_total", "Chunks by what was done with the prefix.", prometheus.Labels{"mode": mode.String()},
			func(s *stats) *atomic.Uint64 { return &s.modes[mode] })
	}
	for use, name := range map[spanUse]string{spansFound: "found", spansMissing: "missed"} {
		m.counter("spans_total", "Requests that name rows of earlier chunks, by whether all were there.", prometheus.Labels{"outcome": name},
			func(s *stats) *atomic.Uint64 { return &s.spans[use] })
	}
	for n := range manifest.MaxBatch {
		m.counter("batches_total", "Inferences by how many requests shared them.", prometheus.Labels{"requests": strconv.Itoa(n + 1)},
			func(s *stats) *atomic.Uint64 { return &s.batches[n] })
	}
	m.counter("batch_reruns_total", "Inferences of several requests that failed and were repeated one by one.", nil, func(s *stats) *atomic.Uint64 { return &s.reruns })
	m.counter("observation_bytes_total", "Bodies of observations, served or not.", nil, func(s *stats) *atomic.Uint64 { return &s.receivedBytes })
	m.counter("chunk_bytes_total", "Bodies of chunks.", nil, func(s *stats) *atomic.Uint64 { return &s.sentBytes })
	m.counter("chunks_replaced_total", "Chunks that a newer one replaced before they left: the robot's link is slower than the policy.", nil,
		func(s *stats) *atomic.Uint64 { return &s.replaced })
	m.counter("events_silenced_total", "Events not sent because one was sent a moment ago.", nil, func(s *stats) *atomic.Uint64 { return &s.silenced })
	m.add("log_lines_lost_total", "Lines of the log that were dropped because nobody read it.", nil, func(s *Server) float64 { return float64(s.lostLines()) })
	m.counter("queries_lost_total", "Queries refused because too many were waiting.", nil, func(s *stats) *atomic.Uint64 { return &s.lostQuery })
}

func (m *metrics) countSessions() {
	m.counter("sessions_opened_total", "Sessions opened.", nil, func(s *stats) *atomic.Uint64 { return &s.opened })
	m.counter("sessions_closed_total", "Sessions closed.", nil, func(s *stats) *atomic.Uint64 { return &s.closed })
	m.add("sessions_refused_total", "Sessions refused.", nil, func(s *Server) float64 { return float64(sum(s.stats.refused[:])) })
	for r := range numRefused {
		m.counter("opens_rejected_total", "Sessions refused, by reason.", prometheus.Labels{"reason": r.String()},
			func(s *stats) *atomic.Uint64 { return &s.refused[r] })
	}
	flag := func(b *atomic.Bool) float64 {
		if b.Load() {
			return 1
		}
		return 0
	}
	m.gauge("active_sessions", "Sessions open now.", func(s *Server) float64 { return float64(len(s.sessions.all())) })
	m.gauge("fairness", "Jain's index of the shares of their observations that the open sessions got chunks for: 1 when all are alike.", func(s *Server) float64 { return fairness(s.sessions.all()) })
	m.gauge("mailbox_bytes", "Memory of the observations that wait or did so lately.", func(s *Server) float64 { return float64(s.pool.Bytes()) })
	m.gauge("max_sessions", "Sessions there is room for.", func(s *Server) float64 { return float64(s.limit) })
	m.gauge("warmed_up", "1 once the warm-up inferences are over.", func(s *Server) float64 { return flag(&s.warmed) })
	m.gauge("draining", "1 while the server is leaving.", func(s *Server) float64 { return flag(&s.draining) })
}

// countAccess shows what the listener denied to links with a certificate.
func (m *metrics) countAccess() {
	for kind := range access.NumMessages {
		m.add("access_denied_total", "Messages that the certificate of their link does not allow.", prometheus.Labels{"message": kind.String()}, func(s *Server) float64 {
			if s.access == nil {
				return 0
			}
			return float64(s.access.Denied[kind].Load())
		})
	}
}

func (m *metrics) countDevice() {
	for kind := range numSicknesses {
		m.counter("device_failures_total", "Runs that failed, ran out of memory, hung or gave what is no number, the server's own included, which decide whether the device is given up.",
			prometheus.Labels{"kind": kind.String()}, func(s *stats) *atomic.Uint64 { return &s.sick[kind] })
	}
	for i, outcome := range [numProbes]string{probeOK: "ok", probeFailed: "failed"} {
		m.counter("probes_total", "Inferences of the server's own, which say whether the device works.", prometheus.Labels{"outcome": outcome},
			func(s *stats) *atomic.Uint64 { return &s.probes[i] })
	}
	m.gauge("busy_seconds", "How long the inference in hand has gone on; 0: there is none.", func(s *Server) float64 {
		since := s.worker.busySince.Load()
		if since == 0 {
			return 0
		}
		return s.clock.Now().Sub(rt.Instant(since)).Seconds()
	})
	m.gauge("device_fallback", "1 when the policy computes on the CPU instead of a GPU.", func(s *Server) float64 {
		if s.placement.Instead != nil {
			return 1
		}
		return 0
	})
}

func (m *metrics) countAudit() {
	for name, c := range map[string]struct {
		help  string
		value func(*audit.Counts) *atomic.Uint64
	}{
		"audit_lines_total":      {"Audit lines written.", func(c *audit.Counts) *atomic.Uint64 { return &c.Lines }},
		"audit_dropped_total":    {"Audit lines that the disk was too slow for.", func(c *audit.Counts) *atomic.Uint64 { return &c.LinesDropped }},
		"captures_total":         {"Requests captured.", func(c *audit.Counts) *atomic.Uint64 { return &c.Captures }},
		"captures_dropped_total": {"Requests that the disk was too slow to capture.", func(c *audit.Counts) *atomic.Uint64 { return &c.CapturesDropped }},
	} {
		m.add(name, c.help, nil, func(s *Server) float64 {
			if s.audit == nil {
				return 0
			}
			return float64(c.value(&s.audit.Counts).Load())
		})
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricPrefix+name, help, labels, nil)
}

var (
	waitSeconds      = desc("queue_wait_seconds", "From an observation's arrival to its inference, less decoding.")
	runwaySeconds    = desc("runway_seconds", "How long their robot's actions lasted when observations arrived that say so.")
	decodeSeconds    = desc("decode_seconds", "Parsing an observation and decoding its pictures.")
	inferenceSeconds = desc("inference_seconds", "The graph alone.")
	serviceSeconds   = desc("service_seconds", "From an observation's arrival to the chunk's hand-over to the transport.")
	stalenessSeconds = desc("session_staleness_seconds", "Since the robot's last observation, or since it opened.", "client")
	staleTotal       = desc("stale_pictures_total", "Pictures that were older than their robot allows, in observations that were worked on.", "camera")
	strayTotal       = desc("warned_pictures_total", "Pictures with stray bytes, as some webcams send them, that were used all the same.", "camera")
	squeezedTotal    = desc("squeezed_pictures_total", "Pictures of another shape than the policy's, which were scaled all the same.", "camera")
	buildInfo        = desc("build_info", "1, with what this is.", "version", "go", "onnxruntime", "schema")
	modelInfo        = desc("model_info", "1, with what is served.", "prefix", "sha256", "policy_type", "server_id", "device")
)

// perServer collects the histograms, and the series whose labels are known when
// the server is: sessions, cameras, versions.
type perServer func() *Server

// Describe is prometheus.Collector's.
func (p perServer) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{waitSeconds, runwaySeconds, decodeSeconds, inferenceSeconds, serviceSeconds, stalenessSeconds, staleTotal, strayTotal, squeezedTotal, buildInfo, modelInfo} {
		out <- d
	}
}

// Collect is prometheus.Collector's.
func (p perServer) Collect(out chan<- prometheus.Metric) {
	s, counts := p(), newStats()
	if s != nil {
		counts = s.stats
	}
	for d, durations := range map[*prometheus.Desc]*durations{
		waitSeconds: counts.wait, runwaySeconds: counts.runway, decodeSeconds: counts.decode, inferenceSeconds: counts.inference, serviceSeconds: counts.service,
	} {
		count, sum, buckets := durations.cumulative()
		out <- prometheus.MustNewConstHistogram(d, count, sum, buckets)
	}
	if s == nil {
		return
	}
	now := s.clock.Now()
	for _, session := range s.sessions.all() { // at most max_sessions
		age := now.Sub(rt.Instant(session.seenAt.Load()))
		out <- prometheus.MustNewConstMetric(stalenessSeconds, prometheus.GaugeValue, age.Seconds(), session.uuid)
	}
	for i, camera := range s.caps.CameraShapes {
		out <- prometheus.MustNewConstMetric(staleTotal, prometheus.CounterValue, float64(s.stats.stale[i].Load()), camera.Name)
		out <- prometheus.MustNewConstMetric(strayTotal, prometheus.CounterValue, float64(s.stats.stray[i].Load()), camera.Name)
		out <- prometheus.MustNewConstMetric(squeezedTotal, prometheus.CounterValue, float64(s.stats.squeezed[i].Load()), camera.Name)
	}
	onnx, _ := policy.RuntimeVersion()
	out <- prometheus.MustNewConstMetric(buildInfo, prometheus.GaugeValue, 1, s.cfg.Version, runtime.Version(), onnx, strconv.Itoa(wire.SchemaVersion))
	out <- prometheus.MustNewConstMetric(modelInfo, prometheus.GaugeValue, 1, s.prefix, s.caps.ModelSHA256, s.caps.PolicyType, s.id, s.placement.Device.String())
}
