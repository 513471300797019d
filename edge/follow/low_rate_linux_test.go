package follow

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// Goal: Dynamixels work at 10 fps and below, and at 15 with a skipped tick.
func TestKochAtLowRates(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("seconds of real time")
	}
	for _, hz := range []int{5, 10} {
		t.Run(fmt.Sprint(hz), func(t *testing.T) {
			t.Parallel()
			period := time.Second / time.Duration(hz)
			r, _ := robot.ByName("koch")
			cfg := servo.ArmConfig{Robot: r, Calibration: servo.Calibration{}, Clock: rt.KernelClock()}
			sim := servosim.Config{Link: filepath.Join(t.TempDir(), "arm")}
			for _, m := range r.Motors {
				cfg.Calibration[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMin: 200, RangeMax: 3900}
				sim.Servos = append(sim.Servos, servosim.Servo{ID: m.ID, Model: m.Model.Name})
			}
			servosimtest.Open(t, sim)
			cfg.Path = sim.Link
			arm := rttest.Must(servo.OpenArm(cfg))(t)
			p := hotplug.New(arm, cfg, rt.KernelClock())
			defer p.Close()
			p.SetPeriod(period)
			f := New(p, Config{Period: period, Safety: r.Safety, Gate: NewGate(arm, period)}, len(r.Motors))
			clock := rt.KernelClock()
			tick := rt.Tick{Deadline: clock.Now()}
			want := make([]float32, len(r.Motors))
			phases := map[Phase]int{}
			f.StartArming()
			for range 30 * hz {
				tick.Deadline = max(tick.Deadline.Add(period), clock.Now())
				clock.SleepUntil(tick.Deadline)
				tick.Woke = clock.Now()
				f.ReadBy(tick, tick.Deadline.Add(period-Reserve(period)))
				switch f.Phase {
				case Arming:
					rttest.Must(f.ArmStep(tick))(t)
				case Armed:
					for j := range want {
						want[j] = 10
					}
					f.DriveAt(tick.Woke, want, 1)
				}
				if phases[f.Phase]++; phases[Armed] >= 2*hz {
					break
				}
			}
			t.Logf("%d Hz: ticks per phase %v, at %v", hz, phases, f.Place)
			if phases[Armed] < 2*hz {
				t.Errorf("%d Hz: armed in %d of %d ticks", hz, phases[Armed], 30*hz)
			}
		})
	}
}
