package attend

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// steeringKeys is the help for the keys that drive a base. The keys are LeRobot's. While they drive the base, the keys
// of episodes need Shift: shiftedKeys is the help for those.
const (
	steeringKeys = "Keys drive the base while they are pressed: w forward, s backward, a left, d right, z and x " +
		"turn left and right, r faster, f slower; any other key stops it."
	shiftedKeys = " Episodes: S success, F failure, D discard."
)

// A terminal does not report the release of a key. It only repeats the newest key while this key is
// pressed. So a key drives the base for keyFirst, in which a terminal begins to repeat the key, and
// for keyRepeat after each repetition.
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
	velocity atomic.Pointer[[robot.Axes]float32] // nil: the base stands still
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

// steer writes the velocities of the base at an instant into dst. A nil steering leaves dst
// unchanged. Owner: the tick.
//
//rt:noalloc
func (s *steering) steer(now rt.Instant, dst []float32) {
	if s != nil {
		clear(dst)
		s.overrule(now, dst)
	}
}

// overrule is steer, except that it leaves dst unchanged while no key is pressed.
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

// greetBase shows the person the keys of a base.
func (s *session) greetBase() {
	if s.steering != nil && s.cfg.Listen != nil {
		fmt.Fprintln(s.cfg.Out, steeringKeys+shiftedKeys)
	}
}
