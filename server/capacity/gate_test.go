package capacity

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// gatePolicy is ACT-like: 50 actions at 30 Hz, conditioned by a prefix of at most 10.
func gatePolicy() *policy.Meta {
	return &policy.Meta{ChunkSize: 50, FPS: 30, RTC: "trained", RTCMaxDelay: 10}
}

// A gate and a plan of the same robots find the same number, and the gate's refusal of one more
// names the load and the duration of an inference.
func TestAGateAgreesWithThePlan(t *testing.T) {
	m := gatePolicy()
	for _, ms := range []int{10, 40, 120} {
		took := []Size{sizeOf(1, time.Duration(ms)*time.Millisecond), sizeOf(2, time.Duration(ms)*3/2*time.Millisecond)}
		planned := rttest.Must(New(Options{
			Fleet:     Fleet{RoundTrip: []time.Duration{roundTrip}, Own: ownTime},
			Meta:      m,
			Took:      took,
			Scheduler: "runway",
		}))(t)
		g := newGate(m, "runway")
		g.learn(took)
		robot := Robot{FPS: m.FPS, Execute: execute(m), RoundTrip: roundTrip}
		most := g.most(robot)
		if diff := most - planned.Sessions; diff < -1 || diff > 1+planned.Sessions/20 {
			t.Errorf("%d ms: the gate lets %d in, the plan says %d", ms, most, planned.Sessions)
		}
		fleet := make([]Robot, most+1)
		for i := range fleet {
			fleet[i] = robot
		}
		rttest.Want(t, g.whyNot(fleet[:most]), "", "%d ms: %d robots", ms, most)
		rttest.Contains(t, g.whyNot(fleet), " ms here)", "robots")
	}
}

// From any number, gate.approach finds the result of gate.most in a few steps. It finds the new
// result after inferences become slower or faster.
func TestApproachFindsTheMost(t *testing.T) {
	g := newGate(gatePolicy(), "runway")
	robot := Robot{FPS: 30, Execute: 20, RoundTrip: roundTrip}
	n := 1
	for _, took := range []time.Duration{20 * time.Millisecond, 90 * time.Millisecond, 15 * time.Millisecond} {
		if !g.learn([]Size{sizeOf(1, took)}) {
			t.Fatalf("%v is no change", took)
		}
		steps, settled := 0, false
		for ; !settled && steps < 20; steps++ {
			n, settled = g.approach(nil, robot, n)
		}
		if want := g.most(robot); n != want || !settled {
			t.Errorf("%v: %d after %d steps, want %d", took, n, steps, want)
		}
	}
	if g.learn([]Size{sizeOf(1, 15300*time.Microsecond)}) {
		t.Error("2 % slower counts as a change")
	}
}

// Robots that request chunks more often, or have a longer round trip than the policy can be conditioned for, leave room
// for fewer robots.
func TestAGateKnowsItsRobots(t *testing.T) {
	m := gatePolicy()
	g := newGate(m, "runway")
	g.learn([]Size{sizeOf(1, 20*time.Millisecond)})
	usual := g.most(Robot{FPS: 30, Execute: 20, RoundTrip: roundTrip})
	if hurried := g.most(Robot{FPS: 30, Execute: 5, RoundTrip: roundTrip}); hurried > usual/3 {
		t.Errorf("of robots that ask four times as often %d are fed, of others %d", hurried, usual)
	}
	far := []Robot{{FPS: 30, Execute: 20, RoundTrip: 400 * time.Millisecond}}
	rttest.Contains(t, g.whyNot(far), "can be conditioned for 10")
	rttest.Contains(t, newGate(m, "runway").whyNot(far), "not known yet")
}
