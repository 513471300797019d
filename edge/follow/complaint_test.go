package follow

import (
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/servo"
)

// Goal: the event of a motor's complaint has volts or degrees, as soon as they are known.
func TestComplaintsHaveTheirValue(t *testing.T) {
	for _, tt := range []struct {
		fault servo.Fault
		value int
		says  string
	}{
		{servo.FaultVoltage, 124, "supply: 12.4 V"}, {servo.FaultTemperature, 71, "heat: 71 C"},
		{servo.FaultVoltage, 0, "supply"}, {0, 0, ""},
	} {
		r, events := watched(t)
		r.bus.fault, r.bus.says.Hold = tt.fault, 1
		r.ticks(t, 3, 5, 50)
		r.bus.measured = tt.value
		r.ticks(t, 100, 5, 50)
		var told []string
		events.Drain(func(e event.Event) {
			if e.Code == event.JointHeld {
				told = append(told, event.ComplaintText(e.B))
			}
		})
		if !slices.Equal(told, []string{tt.says}) {
			t.Errorf("told %q, want %q once", told, tt.says)
		}
	}
}
