package follow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// push is the direction in which an overloaded joint pushes.
type push struct {
	way   float32    // above 0: towards higher values; 0: not known
	since rt.Instant // instant at which the overload began, or was taken off
	read  bool       // findPush reads way from the motor's load in each tick, since a motion causes a load, too
	idle  bool       // the motor has no load, so the joint does not push
}

const (
	pushLeast  = 1.0 // robot units: a larger difference between goal and place shows the direction of the push
	reliefPast = 3.0 // robot units by which a goal may pass an overloaded joint, which may be wedged
)

// newPush returns the push of a joint whose overload has just begun. A joint at its goal may push, too: against its
// weight, or against an object that leans on it. Then findPush gets the direction from its load.
//
//rt:noalloc
func newPush(now rt.Instant, goal, place float32) push {
	p := push{since: now}
	if d := goal - place; d >= pushLeast || d <= -pushLeast {
		p.way = d
	}
	return p
}

// findPush derives the direction of an overloaded joint's push from its motor's load.
//
//rt:noalloc
func (f *Follower) findPush(j int) {
	p := &f.push[j]
	if p.way != 0 && !p.read {
		return
	}
	way, known := f.bus.Push(j, p.since)
	p.way = way
	p.read = known
	p.idle = known && way == 0
	f.bus.Prioritize(1 << j)
}

// relief returns the part of an action that takes load off a joint that pushes. A joint whose motor has no load may
// move near its place in both directions, until it meets an obstacle and its load gives the direction.
//
//rt:noalloc
func relief(goal, action float32, p *push, place float32) float32 {
	switch {
	case p.idle:
		return min(place+reliefPast, max(place-reliefPast, action))
	case (action-goal)*p.way >= 0:
		return goal
	case p.way > 0:
		return max(action, min(goal, place-reliefPast))
	}
	return min(action, max(goal, place+reliefPast))
}

// unloading carries an operator's request to the tick, and the tick's answer back.
type unloading struct {
	asked  atomic.Uint32 // joints, one bit each; 0: no request
	answer atomic.Int64  // the joints that were unloaded; -1: no answer yet
}

// Time within which the tick must carry out a request of another thread.
const (
	awaitTime  = time.Second
	awaitTicks = 3 // at the least, for slow rates
)

// Await waits until done reports that the tick has carried out a request. It counts its waits instead of the time,
// because the tick stands still, too, while the machine or the process is stopped.
func Await(clock rt.Clock, period time.Duration, done func() bool) error {
	for waits := int(awaitTime/period) + awaitTicks; !done(); waits-- {
		if waits == 0 {
			return errors.New("the tick does not answer")
		}
		clock.SleepUntil(clock.Now().Add(period))
	}
	return nil
}

// Unload makes the tick take the load off an overloaded joint, or off all overloaded joints when name is empty: the
// joint's place becomes its goal, and its motor forgets the overload. It returns the names of the joints. Any thread
// except the tick thread may call it, but only one thread at a time.
func (p *Parts) Unload(r robot.Robot, name string) (unloaded string, err error) {
	asked := ^robot.Joints(0)
	if name != "" {
		j := slices.IndexFunc(r.Motors, func(m robot.Motor) bool { return m.Name == name })
		if j < 0 {
			return "", fmt.Errorf("no joint %q: a %s has %s", name, r.Name,
				strings.ReplaceAll(strings.Join(r.ActionNames(), ", "), ".pos", ""))
		}
		asked = 1 << j
	}
	done := robot.Joints(0)
	for _, f := range p.parts {
		own := asked >> f.first
		if f.part {
			own &= 1<<len(f.Goal) - 1
		}
		if own == 0 {
			continue
		}
		joints, err := f.askUnload(own)
		if err != nil {
			return "", err
		}
		done |= joints << f.first
	}
	if unloaded = r.Joints(done); unloaded == "" {
		which := "no joint is"
		if name != "" {
			which = name + " is not"
		}
		return "", fmt.Errorf("%s under torque and overloaded now: nothing was done", which)
	}
	return unloaded, nil
}

// askUnload makes the tick unload the overloaded joints among joints, and returns them.
func (f *Follower) askUnload(joints robot.Joints) (robot.Joints, error) {
	u := &f.unloading
	u.answer.Store(-1)
	u.asked.Store(uint32(joints))
	if err := Await(f.cfg.Clock, f.cfg.Period, func() bool { return u.answer.Load() >= 0 }); err != nil {
		u.asked.Store(0)
		return 0, err
	}
	return robot.Joints(u.answer.Load()), nil
}

// unload carries out the operator's request.
//
//rt:noalloc
func (f *Follower) unload(now rt.Instant) {
	asked := robot.Joints(f.unloading.asked.Swap(0))
	if asked == 0 {
		return
	}
	unloaded := robot.Joints(0)
	for j := range f.joints {
		if !asked.Has(j) || f.may[j] != mayRelieve || f.Phase != Armed || f.silence.bus {
			continue
		}
		f.Goal[j] = f.gate.settle(f.Goal[j], f.Place[j])
		if f.gate.Wheels.Has(j) {
			f.zeroBase()
		}
		f.push[j], f.stalls[j] = push{since: now}, stall{}
		unloaded |= 1 << j
	}
	if unloaded != 0 {
		f.bus.Write(f.Goal, unloaded)
		f.bus.RenewTorque(unloaded)
		f.startSlowly(now)
	}
	f.unloading.answer.Store(int64(unloaded))
}
