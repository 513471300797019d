package servo_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// simOf opens a robot's bus on the simulator.
func simOf(t *testing.T, r robot.Robot, cfg servosim.Config) *servosim.Bus {
	t.Helper()
	rttest.RealTime(t) // simulated motors answer within real time-outs
	for _, m := range r.Motors {
		cfg.Servos = append(cfg.Servos, servosim.Servo{ID: m.ID, Model: m.Model.Name})
		if m.Shadow != 0 {
			cfg.Servos = append(cfg.Servos, servosim.Servo{ID: m.Shadow, Model: m.Model.Name})
		}
	}
	return servosimtest.Open(t, cfg)
}

// config returns the configuration of a robot on a bus, with whole ranges.
func config(bus *servosim.Bus, r robot.Robot) servo.ArmConfig {
	return servo.ArmConfig{Path: bus.Path(), Robot: r, Calibration: whole(r)}
}

// mustOpen opens an arm, which the test's end closes.
func mustOpen(t *testing.T, cfg servo.ArmConfig) *servo.Arm {
	t.Helper()
	arm := rttest.Must(servo.OpenArm(cfg))(t)
	t.Cleanup(func() { arm.Close() })
	return arm
}

// opens opens an arm, closes it, and returns the error of the opening.
func opens(cfg servo.ArmConfig) error {
	arm, err := servo.OpenArm(cfg)
	if err == nil {
		arm.Close()
	}
	return err
}

// torqueOn arms an arm.
func torqueOn(t *testing.T, arm *servo.Arm) {
	t.Helper()
	rttest.Do(t, arm.TorqueOn())
}

// onBus calls the function do with a second bus on the motors' line, as another program would open it.
func onBus(t *testing.T, bus *servosim.Bus, r robot.Robot, do func(*servo.Bus)) {
	t.Helper()
	port := rttest.Must(servo.OpenPort(bus.Path(), r.Baud))(t)
	defer port.Close()
	do(servo.NewBus(port, r.Baud, r.Protocol(), rt.KernelClock()))
}

// write sets a register of a motor.
func write(t *testing.T, b *servo.Bus, m robot.Motor, register table.Register, value int) {
	t.Helper()
	rttest.Do(t, servo.WriteSettings(b, m.ID, m.Model, []robot.Setting{{Register: register, Value: value}}))
}

// tick reads an arm, as a run does, and arms it again when the bus watchdog has fired because this
// host was late.
func tick(t *testing.T, arm *servo.Arm, at []float32) (stale robot.Joints) {
	t.Helper()
	stale = arm.Read(at, rt.KernelClock().Now().Add(40*time.Millisecond))
	if arm.BusWatchdogFired() {
		torqueOn(t, arm)
	}
	return stale
}

// checkTorque fails the test unless the torque of every servo is as wanted.
func checkTorque(t *testing.T, bus *servosim.Bus, when string, want bool) {
	t.Helper()
	if on := bus.TorqueEnabled(); slices.Contains(on, !want) {
		t.Errorf("torque %v %s, want %v", on, when, want)
	}
}

// strays is the number of frames without a request that a clean run may have: replies to reads of
// health windows come late now and then, and do not count as lost. A parser with an error would
// produce such frames in every cycle.
const strays = 5

// checkStrays fails the test when too many frames belonged to no request. It ignores them when replies were
// lost: a reply that this host delivers too late counts as lost, and afterwards as corrupt.
func checkStrays(t *testing.T, arm *servo.Arm) {
	t.Helper()
	if s := arm.Stats(); s.Corrupt > strays && s.Lost == 0 && s.Retries == 0 || s.Refused != 0 || s.ClippedGoals != 0 {
		t.Errorf("%d corrupt, %d refused, %d clipped", s.Corrupt, s.Refused, s.ClippedGoals)
	}
}

// whole returns a calibration with the whole range of each motor.
func whole(r robot.Robot) servo.Calibration {
	c := servo.Calibration{}
	for _, m := range r.Motors {
		c[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMax: m.Model.MaxRaw()}
	}
	return c
}

const (
	axArm = `
name: ax
calibration: [ax]
baud: 1000000
settings: {Return_Delay_Time: 0}
motors:
  - {name: a, id: 1, model: ax-12a, norm: degrees, max_velocity: 100}
  - {name: b, id: 2, model: ax-12a, norm: degrees, max_velocity: 100}
`
	xmArm = `
name: xm
calibration: [xm]
baud: 1000000
settings: {Return_Delay_Time: 0, Operating_Mode: 3}
motors:
  - {name: a, id: 1, model: xm540-w270, norm: degrees, max_velocity: 100}
  - {name: b, id: 2, model: xm430-w350, norm: degrees, max_velocity: 100}
  - {name: c, id: 3, model: xc330-t288, norm: degrees, max_velocity: 100}
`
)

