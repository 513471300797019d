package servo_test

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// Goal: OpenArm corrects and reports settings that other software left in a Dynamixel and that
// hinder its motion or change the meaning of a goal.
func TestLeftInADynamixel(t *testing.T) {
	r := robotOf(t, "koch")
	bus := simOf(t, r, servosim.Config{})
	left := []struct {
		motor    int
		register table.Register
		v, want  int
	}{
		{0, table.ProfileVelocity, 5, 0},
		{1, table.ProfileAcceleration, 1, 0},
		{2, table.DriveMode, 4, 0},
		{3, table.DriveMode, 8, 0},
		{4, table.SecondaryID, 2, 255},
		{5, table.GoalCurrent, 5, 1750},
		{1, table.ProfileVelocity, 300, 300}, // fast enough
	}
	onBus(t, bus, r, func(b *servo.Bus) {
		for _, m := range r.Motors { // the modes come first: they reset the values that are written below
			mode, _ := m.Setting(table.OperatingMode)
			write(t, b, m, table.OperatingMode, mode)
		}
		for _, k := range left {
			write(t, b, r.Motors[k.motor], k.register, k.v)
		}
	})
	arm := mustOpen(t, config(bus, r))
	notes := strings.Join(arm.Notes(), "\n")
	arm.Close()
	onBus(t, bus, r, func(b *servo.Bus) {
		for _, k := range left {
			m := r.Motors[k.motor]
			if got, _, err := b.ReadRegister(m.ID, m.Model.Row(k.register)); err != nil || got != k.want {
				t.Errorf("%s: %s is %d, %v, want %d", m.Name, k.register, got, err, k.want)
			}
			if k.v != k.want && !strings.Contains(notes, string(k.register)) {
				t.Errorf("%s: not reported in %q", k.register, notes)
			}
		}
	})
}
