package follow

import (
	"time"

	"edgert/edge/event"
	"edgert/rt"
	"edgert/servo"
)

// complaints is of what motors complain that hold their joints, for people.
type complaints struct {
	of     []int64    // [joint] event.Complaint, the newest
	untold uint32     // joints whose complaint is told once its value is known
	since  rt.Instant // when the oldest of them began
}

// complaintWait is how long a complaint waits for what its motor measures.
const complaintWait = 500 * time.Millisecond

// tellHeld tells which joints are held, and by what: volts, or degrees.
//
//rt:noalloc
func (f *Follower) tellHeld(now rt.Instant, held, begun uint32) {
	c := &f.complaints
	if c.untold == 0 {
		c.since = now
	}
	c.untold = (c.untold | begun) & held
	for j := range f.joints {
		bit := uint32(1) << j
		if held&bit == 0 {
			continue
		}
		fault, value := f.bus.Complaint(j)
		switch {
		case fault&servo.FaultVoltage != 0:
			c.of[j] = event.Complaint(event.ComplainsOfSupply, value)
		case fault&servo.FaultTemperature != 0:
			c.of[j] = event.Complaint(event.ComplainsOfHeat, value)
		}
		if c.untold&bit == 0 {
			continue
		}
		if fault != 0 && value == 0 && now.Sub(c.since) < complaintWait {
			f.bus.Prioritize(bit)
			continue
		}
		c.untold &^= bit
		f.cfg.Events.Emit(now, event.JointHeld, int64(bit), c.of[j])
	}
}

// Complaint is of what joint j's motor complains, or has complained last; 0: of nothing.
//
//rt:noalloc
func (f *Follower) Complaint(j int) int64 { return f.complaints.of[j] }
