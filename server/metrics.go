package server

import (
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/internal/webpage/metric"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/peers"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/server/rollout"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const metricPrefix = "lean_server_"

// metrics exports a server's counters to Prometheus. It reads the counters when it is scraped. So the request path only
// adds to atomics, and no counter exists twice.
type metrics struct {
	*metric.Set
	server func() *Server // nil before the policy is loaded: all values are 0
}

// metricsOf returns a function that makes the metrics of a server that may be set later. The parameter dropped counts
// the connections to the health port that were closed because there were too many.
func metricsOf(server func() *Server, dropped *atomic.Uint64) func() *metric.Set {
	return func() *metric.Set {
		m := &metrics{new(metric.Set), server}
		for i, c := range counters(newStats(), new(Links), new(acl.Service), new(peers.Others), new(audit.Counts)) {
			m.add(c.name, c.help, c.labels(), func(s *Server) float64 { return float64(s.counters[i].Load()) })
		}
		for i, l := range losses(zenoh.Stats{}) {
			m.add(l.name, l.help, label("reason", l.reason), func(s *Server) float64 {
				return float64(losses(s.transportStats())[i].count)
			})
		}
		m.Counter(metricPrefix+
			"health_connections_dropped_total",
			"Connections to this port that were closed because there were too many.", nil,
			func() float64 { return float64(dropped.Load()) })
		m.addValues()
		m.measure()
		m.describe()
		m.Process()
		return m.Set
	}
}

func (m *metrics) add(name, help string, labels []metric.Label, value func(*Server) float64) {
	m.Counter(metricPrefix+name, help, labels, m.read(value))
}

func (m *metrics) gauge(name, help string, labels []metric.Label, value func(*Server) float64) {
	m.Gauge(metricPrefix+name, help, labels, m.read(value))
}

func (m *metrics) read(value func(*Server) float64) func() float64 {
	return func() float64 {
		if s := m.server(); s != nil {
			return value(s)
		}
		return 0
	}
}

// byLabel returns the values of a counter by its label, without zeros.
func (s *Server) byLabel(name string) map[string]uint64 {
	values := make(map[string]uint64)
	for _, c := range s.counters {
		if n := c.Load(); c.name == name && n > 0 {
			values[c.value] = n
		}
	}
	return values
}

// loss is the number of messages that the links lost, or of links that were ended or refused, for
// one reason.
type loss struct {
	name, help, reason string
	count              uint64
}

// losses returns the losses of the links. The growth between two scrapes shows whether the network
// delays a robot.
func losses(t zenoh.Stats) [16]loss {
	const lost, ended = "transport_lost_total", "links_refused_total"
	const lostHelp = "Messages and declarations that the links lost or refused, by reason."
	const endedHelp = "Links that were ended or refused, by reason."
	return [...]loss{
		{lost, lostHelp, "congested", t.Dropped},
		{lost, lostHelp, "replaced", t.Replaced},
		{lost, lostHelp, "late_frame", t.StaleSN},
		{lost, lostHelp, "fragment", t.Unassembled},
		{lost, lostHelp, "key", t.Keys},
		{lost, lostHelp, "declaration", t.Declarations},
		{lost, lostHelp, "query", t.Queries},
		{lost, lostHelp, "reply", t.Replies},
		{lost, lostHelp, "relayed", t.RelayDropped},
		{ended, endedHelp, "malformed", t.Malformed},
		{ended, endedHelp, "stalled", t.Stalled},
		{ended, endedHelp, "memory", t.Revoked},
		{ended, endedHelp, "half_open", t.HalfOpen},
		{ended, endedHelp, "handshakes", t.Handshakes},
		{ended, endedHelp, "full", t.Sessions},
		{ended, endedHelp, "idle", t.Idle},
	}
}

// addValues adds the counters that are computed, and the gauges.
func (m *metrics) addValues() {
	m.add("log_lines_lost_total", "Lines of the log that were dropped because its reader was too slow or had stopped.",
		nil, func(s *Server) float64 { return float64(s.missing.Lost()) })
	m.add("log_lines_left_out_total", "Lines of the log that were left out because similar ones had been written a "+
		"moment before.", nil, func(s *Server) float64 { return float64(s.missing.LeftOut()) })
	m.add("sessions_refused_total", "Sessions refused.", nil, func(s *Server) float64 {
		return float64(sum(s.stats.refused[:]))
	})
	m.addProgram()
	m.add("device_busy_seconds_total", "Total duration of inferences: its rate is the device's load.", nil,
		func(s *Server) float64 { return s.worker.engine.past.Busy().Seconds() })
	for p := range memory.NumParts {
		m.gauge("memory_bytes", "Memory in use.", label("part", p.String()), func(s *Server) float64 {
			return float64(s.memory.Of(p))
		})
	}
	for _, g := range []struct {
		name, help, part string
		value            func(*Server) float64
	}{
		{"memory_bytes", "Memory in use.", "transport", func(s *Server) float64 {
			return float64(s.transportMemory())
		}},
		{"memory_bytes", "Memory in use.", "fronts", func(s *Server) float64 {
			return float64(s.fronts.Budget().Used())
		}},
		{"memory_limit_bytes", "Limit of the memory.", "fronts", func(s *Server) float64 {
			return float64(s.fronts.Budget().Limit())
		}},
		{"memory_limit_bytes", "Limit of the memory.", "robots", func(s *Server) float64 {
			return float64(s.memory.Limit())
		}},
		{"memory_limit_bytes", "Limit of the memory.", "transport", func(s *Server) float64 {
			return float64(s.cfg.TransportMemory())
		}},
		{"memory_promised_bytes", "Memory promised to the open sessions.", "", func(s *Server) float64 {
			return float64(s.sessions.promises(""))
		}},
		{"mailbox_bytes", "Memory of the buffers of observations that wait or waited recently.", "",
			func(s *Server) float64 { return float64(s.pool.Bytes()) }},
		{"active_sessions", "Sessions open now.", "", func(s *Server) float64 {
			return float64(s.sessions.count())
		}},
		{"max_sessions", "Most sessions that the server takes.", "", func(s *Server) float64 {
			return float64(s.sessions.capacity())
		}},
		{"fairness", "Jain's index of the open sessions' shares of answered observations: 1 when all are equal.", "",
			func(s *Server) float64 { return fairness(s.sessions.everywhere()) }},
		{"warmed_up", "1 once the warm-up inferences are over.", "", func(s *Server) float64 {
			return flag(s.phase.warmed.Load())
		}},
		{"draining", "1 while the server is leaving.", "", func(s *Server) float64 {
			return flag(s.phase.draining.Load())
		}},
		{"device_fallback", "1 when the policy computes on the CPU instead of a GPU.", "", func(s *Server) float64 {
			return flag(s.instead() != "")
		}},
		{"busy_seconds", "Time since the start of the inference in hand; 0: the device is idle.", "", busySeconds},
		{"collection_pause_max_seconds", "Longest stop of the process by a garbage collection since it serves.", "",
			func(s *Server) float64 { return s.longestPause().Seconds() }},
	} {
		var labels []metric.Label
		if g.part != "" {
			labels = label("part", g.part)
		}
		m.gauge(g.name, g.help, labels, g.value)
	}
}

// program returns the state of the program that computes the policy. If the server itself computes it, the state is
// ready.
func (s *Server) program() remote.Condition {
	if away := s.worker.engine.away; away != nil {
		return away.Condition()
	}
	return remote.Condition{Ready: true}
}

// addProgram adds the state of the program that computes the policy.
func (m *metrics) addProgram() {
	for i, event := range [...]string{"failure", "restart", "error", "timeout"} {
		m.add("program_events_total", "Unexpected ends of the program that computes the policy, or of the connection "+
			"to it, its later starts, its batches that took too long, and its answers that are an error.",
			label("event", event), func(s *Server) float64 {
				c := s.program()
				return float64([...]uint64{c.Failures, c.Restarts, c.Errors, c.Timeouts}[i])
			})
	}
	m.gauge("program_ready", "1 when the program that computes the policy answers; always 1 where the server "+
		"computes it.",
		nil, func(s *Server) float64 { return flag(s.program().Ready) })
	m.gauge("program_memory_bytes", "Memory of the program that computes the policy; 0: unknown, or the server "+
		"computes it.",
		nil, func(s *Server) float64 { return float64(s.program().Memory) })
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

func busySeconds(s *Server) float64 {
	since := rt.Instant(s.worker.engine.busySince.Load())
	if since == 0 {
		return 0
	}
	return s.clock.Now().Sub(since).Seconds()
}

// histogram describes durations and their series in /metrics.
type histogram struct {
	name, help string
	*durations
}

// histograms returns all durations.
func (s *stats) histograms() [5]histogram {
	return [...]histogram{
		{"queue_wait_seconds", "From an observation's arrival to its inference, less decoding.", s.wait},
		{"runway_seconds", "Remaining duration of the robot's actions at the arrival of an observation that reports " +
			"it.", s.runway},
		{"decode_seconds", "Parsing an observation and decoding its pictures.", s.decode},
		{"inference_seconds", "The graph alone.", s.inference},
		{"service_seconds", "From an observation's arrival to the chunk's hand-over to the transport.", s.service},
	}
}

// measure adds the durations.
func (m *metrics) measure() {
	seconds := metric.Seconds()
	for i, h := range new(stats).histograms() {
		m.Histogram(metricPrefix+h.name, h.help, seconds, func(counts []uint64) (uint64, float64) {
			if s := m.server(); s != nil {
				return s.stats.histograms()[i].cumulative(counts)
			}
			return 0, 0
		})
	}
}

// addModels adds the state of a roll-out, and the series of each model.
func (m *metrics) addModels() {
	m.gauge("rollout_share", "Share of the robots that the roll-out's new model is for.", nil, func(s *Server) float64 {
		return s.rollout.Report().Plan.Share
	})
	for _, state := range []rollout.State{rollout.Off, rollout.Loading, rollout.Serving, rollout.Leaving,
		rollout.Failed} {
		m.gauge("rollout_state", "1 for the state of the roll-out.", label("state", state.String()),
			func(s *Server) float64 { return flag(s.rollout.Report().State == state) })
	}
	const refused = "New models and contents of the manifest that a roll-out did not take."
	m.add("rollout_refused_total", refused, label("of", "model"), func(s *Server) float64 {
		return float64(s.rollout.Counted().Models.Load())
	})
	m.add("rollout_refused_total", refused, label("of", "manifest"), func(s *Server) float64 {
		return float64(s.rollout.Counted().Manifests.Load())
	})
	each := func(add func(name, help, label string, fill func(*metric.Vector)), name, help string,
		of func(*Server) float64) {
		add(metricPrefix+name, help, "sha256", func(v *metric.Vector) {
			if s := m.server(); s != nil {
				for _, model := range s.models() {
					v.Add(model.caps.ModelSHA256, of(model))
				}
			}
		})
	}
	each(m.Gauges, "model_sessions", "Sessions open now, by the model's digest.", func(s *Server) float64 {
		return float64(len(s.sessions.all()))
	})
	each(m.Counters, "model_requests_total", "Observations answered with a chunk, by the model's digest.",
		func(s *Server) float64 { return float64(s.worker.engine.tally.answered.Load()) })
	each(m.Counters, "model_errors_total", "Observations that had their turn and got no chunk, by the model's digest.",
		func(s *Server) float64 { return float64(s.worker.engine.tally.failed.Load()) })
	each(m.Gauges, "model_inference_p99_seconds", "99 % quantile of the inferences, by the model's digest.",
		func(s *Server) float64 { return s.worker.engine.tally.slowest().Seconds() })
}

// describe adds the series whose labels depend on the loaded server: sessions, cameras, versions.
func (m *metrics) describe() {
	m.Gauges(metricPrefix+"session_staleness_seconds", "Time since the robot's last observation, or since its open.",
		"client", func(v *metric.Vector) {
			if s := m.server(); s != nil {
				now := s.clock.Now()
				for _, session := range s.sessions.everywhere() { // there are at most max_sessions of them
					v.Add(session.uuid, now.Sub(rt.Instant(session.seenAt.Load())).Seconds())
				}
			}
		})
	m.Gauges(metricPrefix+"certificate_end_timestamp_seconds", "End of the validity of a certificate file.", "file",
		func(v *metric.Vector) {
			if s := m.server(); s != nil {
				security := s.cfg.Transport().TLS
				security.Ends(func(file string, end time.Time) { v.Add(file, float64(end.Unix())) })
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
	m.addModels()
	m.Info(metricPrefix+"build_info", "1, with the versions of the program and its libraries.", func() []metric.Label {
		s := m.server()
		if s == nil {
			return nil
		}
		return []metric.Label{{Name: "version", Value: s.cfg.Version}, {Name: "go", Value: runtime.Version()},
			{Name: "onnxruntime", Value: s.runtime}, {Name: "schema", Value: strconv.Itoa(wire.SchemaVersion)}}
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
