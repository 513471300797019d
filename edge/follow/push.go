package follow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"edgert/rt"
	"edgert/servo/robot"
)

// push is which way an overloaded joint pushes.
type push struct {
	way   float32    // above 0: towards higher values; 0: not known
	since rt.Instant // when the overload began, or was taken off
	read  bool       // way is from its motor's load, which a movement has, too: it is read again and again
	idle  bool       // its motor has no load: it does not push
}

const (
	pushLeast  = 1.0 // robot units from its goal to its place that say which way a joint pushes
	reliefPast = 3.0 // robot units that a goal may go past an overloaded joint, which may be wedged
)

// newPush is that of a joint whose overload has just begun. One at its goal pushes all the
// same, against its weight or something that leans on it: its load says which way.
//
//rt:noalloc
func newPush(now rt.Instant, goal, place float32) push {
	p := push{since: now}
	if d := goal - place; d >= pushLeast || d <= -pushLeast {
		p.way = d
	}
	return p
}

// findPush learns from its motor's load which way an overloaded joint pushes.
//
//rt:noalloc
func (f *Follower) findPush(j int) {
	p := &f.push[j]
	if p.way != 0 && !p.read {
		return
	}
	way, known := f.bus.Push(j, p.since)
	p.way, p.read, p.idle = way, known, known && way == 0
	f.bus.Prioritize(1 << j)
}

// relief returns as much of an action as takes load off a joint that pushes. One without a
// load moves near its place; if that meets something, its load says which way.
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

// unloading is an operator's request to the tick, and its answer.
type unloading struct {
	asked  atomic.Uint32 // joints; 0: nothing
	answer atomic.Int64  // the joints that were unloaded; -1: none yet
}

// unloadTimeout is for the tick to answer.
const unloadTimeout = time.Second

// Unload has the tick take the load off an overloaded joint, off all of them where name is
// empty: the goal is where the joint is, and its motor forgets the overload. It returns the
// joints by name. Any thread but the tick, one at a time.
func (f *Follower) Unload(r robot.Robot, name string) (unloaded string, err error) {
	joints := ^uint32(0)
	if name != "" {
		j := slices.IndexFunc(r.Motors, func(m robot.Motor) bool { return m.Name == name })
		if j < 0 {
			return "", fmt.Errorf("no joint %q: a %s has %s", name, r.Name, strings.ReplaceAll(strings.Join(r.ActionNames(), ", "), ".pos", ""))
		}
		joints = 1 << j
	}
	u := &f.unloading
	u.answer.Store(-1)
	u.asked.Store(joints)
	for end := f.cfg.Clock.Now().Add(unloadTimeout); u.answer.Load() < 0; f.cfg.Clock.SleepUntil(f.cfg.Clock.Now().Add(f.cfg.Period)) {
		if f.cfg.Clock.Now() > end {
			u.asked.Store(0)
			return "", errors.New("the tick does not answer")
		}
	}
	if unloaded = r.Joints(uint32(u.answer.Load())); unloaded == "" {
		which := "no joint is"
		if name != "" {
			which = name + " is not"
		}
		return "", fmt.Errorf("%s under torque and overloaded now: nothing was done", which)
	}
	return unloaded, nil
}

// unload answers the operator's request.
//
//rt:noalloc
func (f *Follower) unload(now rt.Instant) {
	asked := f.unloading.asked.Swap(0)
	if asked == 0 {
		return
	}
	unloaded := uint32(0)
	for j := range f.joints {
		if asked&(1<<j) == 0 || f.may[j] != mayRelieve || f.Phase != Armed || f.silence.bus {
			continue
		}
		f.Goal[j] = f.gate.Settle(f.Goal[j], f.Place[j])
		f.push[j], f.stalls[j] = push{since: now}, stall{}
		unloaded |= 1 << j
	}
	if unloaded != 0 {
		f.bus.Write(f.Goal, unloaded)
		f.bus.RenewTorque(unloaded)
		f.StartSlowly(now)
	}
	f.unloading.answer.Store(int64(unloaded))
}
