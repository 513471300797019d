package hotplug

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// unplug pulls the adapter's plug, and waits until the arm is away.
func unplug(t *testing.T, bus *servosim.Bus, p *Arm) {
	t.Helper()
	rttest.Do(t, bus.Unplug())
	until(t, p, "away", func(robot.Joints) bool { return p.Away() })
}

// rig opens an arm on the simulator through a symbolic link, as a udev rule makes it, and runs
// KeepOpen.
func rig(t *testing.T, name string) (*servosim.Bus, *Arm, *rttest.Output) {
	t.Helper()
	rttest.RealTime(t) // simulated motors answer within real time-outs
	r := rttest.Must(robot.ByName(name))(t)
	link := filepath.Join(t.TempDir(), "arm")
	cfg := device.SimBus(r, nil, rt.KernelClock())
	cfg.Link, cfg.BootTime = link, 200*time.Millisecond
	calibration := servo.Calibration{}
	for _, m := range r.Motors {
		calibration[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMax: 4095}
	}
	bus := servosimtest.Open(t, cfg)
	open := servo.ArmConfig{Path: link, Robot: r, Calibration: calibration, Clock: rt.KernelClock()}
	arm := rttest.Must(servo.OpenArm(open))(t)
	p := New(arm, open, rt.KernelClock())
	var ending atomic.Bool
	log := new(rttest.Output)
	done := make(chan struct{})
	go func() { p.KeepOpen(&ending, slog.New(slog.NewTextHandler(log, nil))); close(done) }()
	t.Cleanup(func() {
		ending.Store(true)
		<-done
		p.Close()
	})
	return bus, p, log
}

// until ticks the arm until happens returns true, and returns how long that took. what names the condition in an error.
func until(t *testing.T, p *Arm, what string, happens func(stale robot.Joints) bool) time.Duration {
	t.Helper()
	at := make([]float32, 6)
	defer func() {
		if t.Failed() {
			t.Logf("last attempt to open: %v", p.OpenError())
		}
	}()
	began := time.Now()
	rttest.Eventually(t, what, func() bool {
		return happens(p.Read(at, rt.KernelClock().Now().Add(30*time.Millisecond)))
	})
	return time.Since(began)
}

func arm(t *testing.T, p *Arm) {
	t.Helper()
	until(t, p, "armed", func(stale robot.Joints) bool {
		if stale != 0 {
			return false
		}
		return rttest.Must(p.ArmStep(rt.KernelClock().Now().Add(30*time.Millisecond), p.Arm().Joints()))(t)
	})
}

func TestReplug(t *testing.T) {
	bus, p, _ := rig(t, "so101")
	arm(t, p)
	for range 2 {
		rttest.Do(t, bus.Unplug())
		until(t, p, "away", func(stale robot.Joints) bool { return p.Away() && stale == 0b111111 })
		until(t, p, "an attempt to open that fails", func(robot.Joints) bool { return p.OpenError() != nil })
		rttest.Do(t, bus.Replug())
		took := until(t, p, "back", func(robot.Joints) bool {
			why, restarted := p.Reconnected()
			if why != 0 && (why != Unplugged || restarted != 0) {
				t.Errorf("it was away because %v, restarted %b", why, restarted)
			}
			return why != 0
		})
		t.Logf("back %v after the device", took)
		until(t, p, "all joints", func(stale robot.Joints) bool { return stale == 0 })
		if on := bus.TorqueEnabled(); slices.Contains(on, false) {
			t.Errorf("torque %v: the motors kept it, and nobody takes it", on)
		}
		arm(t, p)
	}
	if p.Stats().Cycles == 0 {
		t.Error("no cycles are counted")
	}
	rttest.Do(t, p.TorqueOff())
	if on := bus.TorqueEnabled(); slices.Contains(on, true) {
		t.Errorf("torque %v after TorqueOff", on)
	}
}

// Goal: after a brown-out the motors are limp and their RAM is lost. The settings are written
// again, and the torque stays off.
func TestMotorsThatRestarted(t *testing.T) {
	for _, name := range []string{"so101", "koch"} {
		t.Run(name, func(t *testing.T) {
			bus, p, _ := rig(t, name)
			arm(t, p)
			bus.PowerCycle()
			until(t, p, "back", func(robot.Joints) bool {
				why, restarted := p.Reconnected()
				if why != 0 && (why != Restarted || restarted == 0) {
					t.Errorf("it was away because %v, restarted %b", why, restarted)
				}
				return why != 0
			})
			if on := bus.TorqueEnabled(); slices.Contains(on, true) {
				t.Errorf("torque %v, want the motors limp until they are armed", on)
			}
			arm(t, p)
			if on := bus.TorqueEnabled(); slices.Contains(on, false) {
				t.Errorf("torque %v after arming", on)
			}
		})
	}
}

// Goal: TorqueOff fails while the adapter is unplugged, and works as soon as it is back.
func TestTorqueOffWhileAway(t *testing.T) {
	bus, p, _ := rig(t, "so101")
	arm(t, p)
	unplug(t, bus, p)
	rttest.Fails(t, p.TorqueOff())
	rttest.Do(t, bus.Replug())
	rttest.Eventually(t, "torque off", func() bool { return p.TorqueOff() == nil })
	if on := bus.TorqueEnabled(); slices.Contains(on, true) {
		t.Errorf("torque %v after TorqueOff", on)
	}
}

func TestCycleNoAlloc(t *testing.T) {
	bus, p, _ := rig(t, "so101")
	arm(t, p)
	at := make([]float32, 6)
	cycle := func() {
		p.Read(at, rt.KernelClock().Now().Add(30*time.Millisecond))
		p.Write(at, 0b111111)
		p.Reconnected()
		p.Reactions()
		p.BusWatchdogFired()
		p.BusWait()
	}
	rttest.NoAllocs(t, "a cycle allocates %v times, want 0", 50, cycle)
	unplug(t, bus, p)
	rttest.NoAllocs(t, "a cycle without an arm allocates %v times, want 0", 50, func() {
		p.Reactions()
		p.BusWatchdogFired()
		p.Write(at, 0b111111)
		p.BusWait()
	})
}

// Goal: if a fault of a hub gives the port to the adapter of another arm, that adapter is not opened.
func TestExchangedAdapters(t *testing.T) {
	var serial atomic.Pointer[string]
	plug := func(number string) { serial.Store(&number) }
	adapterAt = func(string) string { return *serial.Load() }
	t.Cleanup(func() { adapterAt = device.Adapter })
	plug("A")
	bus, p, log := rig(t, "so101")
	p.beside = Parts{p, {adapter: "B"}}
	unplug(t, bus, p)
	plug("B")
	rttest.Do(t, bus.Replug())
	until(t, p, "the other arm's adapter as the reason", func(robot.Joints) bool {
		err := p.OpenError()
		return err != nil && rttest.Says(err, "serial number B")
	})
	until(t, p, "a line of the log", func(robot.Joints) bool {
		return strings.Contains(log.String(), "serial number B")
	})
	for _, number := range []string{"C", "A"} { // a spare adapter, and the arm's own
		plug(number)
		until(t, p, "back", func(robot.Joints) bool { return !p.Away() })
		unplug(t, bus, p)
		rttest.Do(t, bus.Replug())
	}
	rttest.Want(t, strings.Count(log.String(), "serial number B"), 1, "lines of one reason")
}
