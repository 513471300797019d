package attend

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// The keys, directions and levels are LeRobot's, see directions.
func TestKeysDriveTheBase(t *testing.T) {
	now := rt.Instant(time.Second)
	s := new(steering)
	check := func(when string, want [robot.Axes]float32) {
		t.Helper()
		got := []float32{9, 9, 9}
		if s.steer(now, got); [robot.Axes]float32(got) != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	check("before any key", [3]float32{})
	for _, k := range []struct {
		keys string
		want [robot.Axes]float32
	}{
		{"w", [3]float32{0.1, 0, 0}}, {"s", [3]float32{-0.1, 0, 0}}, {"a", [3]float32{0, 0.1, 0}},
		{"d", [3]float32{0, -0.1, 0}}, {"z", [3]float32{0, 0, 30}}, {"x", [3]float32{0, 0, -30}},
		{"rw", [3]float32{0.2, 0, 0}}, {"rx", [3]float32{0, 0, -90}}, {"rw", [3]float32{0.3, 0, 0}},
		{"ffffd", [3]float32{0, -0.1, 0}},
	} {
		for _, key := range k.keys {
			if !s.press(now, string(key)) {
				t.Errorf("%c is not taken", key)
			}
		}
		check(k.keys, k.want)
	}
	now = now.Add(550 * time.Millisecond)
	check("before a terminal repeats the key", [3]float32{0, -0.1, 0})
	for range 20 {
		s.press(now, "d")
		now = now.Add(40 * time.Millisecond)
		check("while it is repeated", [3]float32{0, -0.1, 0})
	}
	now = now.Add(keyRepeat)
	check("after the repetition", [3]float32{})
	s.press(now, "w")
	if s.press(now, "space") || s.press(now, "S") {
		t.Error("a key of others is taken")
	}
	check("after any other key", [3]float32{})
	s.press(now, "w")
	rttest.NoAllocs(t, "%v allocations", 10, func() { s.steer(now, make([]float32, 0, 3)) })
}

// Goal: with a leader's arm and keys a person drives a LeKiwi. Its base stops when no key is pressed, when the leader
// is silent, and at the end.
func TestTeleopOfALeKiwi(t *testing.T) {
	t.Parallel()
	cfg, _, _, h, f := pair(t, "so101")
	spins := new([3]atomic.Int32)
	lead := cfg.Leader
	var follow *servosim.Bus
	cfg.Arm, follow = simArm(t, "lekiwi", 0, 4095, servosim.Config{Plant: f, Wheels: 3, Watch: func(e *servosim.Event) {
		if e.ID >= 7 {
			spin := int32(e.After.Spin)
			if !e.After.Torque {
				spin = 0
			}
			spins[e.ID-7].Store(spin)
		}
	}})
	cfg.Leader = lead
	keys := typed(&cfg.Config)
	end := teach(t, cfg, follow)
	press := <-keys
	h.All(2300)
	f.await(t, "follow", 2300)
	turning := func(left, back, right int32) func() bool {
		return func() bool {
			return spins[0].Load() == left && spins[1].Load() == back && spins[2].Load() == right
		}
	}
	held := func(key string, turns func() bool) func() bool { return func() bool { press(key); return turns() } }
	// LeRobot computes these wheel velocities for 0.1 m/s.
	rttest.Eventually(t, "forward", held("w", turning(-1129, 0, 1129)))
	rttest.Eventually(t, "a turn to the left", held("z", turning(853, 853, 853)))
	rttest.Eventually(t, "rest", turning(0, 0, 0))
	rttest.Eventually(t, "backward", held("s", turning(1129, 0, -1129)))
	end()
	if !turning(0, 0, 0)() || slices.Contains(follow.TorqueEnabled(), true) {
		t.Errorf("a wheel turns, or torque %v at the end", follow.TorqueEnabled())
	}
}
