package drive

import (
	"math"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
)

// Status returns the part of the progress that the loop counts.
func (r *Run) Status() Status {
	loop := r.Stats()
	s := Status{
		Ticks:        loop.Ticks,
		OverrunsOwn:  loop.OverrunsOwn,
		OverrunsHost: loop.OverrunsHost,
		LatenessUS:   long(loop.Lateness, time.Microsecond),
	}
	if grant := r.Grant(); loop.Ticks > 0 {
		s.RT = Granted{grant.Granted, grant.Why}
	}
	return s
}

// Totals returns the part of the summary that the loop, the bus and the cameras count. The caller of
// Loop calls it after Join.
func (r *Run) Totals(bus servo.Stats, cameras []*capture.Camera) Totals {
	loop := r.Stats()
	took := r.cfg.Loop.Clock.Now().Sub(r.began)
	t := Totals{
		LatenessHist: histogram(loop.Lateness, time.Microsecond),
		Bus:          r.Bus(bus),
		Frames:       map[string]Frames{},
		Complaints:   r.complaints(),
		Skipped:      loop.Skipped,
		ExcusedMS:    Millis(loop.Excused),
		StealMS:      Millis(rt.StealTime() - r.steal),
		CPUShare:     round3(loop.CPU.Seconds() / max(took.Seconds(), 1e-9)),
		RSSMB:        round3(float64(rt.ResidentSize()) / (1 << 20)),
		Seconds:      round3(took.Seconds()),
	}
	for i := range r.cfg.Arm.Len() {
		ranged, stepped := r.cfg.Arm.Clips(i)
		t.RangeClips, t.StepClips = t.RangeClips+ranged, t.StepClips+stepped
	}
	if stalls, slips, ok := r.cfg.Arm.BaseTroubles(); ok {
		t.Base = &BaseSummary{stalls, slips}
	}
	t.Parts = r.parts()
	for _, cam := range cameras {
		t.Frames[cam.Name] = framesOf(cam)
	}
	return t
}

// Bus returns the summary of the robot's buses.
func (r *Run) Bus(sum servo.Stats) BusSummary { return SummaryOf(r.Sum(sum)) }

// Sum returns sum, the counters of the robot's buses. For a robot of several parts, the result counts cycles that read
// all parts.
func (r *Run) Sum(sum servo.Stats) servo.Stats {
	if cycle := r.cfg.Arm.Cycle(); cycle != nil {
		sum.Cycle, sum.Cycles = cycle, sum.Cycles/uint64(r.cfg.Arm.Len())
	}
	return sum
}

// Parts returns the parts of a robot that has several, else nil. Any thread may call it.
func (r *Run) Parts() (all []Part) {
	for i, a := range r.cfg.Parts {
		all = append(all, Part{Name: r.cfg.Robot.Parts()[i].Name, Port: a.Path(), Bus: SummaryOf(a.Stats())})
	}
	return all
}

// parts returns the summaries of the parts of a robot that has several.
func (r *Run) parts() (all []PartSummary) {
	for i, part := range r.Parts() {
		p := PartSummary{Part: part}
		p.RangeClips, p.StepClips = r.cfg.Arm.Clips(i)
		all = append(all, p)
	}
	return all
}

// complaints returns the last complaint about heat or supply of each joint, nil without any.
func (r *Run) complaints() (all map[string]string) {
	for j, m := range r.cfg.Robot.Motors {
		text := event.ComplaintText(r.cfg.Arm.Complaint(j))
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

// LiveFramesOf returns the states of the cameras by name.
func LiveFramesOf(cameras []*capture.Camera) map[string]LiveFrames {
	all := map[string]LiveFrames{}
	for _, cam := range cameras {
		all[cam.Name] = LiveFrames{framesOf(cam), cam.Stats().Lost}
	}
	return all
}

// SummaryOf returns the counters of a bus.
func SummaryOf(bus servo.Stats) BusSummary {
	cycle := long(bus.Cycle, time.Microsecond)
	return BusSummary{
		Cycles:    bus.Cycles,
		Lost:      bus.Lost,
		Corrupt:   bus.Corrupt,
		Retries:   bus.Retries,
		P50:       cycle.P50,
		P99:       cycle.P99,
		Doubted:   bus.Doubted,
		FastReads: bus.FastReads,
		Fallbacks: bus.Fallbacks,
		FastTries: bus.FastTries,
	}
}

func framesOf(cam *capture.Camera) Frames {
	t := cam.Stats()
	return Frames{
		Captured:  t.Captured,
		Dropped:   t.Dropped,
		Age:       round3(float64(cam.Age.Quantile(0.99)) / 1e6),
		Errors:    t.Errors,
		Missed:    t.Source.Missed,
		Skipped:   t.Source.Skipped,
		Broken:    t.Source.Broken + t.Torn,
		Restarts:  t.Source.Restarts,
		Stale:     t.Stale,
		Warned:    t.Warned,
		Undecoded: t.Undecoded,
		Repeated:  t.Repeated,
	}
}

// Short returns quantiles of a histogram.
func Short(h *rt.Hist, unit time.Duration) ShortQuantiles {
	q := long(h, unit)
	return ShortQuantiles{q.P50, q.P99, q.Max}
}

func long(h *rt.Hist, unit time.Duration) Quantiles {
	in := func(d time.Duration) float64 { return round3(float64(d) / float64(unit)) }
	return Quantiles{in(h.Quantile(0.5)), in(h.Quantile(0.99)), in(h.Quantile(0.999)), in(h.Max())}
}

// Millis returns a duration in milliseconds, 0 for a negative one.
func Millis(d time.Duration) float64 { return round3(float64(max(0, d)) / 1e6) }

// Seconds returns a duration in seconds.
func Seconds(d time.Duration) float64 { return round3(d.Seconds()) }

func round3(v float64) float64 { return float64(int64(math.Round(v*1000))) / 1000 }

func histogram(h *rt.Hist, unit time.Duration) map[string]uint64 {
	m := map[string]uint64{}
	for upper, n := range h.Buckets {
		m[strconv.FormatFloat(float64(upper)/float64(unit), 'f', -1, 64)] += n
	}
	return m
}
