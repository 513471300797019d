package server

import (
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/metric"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
)

const metricPrefix = "lean_server_"

// metrics exports a server's counters to Prometheus. It reads them when it is scraped: the request
// path only adds to atomics, and no counter exists twice.
type metrics struct {
	*metric.Set
	server func() *Server // nil before the policy is loaded; then all values are 0
}

// metricsOf returns the metrics of a server that may be set later; dropped counts the connections
// to the health port that were closed because there were too many.
func metricsOf(server func() *Server, dropped *atomic.Uint64) *metric.Source {
	return metric.NewSource(func() *metric.Set {
		m := &metrics{new(metric.Set), server}
		m.countRequests()
		m.countSessions()
		m.countDevice()
		m.countAccess()
		m.countAudit()
		m.countTransport()
		m.Counter(metricPrefix+
			"health_connections_dropped_total",
			"Connections to this port that were closed because there were too many.", nil,
			func() float64 { return float64(dropped.Load()) })
		m.measure()
		m.describe()
		m.Process()
		return m.Set
	})
}

func label(name, value string) []metric.Label { return []metric.Label{{Name: name, Value: value}} }

func (m *metrics) counter(name, help string, labels []metric.Label, value func(*stats) *atomic.Uint64) {
	m.add(name, help, labels, func(s *Server) float64 { return float64(value(s.stats).Load()) })
}

func (m *metrics) add(name, help string, labels []metric.Label, value func(*Server) float64) {
	m.Counter(metricPrefix+name, help, labels, m.read(value))
}

func (m *metrics) gauge(name, help string, value func(*Server) float64) {
	m.Gauge(metricPrefix+name, help, nil, m.read(value))
}

// part adds a gauge of one part of the memory.
func (m *metrics) part(name, help, part string, value func(*Server) int64) {
	m.Gauge(metricPrefix+name, help, label("part", part), m.read(func(s *Server) float64 { return float64(value(s)) }))
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
	m.counter("requests_total", "Observations answered with a chunk.", nil, func(s *stats) *atomic.Uint64 {
		return &s.outcomes[audit.Answered]
	})
	for o := range audit.NumOutcomes {
		value := func(s *stats) *atomic.Uint64 { return &s.outcomes[o] }
		m.counter("outcomes_total", "Observations that had their turn, by result.", label("outcome", o.String()), value)
		if reason := o.String(); o != audit.Answered {
			if o == audit.InferenceFailed {
				reason = "inference" // its name from the time before outcomes had names
			}
			m.counter("errors_total", "Observations that had their turn and got no chunk.", label("reason", reason),
				value)
		}
	}
	for reason, value := range map[string]func(*stats) *atomic.Uint64{
		"superseded":      func(s *stats) *atomic.Uint64 { return &s.superseded },
		"late":            func(s *stats) *atomic.Uint64 { return &s.late },
		"memory":          func(s *stats) *atomic.Uint64 { return &s.noRoom },
		"unknown_session": func(s *stats) *atomic.Uint64 { return &s.unknown },
		"malformed":       func(s *stats) *atomic.Uint64 { return &s.malformed },
	} {
		m.counter("observations_dropped_total", "Observations that never had a turn.", label("reason", reason), value)
	}
	m.counter("late_requests_total", "Observations passed over for others, because their robot's actions end before "+
		"a chunk could arrive.", nil,
		func(s *stats) *atomic.Uint64 { return &s.passedOver })
	for mode := policy.ModeFree; mode <= policy.ModeTrainedGuided; mode++ {
		m.counter("conditioning_total", "Chunks by the treatment of the prefix.", label("mode", mode.String()),
			func(s *stats) *atomic.Uint64 { return &s.modes[mode] })
	}
	for use, name := range map[spanUse]string{spansFound: "found", spansMissing: "missed"} {
		m.counter("spans_total", "Requests that name rows of earlier chunks, by whether the server still had all of "+
			"them.", label("outcome", name),
			func(s *stats) *atomic.Uint64 { return &s.spans[use] })
	}
	for n := range manifest.MaxBatch {
		m.counter("batches_total", "Inferences by how many requests shared them.", label("requests", strconv.Itoa(n+1)),
			func(s *stats) *atomic.Uint64 { return &s.batches[n] })
	}
	m.counter("batch_reruns_total", "Inferences of several requests that failed and were repeated one by one.", nil,
		func(s *stats) *atomic.Uint64 {
			return &s.reruns
		})
	m.counter("observation_bytes_total", "Bodies of observations, served or not.", nil, func(s *stats) *atomic.Uint64 {
		return &s.receivedBytes
	})
	m.counter("chunk_bytes_total", "Bodies of chunks.", nil, func(s *stats) *atomic.Uint64 { return &s.sentBytes })
	m.counter("chunks_replaced_total", "Chunks that a newer one replaced before they left: the robot's link is "+
		"slower than the policy.", nil,
		func(s *stats) *atomic.Uint64 { return &s.replaced })
	m.counter("events_silenced_total", "Events not sent because one had been sent a moment before.", nil,
		func(s *stats) *atomic.Uint64 {
			return &s.silenced
		})
	m.add("log_lines_lost_total", "Lines of the log that were dropped because its reader was too slow or had stopped.",
		nil, func(s *Server) float64 {
			return float64(s.lostLines())
		})
	m.add("log_lines_left_out_total", "Lines of the log that were left out because similar ones had been written a "+
		"moment before.", nil, func(s *Server) float64 {
		return float64(s.leftOutLines())
	})
	m.counter("queries_lost_total", "Queries refused because too many were waiting.", nil,
		func(s *stats) *atomic.Uint64 {
			return &s.lostQuery
		})
}

