package attend

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// steeringKeys describes the keys that drive a base, which are LeRobot's; the keys of episodes then
// need Shift.
const (
	steeringKeys = "Keys drive the base while they are pressed: w forward, s backward, a left, d right, z and x " +
		"turn left and right, r faster, f slower; any other key stops it."
	shiftedKeys = " Episodes: S success, F failure, D discard."
)

// A terminal reports no release of a key, only its repetition, and only that of the newest key. So a
// key drives for a time: until the terminal may begin to repeat it, and then until the next
// repetition is missing.
const (
	keyFirst  = 600 * time.Millisecond
	keyRepeat = 250 * time.Millisecond
)

// steering turns keys into the velocities of a base.
type steering struct {
	// Owner: the thread of the keys.
	key   string
	level int

	// Any thread.
	velocity atomic.Pointer[[robot.Axes]float32] // nil: it stands
	until    atomic.Int64
}

// directions are the axis and the sense of each key.
//
// Source: LeRobot robots/lekiwi/config_lekiwi.py, teleop_keys; lekiwi_client.py,
// _from_keyboard_to_base_action and speed_levels.
var directions = map[string]struct {
	axis int
	way  float32
}{"w": {0, 1}, "s": {0, -1}, "a": {1, 1}, "d": {1, -1}, "z": {2, 1}, "x": {2, -1}}

// levels are the speeds, in m/s, m/s and deg/s.
var levels = [...][robot.Axes]float32{{0.1, 0.1, 30}, {0.2, 0.2, 60}, {0.3, 0.3, 90}}

// press takes a key, and reports whether it is a key of the base. Every key but r and f ends the motion
// of the previous key. Owner: the thread of the keys.
func (s *steering) press(now rt.Instant, key string) (taken bool) {
	switch key {
	case "r", "f":
		if key == "r" {
			s.level = min(s.level+1, len(levels)-1)
		} else {
			s.level = max(s.level-1, 0)
		}
		return true
	}
	to, taken := directions[key]
	if !taken {
		s.key = ""
		s.velocity.Store(nil)
		return false
	}
	last := keyFirst
	if key == s.key && now < rt.Instant(s.until.Load()) {
		last = keyRepeat
	}
	s.key = key
	velocity := new([robot.Axes]float32)
	velocity[to.axis] = to.way * levels[s.level][to.axis]
	s.until.Store(int64(now.Add(last)))
	s.velocity.Store(velocity)
	return true
}

// steer writes the velocities of the base at an instant into dst. A nil steering leaves them. Owner:
// the tick.
//
//rt:noalloc
func (s *steering) steer(now rt.Instant, dst []float32) {
	if s != nil {
		clear(dst)
		s.overrule(now, dst)
	}
}

// overrule is steer, except that dst stays while no key is pressed.
//
//rt:noalloc
func (s *steering) overrule(now rt.Instant, dst []float32) {
	if s == nil {
		return
	}
	if v := s.velocity.Load(); v != nil && now < rt.Instant(s.until.Load()) {
		copy(dst, v[:])
	}
}

// greetBase tells the person the keys of a base.
func (s *session) greetBase() {
	if s.steering != nil && s.cfg.Listen != nil {
		fmt.Fprintln(s.cfg.Out, steeringKeys+shiftedKeys)
	}
}
