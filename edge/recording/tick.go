package recording

import (
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// Begin begins a tick's record. It returns nil if nothing is recorded or the lane is full. r may be
// nil. Owner: the tick thread.
//
//rt:noalloc
func Begin(r *record.Recorder, t rt.Tick) *record.Tick {
	if r == nil {
		return nil
	}
	m := r.Ticks.Put()
	if m == nil {
		return nil
	}
	*m = record.Tick{
		At:        t.Woke,
		Lateness:  int64(t.Woke.Sub(t.Deadline)),
		Skipped:   t.Skipped,
		Suspended: int64(t.Suspended),
		Stolen:    int64(t.Stolen),
	}
	if o := t.Overrun; o.Own {
		m.OverrunOwn, m.OverrunHost = int64(o.CPU+o.IOWait), int64(o.Stolen)
	}
	return m
}

// Arm writes the arm's positions and goals into m, and the sets of its clipped, stale, frozen and held joints.
//
//rt:noalloc
func Arm(m *record.Tick, arm *follow.Parts) {
	m.State.Set(arm.State)
	m.Goal.Set(arm.Goal)
	ranged, stepped := arm.Clipped()
	m.RangeClipped, m.StepClipped = uint32(ranged), uint32(stepped)
	m.Stale = uint32(arm.Stale())
	m.Frozen = uint32(arm.Frozen())
	m.Held = uint32(arm.Held())
}
