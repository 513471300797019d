package servo_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// Goal: two independent implementations of the datasheet agree over a real tty.

func openSim(t *testing.T, cfg servosim.Config) (*servosim.Bus, *servo.Arm) {
	t.Helper()
	bus, err := servosim.Open(cfg)
	if err != nil {
		t.Skip("no simulator here: ", err)
	}
	t.Cleanup(func() { bus.Close() })
	arm, err := openArm(bus)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arm.Close() })
	return bus, arm
}

func openArm(bus *servosim.Bus) (*servo.Arm, error) {
	r, err := robot.ByName("so101")
	if err != nil {
		return nil, err
	}
	calibration, err := servo.LoadCalibration("../testdata/demo/so101.json")
	if err != nil {
		return nil, err
	}
	return servo.OpenArm(servo.ArmConfig{Path: bus.Path(), Robot: r, Calibration: calibration})
}

// plant holds joints that jump to their goal.
type plant struct {
	raw    [6]atomic.Int32
	torque [6]atomic.Bool
}

func (p *plant) Goal(_ rt.Instant, joint, raw int)       { p.raw[joint].Store(int32(raw)) }
func (p *plant) Present(_ rt.Instant, joint int) int     { return int(p.raw[joint].Load()) }
func (p *plant) Torque(_ rt.Instant, joint int, on bool) { p.torque[joint].Store(on) }

func TestArmOnSimulator(t *testing.T) {
	p := new(plant)
	for i := range p.raw {
		p.raw[i].Store(int32(1500 + 100*i))
	}
	bus, arm := openSim(t, servosim.Config{Plant: p})
	clock := rt.KernelClock()
	for i, on := range bus.TorqueEnabled() {
		if on {
			t.Errorf("joint %d is under torque after OpenArm, want torque untouched", i)
		}
	}
	if err := arm.TorqueOn(); err != nil {
		t.Fatal(err)
	}
	for i, on := range bus.TorqueEnabled() {
		if !on || p.raw[i].Load() != int32(1500+100*i) {
			t.Errorf("joint %d: torque %v at %d, want true and no movement", i, on, p.raw[i].Load())
		}
	}
	p99, err := arm.MeasureCycles(100)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("MeasureCycles: p99 %v", p99)

	dst, goal := make([]float32, 6), make([]float32, 6)
	next := clock.Now()
	stale := 0
	settled := 0
	behind := 0
	var goals [][]float32
	for tick := range 60 {
		next = next.Add(time.Second / 60)
		clock.SleepUntil(next)
		if arm.Read(dst, clock.Now().Add(13*time.Millisecond)) != 0 {
			stale++
			settled = 0
			// The simulator was late; its pending replies are older than the goals compared below.
		} else if settled++; settled > 2 {
			if why := away(dst, [][]float32{goal}); why != "" {
				behind++ // answers of the read before, as late as the simulator is
				if why := away(dst, goals); why != "" {
					t.Fatalf("tick %d: %s", tick, why)
				}
			}
		}
		goals = append(goals, slices.Clone(goal))
		for i := range goal {
			goal[i] = float32(40 * math.Sin(float64(tick+10*i)/10))
		}
		goal[5] += 50
		arm.Write(goal, arm.Joints())
	}
	s := arm.Stats()
	t.Logf("60 cycles: p50 %v, p99 %v, lost %d, corrupt %d", s.Cycle.Quantile(0.5), s.Cycle.Quantile(0.99), s.Lost,
		s.Corrupt)
	// a reply that this host delivers late collides with the next request, or belongs to no request
	if stale > 30 || behind > 10 || s.Corrupt > strays && s.Retries == 0 && stale == 0 || s.ClippedGoals != 0 {
		t.Errorf("%d of 60 reads had a stale joint, %d an older goal, %d corrupt, %d clipped, want few, few, at most "+
			"%d, 0", stale, behind, s.Corrupt, s.ClippedGoals, strays)
	}
	if n := testing.AllocsPerRun(60, func() {
		arm.Read(dst, clock.Now().Add(13*time.Millisecond))
		arm.Write(goal, arm.Joints())
	}); n != 0 {
		t.Errorf("a cycle allocates %v times, want 0", n)
	}
	if err := arm.TorqueOff(); err != nil {
		t.Error(err)
	}
	for i, on := range bus.TorqueEnabled() {
		if on {
			t.Errorf("joint %d is under torque after TorqueOff", i)
		}
	}
}