func robotOf(t *testing.T, name string) robot.Robot {
	t.Helper()
	texts := map[string]string{"ax": axArm, "xm": xmArm}
	r, err := robot.Parse(name, []byte(texts[name]))
	if texts[name] == "" {
		r, err = robot.ByName(name)
	}
	rttest.Do(t, err)
	return r
}

// Goal: an arm of every family of servos opens, holds its position, follows its goals, keeps its
// settings and becomes limp, on a simulator that shares no code with the driver.
func TestEveryFamilyOnSimulator(t *testing.T) {
	for _, name := range []string{"so101", "so100", "koch", "omx", "generic", "ax", "xm"} {
		t.Run(name, func(t *testing.T) {
			r := robotOf(t, name)
			bus := simOf(t, r, servosim.Config{})
			arm := mustOpen(t, config(bus, r))
			checkTorque(t, bus, "after OpenArm", false)
			before := bus.States()
			torqueOn(t, arm)
			checkTorque(t, bus, "after TorqueOn", true)
			for i, s := range bus.States() {
				rttest.Want(t, s.Place, before[i].Place, "arming moved servo %d from %d to", s.ID, before[i].Place)
			}
			follow(t, arm, len(r.Motors))
			at, goal := make([]float32, len(r.Motors)), make([]float32, len(r.Motors))
			tick(t, arm, goal)
			rttest.NoAllocs(t, "a cycle allocates %v times, want 0", 30, func() {
				arm.Read(at, rt.KernelClock().Now().Add(40*time.Millisecond))
				arm.Write(goal, arm.Joints())
			})
			checkStrays(t, arm)
			// a window whose reply came late is read again later
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); tick(t, arm, at) {
				if hot, volts := arm.Extremes(); hot != 0 && volts != 0 {
					break
				}
			}
			if hot, volts := arm.Extremes(); hot < 15 || hot > 80 || volts < 3 || volts > 25 {
				t.Errorf("climate %v C, %v V", hot, volts)
			}
			rttest.Do(t, arm.TorqueOff())
			checkTorque(t, bus, "after TorqueOff", false)
		})
	}
}

// follow moves all joints by ten units and back, and checks that they arrive.
func follow(t *testing.T, arm *servo.Arm, joints int) {
	t.Helper()
	clock := rt.KernelClock()
	at, goal := make([]float32, joints), make([]float32, joints)
	for tick(t, arm, at) != 0 {
	}
	home := append([]float32(nil), at...)
	for _, offset := range []float32{10, 0} {
		for n := 0; ; n++ {
			clock.SleepUntil(clock.Now().Add(10 * time.Millisecond))
			tick(t, arm, at)
			there := true
			for j := range goal {
				goal[j] = home[j] + offset
				there = there && math.Abs(float64(at[j]-goal[j])) < 1
			}
			if there && n > 20 {
				break
			}
			if n == 300 {
				s := arm.Stats()
				t.Fatalf("joints are at %v, want %v; lost port %v, hold %b, %d cycles, %d lost, %d corrupt, %d retries",
					at, goal, arm.Lost(), held(arm),
					s.Cycles, s.Lost, s.Corrupt, s.Retries)
			}
			arm.Write(goal, arm.Joints())
		}
	}
}

// On a line with an echo, the echo of a read request has the form of an answer with a wrong
// position. The driver must never accept it.
func TestEchoOnSimulator(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"so101", "koch"} {
		r := robotOf(t, name)
		arm := mustOpen(t, config(simOf(t, r, servosim.Config{Echo: true}), r))
		torqueOn(t, arm)
		follow(t, arm, len(r.Motors))
		checkStrays(t, arm)
		rttest.Do(t, arm.TorqueOff())
	}
}

// The reply to a fast sync read ends at the first silent motor. A plain sync read loses only that motor's position.
func TestSilentMotorBehindFastReads(t *testing.T) {
	t.Parallel()
	for _, id := range []uint8{1, 2} { // without the first motor's part, the whole fast reply is missing
		r := robotOf(t, "koch")
		bus := simOf(t, r, servosim.Config{})
		arm := mustOpen(t, config(bus, r))
		bus.Mute(id, true)
		clock, at := rt.KernelClock(), make([]float32, 6)
		only := 0
		for range 60 {
			if arm.Read(at, clock.Now().Add(30*time.Millisecond)) == 1<<(id-1) {
				only++
			}
			clock.SleepUntil(clock.Now().Add(5 * time.Millisecond))
		}
		if only < 20 {
			t.Errorf("%d of 60 reads had motor %d alone stale, want nearly all", only, id)
		}
	}
}

