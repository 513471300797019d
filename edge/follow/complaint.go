package follow

import (
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// complaints are the complaints of the motors whose joints are held, for the events and the page.
type complaints struct {
	of     []int64      // [joint] the newest event.Complaint
	untold robot.Joints // joints whose event waits for the measured value
	since  rt.Instant   // instant from which these events wait
}

// complaintWait is the time for which a complaint's event waits for the motor's measurement.
const complaintWait = 500 * time.Millisecond

// tellHeld emits an event for each joint that is newly held, with the measured volts or degrees.
//
//rt:noalloc
func (f *Follower) tellHeld(now rt.Instant, held, begun robot.Joints) {
	c := &f.complaints
	if c.untold == 0 {
		c.since = now
	}
	c.untold = (c.untold | begun) & held
	for j := range f.joints {
		bit := robot.Joints(1) << j
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
		f.emit(now, event.JointHeld, bit, c.of[j])
	}
}

// complaint returns the current or last event.Complaint of joint j's motor, 0 if the motor has not complained.
//
//rt:noalloc
func (f *Follower) complaint(j int) int64 { return f.complaints.of[j] }
