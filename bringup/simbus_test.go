package bringup

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/scene"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// On each arm, the motors of the joints that gravity pulls sink without torque, second motors included.
func TestWhichJointsOfASimulatedArmSink(t *testing.T) {
	for _, name := range []string{"so101", "koch", "widowx"} {
		r := named(t, name)
		var want []uint8
		for _, m := range r.Motors {
			if slices.Contains(strings.Fields("shoulder_lift shoulder elbow_flex elbow wrist_flex wrist_angle"),
				m.Name) {
				want = append(want, m.ID)
				if m.Shadow != 0 {
					want = append(want, m.Shadow)
				}
			}
		}
		bus := servosim.Config{Clock: rt.KernelClock()}
		addMotors(&bus, r, SimBusConfig{})
		var got []uint8
		for i, w := range bus.Weights {
			if w.Speed > 0 {
				got = append(got, bus.Servos[i].ID)
			}
		}
		if len(bus.Weights) != len(bus.Servos) || !slices.Equal(got, want) || len(want) < 3 {
			t.Errorf("%s: %v of %d servos sink, want %v", name, got, len(bus.Servos), want)
		}
		addMotors(&bus, r, SimBusConfig{Weightless: true})
		if slices.ContainsFunc(bus.Weights, func(w servosim.Weight) bool { return w.Speed != 0 }) {
			t.Errorf("%s: weightless %v", name, bus.Weights)
		}
	}
}

// A simulated arm has all motors of its robot, also one with the id 0.
func TestTheMotorsOfASimulatedArm(t *testing.T) {
	r := named(t, "so101")
	r.Motors = slices.Clone(r.Motors)
	r.Motors[0].ID = 0
	bus := servosim.Config{Clock: rt.KernelClock()}
	addMotors(&bus, r, SimBusConfig{})
	if len(bus.Servos) != len(r.Motors) || bus.Servos[0].ID != 0 {
		t.Errorf("%v, want the %d motors of the robot", bus.Servos, len(r.Motors))
	}
}