func (m *metrics) countSessions() {
	m.counter("sessions_opened_total", "Sessions opened.", nil, func(s *stats) *atomic.Uint64 { return &s.opened })
	m.counter("sessions_closed_total", "Sessions closed.", nil, func(s *stats) *atomic.Uint64 { return &s.closed })
	m.counter("sessions_displaced_total", "Sessions closed that did not send and gave way to another robot.", nil,
		func(s *stats) *atomic.Uint64 {
			return &s.displaced
		})
	m.add("sessions_refused_total", "Sessions refused.", nil, func(s *Server) float64 {
		return float64(sum(s.stats.refused[:]))
	})
	for r := range numRefused {
		m.counter("opens_rejected_total", "Sessions refused, by reason.", label("reason", r.String()),
			func(s *stats) *atomic.Uint64 { return &s.refused[r] })
	}
	flag := func(b *atomic.Bool) float64 {
		if b.Load() {
			return 1
		}
		return 0
	}
	m.gauge("active_sessions", "Sessions open now.", func(s *Server) float64 { return float64(len(s.sessions.all())) })
	m.gauge("fairness", "Jain's index of the open sessions' shares of answered observations: 1 when all are equal.",
		func(s *Server) float64 {
			return fairness(s.sessions.all())
		})
	m.gauge("mailbox_bytes", "Memory of the buffers of observations that wait or waited recently.",
		func(s *Server) float64 {
			return float64(s.pool.Bytes())
		})
	for p := range memory.NumParts {
		m.part("memory_bytes", "Memory in use.", p.String(), func(s *Server) int64 { return s.memory.Of(p) })
	}
	m.part("memory_bytes", "Memory in use.", "transport", func(s *Server) int64 { return s.transportMemory() })
	m.part("memory_limit_bytes", "Limit of the memory.", "robots", func(s *Server) int64 { return s.memory.Limit() })
	m.part("memory_limit_bytes", "Limit of the memory.", "transport", func(s *Server) int64 {
		return s.cfg.TransportMemory()
	})
	m.add("replica_tokens_forgotten_total", "Tokens of other servers that exceeded the bounds.", nil,
		func(s *Server) float64 {
			return float64(s.others.Forgotten.Load())
		})
	m.gauge("memory_promised_bytes", "Memory promised to the open sessions.", func(s *Server) float64 {
		return float64(s.sessions.promised.Load())
	})
	m.gauge("max_sessions", "Most sessions that the server takes.", func(s *Server) float64 {
		return float64(s.sessions.capacity())
	})
	m.gauge("warmed_up", "1 once the warm-up inferences are over.", func(s *Server) float64 {
		return flag(&s.phase.warmed)
	})
	m.gauge("draining", "1 while the server is leaving.", func(s *Server) float64 { return flag(&s.phase.draining) })
}