// OpenArm reboots a Dynamixel that has switched its torque off after an overload, even if other software has left it at
// a status return level at which it does not answer the reboot. The arming clears a bus watchdog that has fired.
func TestDynamixelLatchedAndAsleep(t *testing.T) {
	t.Parallel()
	r := robotOf(t, "koch")
	bus := simOf(t, r, servosim.Config{BootTime: 100 * time.Millisecond})
	arm := mustOpen(t, config(bus, r))
	torqueOn(t, arm)
	time.Sleep(300 * time.Millisecond) // the silence under test: longer than the watchdog's timeout
	arm.Read(make([]float32, 6), rt.KernelClock().Now().Add(40*time.Millisecond))
	if !arm.BusWatchdogFired() {
		t.Error("300 ms of silence, and the arm does not count as asleep")
	}
	torqueOn(t, arm)
	if arm.BusWatchdogFired() {
		t.Error("armed again and still asleep")
	}
	follow(t, arm, 6)
	rttest.Do(t, arm.TorqueOff())
	arm.Close()
	onBus(t, bus, r, func(b *servo.Bus) { write(t, b, r.Motors[2], table.ResponseStatusLevel, 1) })
	rttest.Do(t, bus.Inject(servosim.Script{Faults: []servosim.Fault{{Kind: "overload", IDs: []uint8{3}}}}))
	rttest.Eventually(t, "the overload", func() bool { return bus.States()[2].Fault != 0 })
	arm = mustOpen(t, config(bus, r))
	if len(arm.Notes()) != 2 || !strings.Contains(arm.Notes()[1], "motor 3 (elbow_flex) had latched overload") {
		t.Errorf("Notes = %q, want that motor 3 was rebooted", arm.Notes())
	}
}

// OpenArm does not reboot a Dynamixel that holds its joint in spite of a hardware error, as an XL430 does at a wrong
// voltage. It reboots the same motor of a leader, which is let go in any case. During a run it leaves the follower's
// motor as it is.
func TestDynamixelLatchedUnderTorque(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"koch", "koch_leader"} {
		r := robotOf(t, name)
		bus := simOf(t, r, servosim.Config{BootTime: 100 * time.Millisecond})
		cfg := config(bus, r)
		rttest.Do(t, opens(cfg)) // the motors have their settings
		onBus(t, bus, r, func(b *servo.Bus) { write(t, b, r.Motors[1], table.TorqueEnable, 1) })
		bus.SetFault(2, uint8(servo.FaultVoltage))
		says := []string{"motor 2 (shoulder_lift)", "supply voltage out of range", "edge-rt torque off"}
		if r.Leader {
			says[2] = "again after a reboot"
		}
		rttest.FailsAs(t, opens(cfg), servo.ErrLatched, says...)
		cfg.Reopened = true
		rttest.Want(t, opens(cfg) == nil, !r.Leader, "%s: it opens during a run", name)
		rttest.Want(t, bus.TorqueEnabled()[1], !r.Leader, "%s: the motor's torque", name)
	}
}

// Close switches the bus watchdog off when the arm keeps its torque: a watchdog that has fired
// would make the motors refuse the goals of the next program.
func TestAnArmThatIsHeldHasNoWatchdog(t *testing.T) {
	t.Parallel()
	r := robotOf(t, "koch")
	bus := simOf(t, r, servosim.Config{})
	arm := mustOpen(t, config(bus, r))
	torqueOn(t, arm)
	rttest.Do(t, arm.Close())
	time.Sleep(300 * time.Millisecond) // the silence under test: longer than a watchdog's timeout
	onBus(t, bus, r, func(next *servo.Bus) {
		for _, m := range r.Motors {
			watchdog, _, err := next.ReadRegister(m.ID, m.Model.Row(table.BusWatchdog))
			if err != nil || watchdog != 0 {
				t.Errorf("motor %d: Bus_Watchdog is %d, %v, want 0", m.ID, watchdog, err)
			}
			if err := next.WriteRegister(m.ID, m.Model.Row(table.GoalPosition), 2100); err != nil {
				t.Errorf("motor %d: %v", m.ID, err)
			}
		}
	})
	checkTorque(t, bus, "after Close", true)
}

func TestTheSimulatorHasEveryModel(t *testing.T) {
	have := servosim.Models()
	for _, name := range table.Names() {
		if !slices.Contains(have, name) {
			t.Errorf("no simulated %s: a robot's description with one could not be tried", name)
		}
	}
}
