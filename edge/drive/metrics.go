package drive

import (
	"github.com/edge-rt/edge-rt/internal/webpage/metric"
	"github.com/edge-rt/edge-rt/rt"
)

// MetricPrefix begins the names of a robot's metrics.
const MetricPrefix = "edge_rt_"

// Metered is a reading of a run for /metrics.
type Metered struct {
	*Status
	*Live
	Cycle           *rt.Hist // durations of a reading of all joints
	Hottest, Lowest float64  // degrees Celsius of the hottest motor, volts of the lowest supply; 0: not read yet
}

// AddMetrics adds the metrics of every run, policy or not, to a set. read is called once per scrape.
func (r *Run) AddMetrics(set *metric.Set, read func() Metered) {
	var m Metered
	set.Update(func() { m = read() })
	for _, c := range []struct {
		name, help, label, value string
		of                       func() uint64
	}{
		{"ticks_total", "Ticks that ran.", "", "", func() uint64 { return m.Ticks }},
		{"overruns_total", "Ticks that ended after the next was due, by cause: own computing and bus, or the host.",
			"cause", "own", func() uint64 { return m.OverrunsOwn }},
		{"overruns_total", "", "cause", "host", func() uint64 { return m.OverrunsHost }},
		{"ticks_skipped_total", "Periods without a tick, because an earlier tick took too long.", "", "",
			func() uint64 { return r.Stats().Skipped }},
		{"bus_cycles_total", "Readings of all joints.", "", "", func() uint64 { return m.Bus.Cycles }},
		{"bus_lost_total", "Requested positions that did not arrive.", "", "", func() uint64 { return m.Bus.Lost }},
		{"bus_corrupt_total", "Byte sequences without a frame, and frames that nothing requested.", "", "",
			func() uint64 { return m.Bus.Corrupt }},
		{"bus_retries_total", "Repeated transactions.", "", "", func() uint64 { return m.Bus.Retries }},
		{"bus_doubted_total", "Positions that no joint can have reached since the previous reading.", "", "",
			func() uint64 { return m.Bus.Doubted }},
	} {
		var labels []metric.Label
		if c.label != "" {
			labels = []metric.Label{{Name: c.label, Value: c.value}}
		}
		set.Counter(MetricPrefix+c.name, c.help, labels, func() float64 { return float64(c.of()) })
	}
	set.Info(MetricPrefix+"info", "1, with the robot's name and kind, and the schedule.", func() []metric.Label {
		return []metric.Label{{Name: "id", Value: m.ID}, {Name: "robot", Value: m.Robot},
			{Name: "schedule", Value: m.Schedule}}
	})
	for _, g := range []struct {
		name, help string
		of         func() float64
	}{
		{"rate_hertz", "Ticks per second.", func() float64 { return m.FPS }},
		{"paused", "1 while an operator has paused the arm.", func() float64 { return oneIf(m.Paused) }},
		{"waiting", "1 while nothing moves before an operator's next step.", func() float64 {
			return oneIf(m.Waits != "")
		}},
		{"realtime", "1 if the tick has real-time priority.", func() float64 { return oneIf(m.RT.Granted) }},
		{"tick_age_seconds", "Time since the newest tick began.", func() float64 { return m.Tick.AgeMS / 1e3 }},
		{"motor_celsius_max", "Temperature of the hottest motor; 0 before the first reading.",
			func() float64 { return m.Hottest }},
		{"supply_volts_min", "Lowest supply of a motor; 0 before the first reading.", func() float64 {
			return m.Lowest
		}},
	} {
		set.Gauge(MetricPrefix+g.name, g.help, nil, g.of)
	}
	set.Durations(MetricPrefix+"tick_lateness_seconds", "From a tick's deadline to its start.",
		func() *rt.Hist { return r.Stats().Lateness })
	set.Durations(MetricPrefix+"bus_cycle_seconds", "A reading of all joints.", func() *rt.Hist { return m.Cycle })
	addStates(set, &m)
	addCameras(set, &m)
	set.Process()
}

// addStates adds the state of the run and its joints.
func addStates(set *metric.Set, m *Metered) {
	set.Gauges(MetricPrefix+"state", "1 for the state of the run.", "state", func(v *metric.Vector) {
		v.Add(m.State, 1)
	})
	set.Counters(MetricPrefix+"state_seconds_total", "Time in each state.", "state", func(v *metric.Vector) {
		for state, seconds := range m.InState {
			v.Add(state, seconds)
		}
	})
	set.Gauges(MetricPrefix+"joint_held", "1 for a joint that is not driven, or only to relieve it.", "joint",
		func(v *metric.Vector) {
			for i := range m.Joints {
				v.Add(m.Joints[i].Name, oneIf(m.Joints[i].Held))
			}
		})
	set.Gauges(MetricPrefix+"joint_frozen", "1 for a joint that is silent and keeps its goal.", "joint",
		func(v *metric.Vector) {
			for i := range m.Joints {
				v.Add(m.Joints[i].Name, oneIf(m.Joints[i].Frozen))
			}
		})
}

// addCameras adds the counters of the cameras.
func addCameras(set *metric.Set, m *Metered) {
	for _, c := range []struct {
		name, help string
		of         func(*LiveFrames) float64
	}{
		{"frames_total", "Pictures taken.", func(f *LiveFrames) float64 { return float64(f.Captured) }},
		{"frames_dropped_total", "Pictures that were not used.", func(f *LiveFrames) float64 {
			return float64(f.Dropped)
		}},
		{"frames_broken_total", "Pictures that the driver marks bad, or an incomplete JPEG.",
			func(f *LiveFrames) float64 { return float64(f.Broken + f.Undecoded) }},
		{"frames_stale_total", "Observations with a picture older than its limit.",
			func(f *LiveFrames) float64 { return float64(f.Stale) }},
		{"camera_errors_total", "Failed attempts to get a picture.", func(f *LiveFrames) float64 {
			return float64(f.Errors)
		}},
		{"camera_restarts_total", "Times that the camera was set up again.",
			func(f *LiveFrames) float64 { return float64(f.Restarts) }},
	} {
		set.Counters(MetricPrefix+c.name, c.help, "camera", func(v *metric.Vector) {
			for name, f := range m.Frames {
				v.Add(name, c.of(&f))
			}
		})
	}
	set.Gauges(MetricPrefix+"camera_lost", "1 while the camera is away.", "camera", func(v *metric.Vector) {
		for name, f := range m.Frames {
			v.Add(name, oneIf(f.Lost))
		}
	})
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