// countAccess adds the messages that the listener denied to links with a certificate.
func (m *metrics) countAccess() {
	for kind := range access.NumMessages {
		m.add("access_denied_total", "Messages that the rights of their link's certificate do not allow.",
			label("message", kind.String()), func(s *Server) float64 {
				if s.access == nil {
					return 0
				}
				return float64(s.access.Denied[kind].Load())
			})
	}
}

func (m *metrics) countDevice() {
	for kind := range numFailures {
		m.counter("device_failures_total", "Runs that failed, ran out of memory, hung or returned values that are "+
			"not finite, including the server's own, which decide whether the device is given up.",
			label("kind", kind.String()), func(s *stats) *atomic.Uint64 { return &s.failures[kind] })
	}
	for i, outcome := range [numProbes]string{probeOK: "ok", probeFailed: "failed"} {
		m.counter("probes_total", "The server's own inferences, which check the device.", label("outcome", outcome),
			func(s *stats) *atomic.Uint64 { return &s.probes[i] })
	}
	m.add("device_busy_seconds_total", "Total duration of inferences: its rate is the device's load.", nil,
		func(s *Server) float64 {
			return s.worker.engine.past.Busy().Seconds()
		})
	m.gauge("busy_seconds", "Time since the begin of the inference in hand; 0: the device is idle.",
		func(s *Server) float64 {
			since := s.worker.engine.busySince.Load()
			if since == 0 {
				return 0
			}
			return s.clock.Now().Sub(rt.Instant(since)).Seconds()
		})
	m.gauge("collection_pause_max_seconds", "Longest stop of the process by a garbage collection since it serves.",
		func(s *Server) float64 {
			if s.baseline.Load() == nil {
				return 0
			}
			return s.pauses.Max().Seconds()
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
		"audit_lines_total": {"Audit lines written.", func(c *audit.Counts) *atomic.Uint64 { return &c.Lines }},
		"audit_dropped_total": {"Audit lines that the disk was too slow for.", func(c *audit.Counts) *atomic.Uint64 {
			return &c.LinesDropped
		}},
		"captures_total": {"Requests captured.", func(c *audit.Counts) *atomic.Uint64 { return &c.Captures }},
		"captures_dropped_total": {"Requests that the disk was too slow to capture.",
			func(c *audit.Counts) *atomic.Uint64 {
				return &c.CapturesDropped
			}},
	} {
		m.add(name, c.help, nil, func(s *Server) float64 {
			if s.audit == nil {
				return 0
			}
			return float64(c.value(&s.audit.Counts).Load())
		})
	}
}

// countTransport adds the losses of the links. Two scrapes show whether the network keeps a robot
// waiting.
func (m *metrics) countTransport() {
	lost := func(reason string, value func(zenoh.Stats) uint64) {
		m.add("transport_lost_total", "Messages and declarations that the links lost or refused, by reason.",
			label("reason", reason), func(s *Server) float64 {
				return s.transportStat(value)
			})
	}
	lost("congested", func(t zenoh.Stats) uint64 { return t.Dropped })
	lost("replaced", func(t zenoh.Stats) uint64 { return t.Replaced })
	lost("late_frame", func(t zenoh.Stats) uint64 { return t.StaleSN })
	lost("fragment", func(t zenoh.Stats) uint64 { return t.Unassembled })
	lost("key", func(t zenoh.Stats) uint64 { return t.Keys })
	lost("declaration", func(t zenoh.Stats) uint64 { return t.Declarations })
	lost("query", func(t zenoh.Stats) uint64 { return t.Queries })
	lost("reply", func(t zenoh.Stats) uint64 { return t.Replies })
	lost("relayed", func(t zenoh.Stats) uint64 { return t.RelayDropped })
	ended := func(reason string, value func(zenoh.Stats) uint64) {
		m.add("links_refused_total", "Links that were ended or refused, by reason.", label("reason", reason),
			func(s *Server) float64 {
				return s.transportStat(value)
			})
	}
	ended("malformed", func(t zenoh.Stats) uint64 { return t.Malformed })
	ended("stalled", func(t zenoh.Stats) uint64 { return t.Stalled })
	ended("memory", func(t zenoh.Stats) uint64 { return t.Revoked })
	ended("half_open", func(t zenoh.Stats) uint64 { return t.HalfOpen })
	ended("full", func(t zenoh.Stats) uint64 { return t.Sessions })
	ended("idle", func(t zenoh.Stats) uint64 { return t.Idle })
	for event, value := range map[string]func(*Links) *atomic.Uint64{"up": func(l *Links) *atomic.Uint64 {
		return &l.Up
	}, "down": func(l *Links) *atomic.Uint64 { return &l.Down }} {
		m.add("links_total", "Links that came up, and that went down or did not come up.", label("event", event),
			func(s *Server) float64 {
				if s.links == nil {
					return 0
				}
				return float64(value(s.links).Load())
			})
	}
}

// measure adds the durations.
func (m *metrics) measure() {
	seconds := make([]float64, len(bounds))
	for i, b := range bounds {
		seconds[i] = b.Seconds()
	}
	for _, h := range []struct {
		name, help string
		of         func(*stats) *durations
	}{
		{"queue_wait_seconds", "From an observation's arrival to its inference, less decoding.",
			func(s *stats) *durations {
				return s.wait
			}},
		{"runway_seconds", "Remaining duration of the robot's actions at the arrival of an observation that " +
			"reports it.", func(s *stats) *durations {
			return s.runway
		}},
		{"decode_seconds", "Parsing an observation and decoding its pictures.", func(s *stats) *durations {
			return s.decode
		}},
		{"inference_seconds", "The graph alone.", func(s *stats) *durations { return s.inference }},
		{"service_seconds", "From an observation's arrival to the chunk's hand-over to the transport.",
			func(s *stats) *durations {
				return s.service
			}},
	} {
		m.Histogram(metricPrefix+h.name, h.help, seconds, func(counts []uint64) (uint64, float64) {
			if s := m.server(); s != nil {
				return h.of(s.stats).cumulative(counts)
			}
			return 0, 0
		})
	}
}

// describe adds the series whose labels depend on the loaded server: sessions, cameras, versions.
func (m *metrics) describe() {
	m.Gauges(metricPrefix+"session_staleness_seconds", "Time since the robot's last observation, or since its open.",
		"client", func(v *metric.Vector) {
			if s := m.server(); s != nil {
				now := s.clock.Now()
				for _, session := range s.sessions.all() { // at most max_sessions
					v.Add(session.uuid, now.Sub(rt.Instant(session.seenAt.Load())).Seconds())
				}
			}
		})
	pictures := func(name, help string, counts func(*stats) *[policy.MaxCameras]atomic.Uint64) {
		m.Counters(metricPrefix+name, help, "camera", func(v *metric.Vector) {
			if s := m.server(); s != nil {
				for i, camera := range s.caps.CameraShapes {
					v.Add(camera.Name, float64(counts(s.stats)[i].Load()))
				}
			}
		})
	}
	pictures("stale_pictures_total", "Pictures that were older than their robot allows, in observations that had "+
		"their turn.", func(s *stats) *[policy.MaxCameras]atomic.Uint64 {
		return &s.stale
	})
	pictures("warned_pictures_total", "Pictures with stray bytes, as some webcams send them, that were used "+
		"nevertheless.", func(s *stats) *[policy.MaxCameras]atomic.Uint64 {
		return &s.stray
	})
	pictures("squeezed_pictures_total", "Pictures of another shape than the policy's, which were scaled nevertheless.",
		func(s *stats) *[policy.MaxCameras]atomic.Uint64 {
			return &s.squeezed
		})
	m.Info(metricPrefix+"build_info", "1, with the versions of the program and its libraries.", func() []metric.Label {
		s := m.server()
		if s == nil {
			return nil
		}
		onnx, _ := policy.RuntimeVersion()
		return []metric.Label{{Name: "version", Value: s.cfg.Version}, {Name: "go", Value: runtime.Version()},
			{Name: "onnxruntime", Value: onnx}, {Name: "schema", Value: strconv.Itoa(wire.SchemaVersion)}}
	})
	m.Info(metricPrefix+"model_info", "1, with the served policy.", func() []metric.Label {
		s := m.server()
		if s == nil {
			return nil
		}
		return []metric.Label{{Name: "prefix", Value: s.prefix}, {Name: "sha256", Value: s.caps.ModelSHA256},
			{Name: "policy_type", Value: s.caps.PolicyType},
			{Name: "server_id", Value: s.id}, {Name: "device", Value: s.placement.Device.String()}}
	})
}