// away describes a joint that is not at any of its goals; a step is 0.088 degrees.
func away(at []float32, goals [][]float32) string {
	for i := range at {
		if !slices.ContainsFunc(goals, func(g []float32) bool { return math.Abs(float64(at[i]-g[i])) <= 0.1 }) {
			return fmt.Sprintf("joint %d is at %v, want %v", i, at[i], goals[len(goals)-1][i])
		}
	}
	return ""
}

// strays is the number of frames of a clean run that may belong to no request: replies of the
// health windows come late now and then, and are not counted as lost. A parser with an error would
// produce such frames in every cycle.
const strays = 5

func TestSilentMotorOnSimulator(t *testing.T) {
	rttest.RealTime(t) // the other motors answer within milliseconds
	bus, arm := openSim(t, servosim.Config{})
	clock := rt.KernelClock()
	if err := arm.TorqueOn(); err != nil {
		t.Fatal(err)
	}
	bus.Mute(3, true)
	dst := make([]float32, 6)
	seen := false
	for range 20 {
		seen = seen || arm.Read(dst, clock.Now().Add(13*time.Millisecond)) == 0b000100
		clock.SleepUntil(clock.Now().Add(5 * time.Millisecond))
	}
	if !seen {
		t.Error("no read had exactly motor 3 stale")
	}
	off := arm.TorqueOff()
	// a busy host: other replies were late too
	for try := 0; try < 5 && off != nil && strings.Contains(off.Error(), ", 3 (elbow_flex)"); try++ {
		off = arm.TorqueOff()
	}
	if !errors.Is(off, servo.ErrTorque) || !strings.Contains(off.Error(), "motor 3 (elbow_flex)") {
		t.Errorf("TorqueOff = %v, want it to name motor 3", off)
	}
	if err := arm.Close(); err != nil {
		t.Error(err)
	}
	want := "no reply from motor 3 (elbow_flex) on " + bus.Path() +
		": answered 1 2 4 5 6; check its cable, power and id"
	if _, err := openArm(bus); !errors.Is(err, servo.ErrMotorMissing) || !strings.Contains(err.Error(), want) {
		t.Errorf("OpenArm = %v, want %q", err, want)
	}
	bus.Mute(3, false)
	again, err := openArm(bus)
	if err != nil {
		t.Fatalf("OpenArm of the repaired arm: %v", err)
	}
	defer again.Close()
	if err := again.TorqueOff(); err != nil {
		t.Error(err)
	}
}

func TestPulledPlugOnSimulator(t *testing.T) {
	bus, arm := openSim(t, servosim.Config{})
	bus.Close()
	dst := make([]float32, 6)
	if stale := arm.Read(dst, rt.KernelClock().Now().Add(13*time.Millisecond)); stale != 0b111111 || !arm.Lost() {
		t.Errorf("Read = stale %06b, lost %v, want all, true", stale, arm.Lost())
	}
	if err := arm.TorqueOff(); !errors.Is(err, servo.ErrTorque) {
		t.Errorf("TorqueOff = %v, want %v", err, servo.ErrTorque)
	}
}

func TestAnotherModelOnSimulator(t *testing.T) {
	bus, err := servosim.Open(servosim.Config{Model: "sts3250"})
	if err != nil {
		t.Skip("no simulator here: ", err)
	}
	defer bus.Close()
	if _, err := openArm(bus); !errors.Is(err, servo.ErrWrongModel) ||
		!strings.Contains(err.Error(), "got model number 2825 (sts3250), want 777") {
		t.Errorf("OpenArm = %v, want %v", err, servo.ErrWrongModel)
	}
}
