package drive

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// driven is a simulated arm in a run that never changes its goals.
type driven struct {
	*Run
	bus    *servosim.Bus
	arm    *follow.Parts
	out    *rttest.Output
	ready  bool
	before func() // called in each tick on which the arm is driven
}

func newDriven(t *testing.T, onExit string) *driven {
	t.Helper()
	r := rttest.Must(robot.ByName("so101"))(t)
	clock, period := rt.KernelClock(), 20*time.Millisecond
	bus, _, err := device.OpenSim(r, 1, clock)
	rttest.Do(t, err)
	t.Cleanup(bus.Close)
	cfg := servo.ArmConfig{Path: bus.Path(), Robot: r, Calibration: device.SimCalibration(r), Clock: clock}
	var arm *servo.Arm
	rttest.Eventually(t, "an open arm, though a busy machine delays replies", func() bool {
		arm, err = device.OpenArm(cfg)
		return err == nil
	})
	hot := hotplug.New(arm, cfg, clock)
	t.Cleanup(hot.Close)
	hot.SetPeriod(period)
	d := &driven{bus: bus, out: new(rttest.Output), ready: true, before: func() {}}
	d.arm = follow.One(follow.New(hot, follow.Config{
		Period: period,
		Safety: r.Safety,
		Gate:   follow.NewGate(arm, period),
		Exit:   follow.ExitModes[onExit],
		Events: event.NewQueue(64),
		Clock:  clock,
	}, len(r.Motors)))
	d.Run = New(Config{
		Arm:    d.arm,
		Bus:    hot,
		Path:   bus.Path(),
		OnExit: onExit,
		Held:   SayHeld(d.out),
		Loop:   rt.LoopConfig{Clock: clock, Period: period, Mode: rt.ModeOff},
	})
	t.Cleanup(d.Close)
	return d
}

func (d *driven) tick(t rt.Tick) rt.Wait {
	d.arm.Read(t)
	d.Check()
	if d.Step(t, d.ready, false) {
		d.before()
	}
	return rt.Wait{}
}

func (d *driven) stiff() bool { return slices.Contains(d.bus.TorqueEnabled(), true) }

// Whatever ends a run, the arm is released, or held if that was requested and is safe.
func TestEveryEnd(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name   string
		onExit string
		end    func(d *driven, cancel func())
		says   string
		stiff  bool
	}{
		{"a signal", "park", func(_ *driven, cancel func()) { cancel() }, "", false},
		{"off", "off", func(_ *driven, cancel func()) { cancel() }, "", false},
		{"hold", "hold", func(_ *driven, cancel func()) { cancel() }, "", true},
		{"released, though held", "hold", func(d *driven, _ func()) { d.Release() }, "", false},
		{"what drives it is gone, held", "hold", func(d *driven, _ func()) {
			d.GiveUp(exit.With(exit.Absent, broken))
		}, "broken", true},
		{"a fault, though held", "hold", func(d *driven, _ func()) {
			d.GiveUp(exit.With(exit.Fault, broken))
		}, "broken", false},
		{"an error, though held", "hold", func(d *driven, _ func()) { d.Fail(broken) }, "broken", false},
		{"a panic in the tick, though held", "hold", func(*driven, func()) {
			panic("in it")
		}, "tick: panic: in it", false},
		{"a panic beside it", "park", func(d *driven, _ func()) {
			d.Go(func() error { panic("there") })
		}, "beside the tick: panic: there", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDriven(t, tt.onExit)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var ended, woken bool
			ends := 0
			d.before = func() {
				if ends++; ends == 3 {
					tt.end(d, cancel)
				}
			}
			d.Go(func() error {
				rttest.Eventually(t, "the end of the tick", d.Ending().Load)
				ended = true
				return nil
			})
			err := d.End(d.Loop(ctx, d.tick, nil), func() { woken = true })
			if tt.says == "" && err != nil || tt.says != "" && !rttest.Says(err, tt.says) {
				t.Errorf("it ends with %v, want %q", err, tt.says)
			}
			if d.stiff() != tt.stiff || strings.Contains(d.out.String(), "The arm is held") != tt.stiff {
				t.Errorf("torque %v, it says %q; held: want %v", d.bus.TorqueEnabled(), d.out, tt.stiff)
			}
			if !ended || !woken || ends < 3 {
				t.Errorf("the thread beside the tick ended: %v, was woken: %v, the arm was driven %d times", ended,
					woken, ends)
			}
		})
	}
}

// An arm without a source of goals is not armed.
func TestNothingDrives(t *testing.T) {
	d := newDriven(t, "park")
	d.ready = false
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	d.before = func() { t.Error("it is driven") }
	if err := d.End(d.Loop(ctx, d.tick, nil), nil); err != nil || d.stiff() {
		t.Errorf("%v, torque %v, want none", err, d.bus.TorqueEnabled())
	}
}

func TestStateNoAlloc(t *testing.T) {
	for _, tt := range []struct {
		phase  follow.Phase
		driven bool
		want   string
	}{{follow.Unarmed, false, Connecting}, {follow.Arming, true, Connecting}, {follow.Armed, true, Streaming},
		{follow.Armed, false, Stalled}, {follow.Parking, false, Stalled}} {
		var got uint32
		if n := testing.AllocsPerRun(10, func() {
			got = State(tt.phase, tt.driven)
		}); n != 0 || record.RunStates[got] != tt.want {
			t.Errorf("phase %d, driven %v: %s with %v allocations, want %s", tt.phase, tt.driven, record.RunStates[got],
				n, tt.want)
		}
	}
}
