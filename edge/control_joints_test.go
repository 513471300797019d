package edge

import (
	"errors"
	"testing"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/exit"
)

func TestMotorThatStopsTheRun(t *testing.T) {
	r := newRig(t)
	r.serve(20, 1, 50)
	r.bus.fatal = errors.New("over temperature")
	r.serve(400, 1, 50)
	if !r.drive.Stopped() || r.drive.Failed() == nil || exit.Of(r.drive.Failed()) != exit.Fault {
		t.Errorf("stop %v, failed %v, want the run to end with code 6", r.drive.Stopped(), r.drive.Failed())
	}
}

// Goal: a motor that is too hot causes one warning, and the arm keeps moving.
func TestWarningIsSaidOnce(t *testing.T) {
	r := newRig(t)
	r.serve(20, 1, 50)
	r.bus.warned = 2
	r.serve(5, 1, 50)
	r.bus.warned = 3
	r.serve(5, 1, 50)
	said := r.told(event.JointWarned)
	if len(said) != 2 || said[0].A != 2 || said[1].A != 3 || said[0].B != 66<<16|63 || r.arm.Held() != 0 ||
		r.drive.Stopped() {
		t.Errorf("said %+v, kept %b, stop %v, want one event for each new joint and no more", said, r.arm.Held(),
			r.drive.Stopped())
	}
}

// Goal: motors that a bus watchdog has stopped, away from their goals, are armed where they are.
func TestMotorsThatFellAsleepAreArmedWhereTheyStand(t *testing.T) {
	r := newRig(t)
	r.serve(20, 1, 50)
	far := r.arm.Goal[0]
	r.bus.at[0], r.bus.asleep = 7, true
	r.bus.steps = 2
	from := r.writes()
	r.step(4)
	if first := r.bus.writes[from]; first[0] < 4 || first[0] > 10 {
		t.Errorf("the first goal after waking is %v, want it within a step of 7, where the joint stands, not near %v",
			first[0], far)
	}
	if r.bus.asleep || r.arm.Phase != follow.Armed {
		t.Errorf("asleep %v, phase %v, want awake and armed", r.bus.asleep, r.arm.Phase)
	}
}

// Goal: an arm that was unplugged moves again only on a chunk that was requested afterwards, and
// starts at its measured position. After a restart of its motors it waits for an operator.
func TestArmThatComesBack(t *testing.T) {
	for _, why := range []hotplug.Cause{hotplug.Unplugged, hotplug.Restarted} {
		r := newRig(t)
		r.serve(30, 1, 50)
		r.bus.silent = 3
		r.step(30)
		if r.run.state != stateStalled || r.drive.Stopped() {
			t.Fatalf("state %v, stop %v while the arm is away, want it to wait", r.run.state, r.drive.Stopped())
		}
		r.bus.silent = 0
		r.bus.back = why
		r.bus.torque = false
		if why == hotplug.Restarted {
			r.bus.restarted = 2
		}
		r.bus.at = [testDOF]float32{-30, 20}
		from := r.writes()
		r.step(1)
		if r.arm.Phase != follow.Unarmed || r.writes() != from {
			t.Errorf("%v: phase %v, %d writes, want it untouched", why, r.arm.Phase, r.writes()-from)
		}
		if why == hotplug.Restarted {
			r.step(20)
			if !r.operator.pause.Load() || r.writes() != from {
				t.Errorf("%v: paused %v, %d writes, want it to wait for the operator", why, r.operator.pause.Load(),
					r.writes()-from)
			}
			r.pause(false)
		}
		r.step(2)
		r.answerEpisode(r.session.key, 50, r.session.episode)
		r.step(6)
		if r.writes() == from || !r.bus.torque {
			t.Fatalf("%v: no goal after the next chunk; phase %v", why, r.arm.Phase)
		}
		if first := r.bus.writes[from]; first[0] < -33 || first[0] > -27 {
			t.Errorf("%v: the first goal is %v, want it within a step of -30, where the arm stands", why, first)
		}
	}
}

// Goal: a pause before the first chunk, or during the arming, keeps the torque off until it ends.
func TestNothingIsArmedWhilePaused(t *testing.T) {
	r := newRig(t)
	r.step(1)
	r.pause(true)
	r.answer(r.session.key, 20)
	r.step(10)
	if r.bus.torque || r.arm.Phase != follow.Unarmed {
		t.Errorf("torque %v, phase %v while paused before the first chunk", r.bus.torque, r.arm.Phase)
	}
	r.pause(false)
	r.bus.steps = 100
	r.step(2)
	r.answer(r.session.key, 20)
	r.step(3)
	if r.arm.Phase != follow.Arming {
		t.Fatalf("phase %v, want the arming under way", r.arm.Phase)
	}
	r.pause(true)
	r.step(1)
	r.bus.steps = 0
	r.step(10)
	if r.bus.torque || r.arm.Phase != follow.Unarmed {
		t.Errorf("torque %v, phase %v: a pause does not end the arming", r.bus.torque, r.arm.Phase)
	}
	r.pause(false)
	r.step(2)
	r.answer(r.session.key, 20)
	r.step(3)
	if !r.bus.torque || r.arm.Phase != follow.Armed {
		t.Errorf("torque %v, phase %v after the pause", r.bus.torque, r.arm.Phase)
	}
}