// The world of a simulated follower is shown at the path of --scene; a robot without a world is
// refused.
func TestTheWorldOfASimulatedArmIsShown(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "scene")
	cfg := SimBusConfig{
		Robot: "so101",
		Seed:  5,
		Link:  device.ByPart{filepath.Join(dir, "arm")},
		Scene: device.ByPart{socket},
	}
	for _, change := range []func(*SimBusConfig){
		func(c *SimBusConfig) { c.Motors = true },
		func(c *SimBusConfig) { c.Robot = "so101_leader" },
		func(c *SimBusConfig) { c.Robot = singleRobot },
		func(c *SimBusConfig) { c.Scene = device.ByPart{dir} },
	} {
		refused := cfg
		change(&refused)
		if err := ServeSimBus(t.Context(), refused, io.Discard); exit.Of(err) != exit.Usage ||
			!rttest.Says(err, "--scene") {
			t.Errorf("%+v: %v, want a usage error that names --scene", refused, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := rttest.Go(func() error { return ServeSimBus(ctx, cfg, io.Discard) })
	var eye *scene.Viewer
	rttest.Eventually(t, "a world to be seen", func() (ok bool) {
		var err error
		eye, err = scene.Dial(socket)
		return err == nil
	})
	want := sim.NewWorld(5, 1)
	if v, err := eye.View(); err != nil || v.Target != want.Target() || v.Post != want.Post() || v.Q != want.Q() {
		t.Errorf("View() = %+v, %v, want the world of seed 5", v, err)
	}
	eye.Close()
	cancel()
	rttest.Do(t, <-done)
	if _, err := scene.Dial(socket); err == nil {
		t.Error("the world is shown when its bus has ended")
	}
}

func TestWhoseTorqueIsOnAfterPowerUp(t *testing.T) {
	servos := []servosim.Servo{{ID: 1, Model: "sts3215"}, {ID: 7, Model: "sts3215"}}
	for _, tt := range []struct {
		who  string
		want []uint8
		bad  bool
	}{
		{"", nil, false},
		{"all", []uint8{1, 7}, false},
		{"7", []uint8{7}, false},
		{"7, 1", []uint8{7, 1}, false},
		{"2", nil, true},
		{"1,", nil, true},
		{"gripper", nil, true},
		{"-1", nil, true},
		{"257", nil, true},
	} {
		got, err := bootTorque(tt.who, servos)
		if !slices.Equal(got, tt.want) || (err != nil) != tt.bad {
			t.Errorf("bootTorque(%q) = %v, %v, want %v, an error %v", tt.who, got, err, tt.want, tt.bad)
		}
		if err != nil && !rttest.Says(err, "sts3215 1 7") {
			t.Errorf("%v names no motors to choose from", err)
		}
	}
}

// A robot of two arms has a bus and a world for each arm. With a shared supply a brown-out of one arm is also a
// brown-out of the other arm.
func TestSimulatedArmsOfARobot(t *testing.T) {
	dir := t.TempDir()
	faults := filepath.Join(dir, "faults.yaml")
	text := "faults:\n  - {kind: brownout, volts: 3.5, from: 1h}\n  - {kind: mute, ids: [3], from: 1h}\n"
	rttest.Do(t, os.WriteFile(faults, []byte(text), 0o644))
	cfg := SimBusConfig{
		Robot:  "bi_so101",
		Link:   device.ByPart{filepath.Join(dir, "two")},
		Scene:  device.ByPart{"right=" + filepath.Join(dir, "scene")},
		Faults: device.ByPart{"left=" + faults},
		Power:  "shared",
	}
	arms, err := cfg.arms()
	rttest.Do(t, err)
	left, right := arms[0], arms[1]
	if kinds(left) != "mute brownout" || kinds(right) != "brownout" || left.name != "bi_so101 left" ||
		left.scene != "" || right.scene == "" || left.bus.Plant == right.bus.Plant {
		t.Errorf("%s has the faults %s and the scene %q, %s %s and %q", left.name, kinds(left), left.scene, right.name,
			kinds(right), right.scene)
	}
	cfg.Power = "part"
	if arms, err = cfg.arms(); err != nil || kinds(arms[0]) != "brownout mute" || kinds(arms[1]) != "" {
		t.Errorf("with a supply for each arm: %s, %s, %v", kinds(arms[0]), kinds(arms[1]), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var out strings.Builder
	go func() { done <- ServeSimBus(ctx, cfg, &out) }()
	for _, part := range []string{"left", "right"} {
		rttest.Eventually(t, part+"'s arm", func() bool {
			_, err := os.Stat(filepath.Join(dir, "two_"+part))
			return err == nil
		})
	}
	cancel()
	if err := <-done; err != nil || strings.Count(out.String(), "until SIGTERM\n") != 2 ||
		!strings.Contains(out.String(), "bi_so101 right: 6 motors (sts3215 1 2 3 4 5 6) at "+dir+"/two_right (") {
		t.Errorf("%v, it writes %q", err, out.String())
	}
}

func kinds(a armBus) string {
	var all []string
	for _, f := range a.bus.Faults.Faults {
		all = append(all, f.Kind)
	}
	return strings.Join(all, " ")
}

// sim-bus finds a description in the home folder, like the other commands: no shell expands --robot=~/arm.yaml.
func TestSimBusOfARobotAtHome(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	rttest.WriteFile(t, os.Getenv("HOME"), "arm.yaml", "like: koch\nname: arm\n")
	arms, err := SimBusConfig{Robot: "~/arm.yaml", Link: device.ByPart{"/tmp/arm"}}.arms()
	if err != nil || len(arms) != 1 || len(arms[0].bus.Servos) != 6 {
		t.Errorf("arms() = %+v, %v, want one Koch", arms, err)
	}
}
