package edge

import (
	"errors"
	"testing"

	"edgert/edge/plug"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo/robot"
)

// A joint whose motor complains gives way to where it stands, the others go on,
// and it takes up again when the complaint is gone.
func TestHeldJointKeepsItsGoal(t *testing.T) {
	r := newRig(t)
	r.serve(20, 1, 50)
	if r.phase != armed {
		t.Fatalf("phase %v, want armed", r.phase)
	}
	r.bus.torque = false // the motors do not follow: something is in the way
	r.serve(10, 1, -20)
	r.bus.hold = 1
	r.serve(1, 1, -20)
	at := r.bus.at[0]
	if r.goal[0] != at {
		t.Errorf("goal of the held joint is %v, want %v where it stands", r.goal[0], at)
	}
	other := r.goal[1]
	r.serve(5, 1, -20)
	if r.goal[0] != at || r.goal[1] == other {
		t.Errorf("goals %v, want the first held at %v and the second to go on from %v", r.goal, at, other)
	}
	r.bus.hold = 0
	r.serve(5, 1, -20)
	if r.goal[0] == at {
		t.Errorf("goal %v, want it to move again", r.goal[0])
	}
}

func TestMotorThatStopsTheRun(t *testing.T) {
	r := newRig(t)
	r.serve(20, 1, 50)
	r.bus.fatal = errors.New("over temperature")
	r.serve(400, 1, 50)
	if !r.stop.Load() || r.failed.Load() == nil || exit.Of(*r.failed.Load()) != exit.Fault {
		t.Errorf("stop %v, failed %v, want the run to end with code 6", r.stop.Load(), r.failed.Load())
	}
}

// People are told once of a motor that is too hot, and the arm goes on.
func TestWarningIsSaidOnce(t *testing.T) {
	r := newRig(t)
	r.serve(20, 1, 50)
	r.bus.warned = 2
	r.serve(5, 1, 50)
	r.bus.warned = 3
	r.serve(5, 1, 50)
	var said []rt.Event
	r.events.Drain(func(e rt.Event) {
		if e.Code == rt.JointWarned {
			said = append(said, e)
		}
	})
	if len(said) != 2 || said[0].A != 2 || said[1].A != 3 || said[0].B != 66<<16|63 || r.held != 0 || r.stop.Load() {
		t.Errorf("said %+v, held %b, stop %v, want one event for each new joint and no more", said, r.held, r.stop.Load())
	}
}

// The arm starts slowly.
func TestSlewAfterArming(t *testing.T) {
	r := newRig(t)
	r.slewFor, r.slewPace = 10*testPeriod, 0.5
	r.slope = 0
	r.serve(40, 1, 80)
	var steps []float32
	for i := 1; i < len(r.bus.writes); i++ {
		if d := r.bus.writes[i][0] - r.bus.writes[i-1][0]; d != 0 {
			steps = append(steps, d)
		}
	}
	if len(steps) < 15 || steps[0] != 1.5 || steps[14] != 3 {
		t.Errorf("steps %v, want 1.5 at first and 3 later", steps)
	}
}

// Motors that a bus watchdog has stopped stand somewhere behind their goals: they
// are armed where they stand.
func TestMotorsThatFellAsleepAreArmedWhereTheyStand(t *testing.T) {
	r := newRig(t)
	r.serve(20, 1, 50)
	far := r.goal[0]
	r.bus.at[0], r.bus.asleep = 7, true
	r.bus.steps = 2
	from := len(r.bus.writes)
	r.step(4)
	if first := r.bus.writes[from]; first[0] < 4 || first[0] > 10 {
		t.Errorf("the first goal after waking is %v, want it within a step of 7, where the joint stands, not near %v", first[0], far)
	}
	if r.bus.asleep || r.phase != armed {
		t.Errorf("asleep %v, phase %v, want awake and armed", r.bus.asleep, r.phase)
	}
}

// An arm that was unplugged comes back: nothing moves before a chunk that was
// asked for afterwards, and then from where it stands. After a restart of its
// motors it waits for an operator.
func TestArmThatComesBack(t *testing.T) {
	for _, why := range []plug.Cause{plug.Unplugged, plug.Restarted} {
		r := newRig(t)
		r.returns = map[plug.Cause]robot.Return{plug.Unplugged: robot.Resume, plug.Restarted: robot.Operator}
		r.serve(30, 1, 50)
		r.bus.silent = 3
		r.step(30)
		if r.now != Stalled || r.stop.Load() {
			t.Fatalf("state %v, stop %v while the arm is away, want it to wait", r.now, r.stop.Load())
		}
		r.bus.silent, r.bus.back, r.bus.torque = 0, why, false
		r.bus.at = [testDOF]float32{-30, 20}
		from := len(r.bus.writes)
		r.step(1)
		if r.phase != untouched || len(r.bus.writes) != from {
			t.Errorf("%v: phase %v, %d writes, want it untouched", why, r.phase, len(r.bus.writes)-from)
		}
		if why == plug.Restarted {
			r.step(20)
			if !r.paused.Load() || len(r.bus.writes) != from {
				t.Errorf("%v: paused %v, %d writes, want it to wait for the operator", why, r.paused.Load(), len(r.bus.writes)-from)
			}
			r.paused.Store(false)
		}
		r.step(2)
		r.answerEpisode(r.key, 50, r.episode)
		r.step(6)
		if len(r.bus.writes) == from || !r.bus.torque {
			t.Fatalf("%v: no goal after the next chunk; phase %v", why, r.phase)
		}
		if first := r.bus.writes[from]; first[0] < -33 || first[0] > -27 {
			t.Errorf("%v: the first goal is %v, want it within a step of -30, where the arm stands", why, first)
		}
	}
}
