package bringup

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/scene"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// The joints that gravity pulls sink without torque on every plant; a leader's and a shadow's too.
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

// The world of a simulated follower is shown at the path of --scene; a robot without a world is
// refused.
func TestTheWorldOfASimulatedArmIsShown(t *testing.T) {
	dir := t.TempDir()
	cfg := SimBusConfig{Robot: "so101", Seed: 5, Link: filepath.Join(dir, "arm"), Scene: filepath.Join(dir, "scene")}
	for _, change := range []func(*SimBusConfig){
		func(c *SimBusConfig) { c.Motors = true },
		func(c *SimBusConfig) { c.Robot = "so101_leader" },
		func(c *SimBusConfig) { c.Robot = singleRobot },
		func(c *SimBusConfig) { c.Scene = dir },
	} {
		refused := cfg
		change(&refused)
		if err := ServeSimBus(t.Context(), refused, io.Discard); exit.Of(err) != exit.Usage ||
			!strings.Contains(err.Error(), "--scene") {
			t.Errorf("%+v: %v, want a usage error that names --scene", refused, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ServeSimBus(ctx, cfg, io.Discard) }()
	var eye *scene.Viewer
	rttest.Eventually(t, "a world to be seen", func() (ok bool) {
		var err error
		eye, err = scene.Dial(cfg.Scene)
		return err == nil
	})
	want := sim.NewWorld(5, 1)
	if v, err := eye.View(); err != nil || v.Target != want.Target() || v.Post != want.Post() || v.Q != want.Q() {
		t.Errorf("View() = %+v, %v, want the world of seed 5", v, err)
	}
	eye.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := scene.Dial(cfg.Scene); err == nil {
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
		if err != nil && !strings.Contains(err.Error(), "sts3215 1 7") {
			t.Errorf("%v names no motors to choose from", err)
		}
	}
}
