package bringup

import (
	"math"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// Goal: a round moves every joint with stops to both of them and back, at a hand's speed, and is
// the same for the same seed.
func TestHandMakesARound(t *testing.T) {
	for _, name := range []string{"so101", "koch", "so101_leader", "widowx"} {
		for seed := range uint64(5) {
			r := named(t, name)
			h, twin := newHand(r, seed, 0), newHand(r, seed, 0)
			n := len(h.joints)
			low := make([]int, n)
			high := make([]int, n)
			was := make([]int, n)
			for j := range n {
				was[j] = h.Present(0, j)
				low[j], high[j] = was[j], was[j]
				if was[j] != int(h.joints[j].middle) {
					t.Fatalf("%s: joint %d begins at %d, want its middle", name, j, was[j])
				}
			}
			for now := rt.Instant(0); now < rt.Instant(90*time.Second); now = now.Add(10 * time.Millisecond) {
				for j := range n {
					at := h.Present(now, j)
					if h.joints[j].second && at != -h.Present(now, j-1) {
						t.Fatalf("%s: motor %d does not turn against the other motor of its joint", name, j)
					}
					if twin.Present(now, j) != at {
						t.Fatalf("%s: seed %d gives two different hands", name, seed)
					}
					if speed := math.Abs(float64(at - was[j])); speed > 0.01*handReturns*h.joints[j].perDegree+2 {
						t.Fatalf("%s: joint %d moves by %v counts in 10 ms", name, j, speed)
					}
					was[j] = at
					low[j] = min(low[j], at)
					high[j] = max(high[j], at)
				}
			}
			for j, joint := range h.joints {
				if joint.still {
					continue
				}
				if low[j] != int(joint.low) || high[j] != int(joint.high) {
					t.Errorf("%s: joint %d was between %d and %d, want %v to %v", name, j, low[j], high[j], joint.low,
						joint.high)
				}
			}
		}
	}
}

// Goal: after a program has switched torque off, the hand waits in the middle pose until the program has written homing
// offsets. It leaves a joint under torque to its motor.
func TestHandWaitsForItsProgram(t *testing.T) {
	r := named(t, "so101")
	h := newHand(r, 0, 0)
	model := r.Motors[0].Model
	watch := h.watch(model)
	middle := func(now rt.Instant) bool {
		for j := range h.joints {
			if h.Present(now, j) != int(h.joints[j].middle) {
				return false
			}
		}
		return true
	}
	second := func(s float64) rt.Instant { return rt.Instant(s * float64(time.Second)) }
	if !middle(second(4.9)) || middle(second(6)) {
		t.Error("want the middle pose for five seconds, and then the first joint moving")
	}
	watch(&servosim.Event{At: second(6), Addr: model.Row(table.TorqueEnable).Addr, Data: []byte{0}})
	if !middle(second(7)) || !middle(second(20)) || middle(second(22)) {
		t.Error("want the middle pose within a second of torque off, and for fifteen")
	}
	watch(&servosim.Event{At: second(22), Addr: model.Row(table.TorqueEnable).Addr, Data: []byte{0}})
	watch(&servosim.Event{At: second(24), Addr: model.Row(table.HomingOffset).Addr, Data: []byte{0, 0}})
	if !middle(second(24.9)) || middle(second(26)) {
		t.Error("want the first joint moving a second after the homing offsets")
	}
	h.Torque(second(26), 2, true)
	h.Goal(second(26), 2, 3600)
	if at := h.Present(second(28), 2); at != int(h.joints[2].high) {
		t.Errorf("a motor that goes to 3600 gets to %d, want its stop at %v", at, h.joints[2].high)
	}
	h.Torque(second(28), 2, false)
	if at := h.Present(second(28.5), 2); at >= int(h.joints[2].high) {
		t.Errorf("the joint is at %d, want the hand to take it back", at)
	}
}

// Goal: some seeds assemble arms with ranges over the seam, and the joints of these arms reach their goals.
func TestHandOverTheSeam(t *testing.T) {
	r, over := named(t, "so101"), 0
	for seed := range uint64(20) {
		h, now := newHand(r, seed, 0), rt.Instant(0)
		for j := range h.joints {
			joint := &h.joints[j]
			if joint.still || joint.high < 4096 {
				continue
			}
			over++
			h.Torque(now, j, true)
			h.Goal(now, j, int(joint.high)-4096) // the same place one turn lower: goals count modulo a turn
			now = now.Add(5 * time.Second)
			if at := h.Present(now, j); at != int(joint.high) {
				t.Errorf("seed %d joint %d gets to %d, want %v", seed, j, at, joint.high)
			}
		}
		if seed == 0 && over > 0 {
			t.Error("seed 0 has a joint over its seam")
		}
	}
	if over < 10 {
		t.Errorf("%d joints of 20 arms lie over their seams, want many", over)
	}
}
