package leader

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

const (
	// JogLease is the duration of a motion after its last press.
	JogLease = 150 * time.Millisecond

	// JogPace is the speed of a jogged joint, as a share of its velocity limit.
	JogPace = 0.1

	digits = 10 // joints that have a key
)

// Jog moves joints by hand, with keys of a terminal or buttons of the page. A motion lasts
// for JogLease unless its key repeats or its button stays pressed: a terminal has no key release, and
// a browser may vanish. All methods may be called from any thread.
type Jog struct {
	names  []string
	clock  rt.Clock
	chosen atomic.Int32   // joint that the arrows move
	until  []atomic.Int64 // [joint] end of its motion; negative for a motion in the negative direction
}

// NewJog returns a Jog of joints with these names.
func NewJog(names []string, clock rt.Clock) *Jog {
	return &Jog{names: names, clock: clock, until: make([]atomic.Int64, len(names))}
}

// Names are the joints' names.
func (g *Jog) Names() []string { return g.names }

// Press moves a joint for JogLease. The direction way is 1 or, for the negative direction, -1; 0 stops the joint.
func (g *Jog) Press(joint, way int) {
	g.until[joint].Store(int64(way) * int64(g.clock.Now().Add(JogLease)))
}

// Move is Press for the joint with this name. The page calls it.
func (g *Jog) Move(name string, way int) error {
	joint := slices.Index(g.names, name)
	if joint < 0 || way < -1 || way > 1 {
		return fmt.Errorf("joint %q in direction %d, want one of %s, and 1, -1 or 0", name, way,
			strings.Join(g.names, ", "))
	}
	g.Press(joint, way)
	return nil
}

// Way returns the direction of a joint at an instant; 0: it stays.
//
//rt:noalloc
func (g *Jog) Way(joint int, now rt.Instant) int {
	switch until := rt.Instant(g.until[joint].Load()); {
	case until > now:
		return 1
	case -until > now:
		return -1
	}
	return 0
}

// Next writes the next goal of each joint into dst: the goal plus the travel of one tick at JogPace. step is the
// largest travel of a tick. A joint that no key moves keeps its goal.
//
//rt:noalloc
func (g *Jog) Next(now rt.Instant, goal, step, dst []float32) {
	for j := range dst {
		dst[j] = goal[j] + float32(g.Way(j, now))*JogPace*step[j]
	}
}

// Key handles a key of the terminal. The result handled is false for a key without a meaning here. The result say is
// a line for the person if the key chose another joint.
func (g *Jog) Key(key string) (handled bool, say string) {
	chosen := int(g.chosen.Load())
	switch {
	case key == "up":
		g.Press(chosen, 1)
		return true, ""
	case key == "down":
		g.Press(chosen, -1)
		return true, ""
	case key == "j":
		chosen = (chosen + len(g.names) - 1) % len(g.names)
	case key == "k":
		chosen = (chosen + 1) % len(g.names)
	case len(key) == 1 && key >= "0" && key <= "9":
		if chosen = (int(key[0]-'0') + digits - 1) % digits; chosen >= len(g.names) {
			return true, fmt.Sprintf("no joint %d: there are %d", chosen+1, len(g.names))
		}
	default:
		return false, ""
	}
	g.chosen.Store(int32(chosen))
	return true, fmt.Sprintf("joint %d: %s", chosen+1, g.names[chosen])
}

// Help returns a text for the person: each key with its joint, and the keys that move the joint.
func (g *Jog) Help() string {
	var list []string
	for j, name := range g.names[:min(digits, len(g.names))] {
		list = append(list, fmt.Sprintf("%d %s", (j+1)%digits, name))
	}
	return "keys: " + strings.Join(list, ", ") +
		" (j and k: the one before, the next); hold the up or down arrow to move it; Esc ends the run"
}

// Jogged is a leader without an arm, which the keys of a Jog move. Its pose is the follower's goal, moved by the travel
// of one tick in the directions of the pressed keys. Owner: the tick thread.
type Jogged struct {
	keys *Jog
	step []float32 // largest travel of each follower joint in one tick
	pose Pose
}

// NewJogged returns the leader of a follower whose joints travel at most step in a tick.
func NewJogged(keys *Jog, step []float32) *Jogged {
	return &Jogged{keys: keys, step: step, pose: Pose{Joints: make([]float32, len(step))}}
}

// Choose does nothing: joints that no key moves keep their goals.
//
//rt:noalloc
func (*Jogged) Choose(robot.Joints) {}

// Pose returns the pose of the newest Want.
//
//rt:noalloc
func (j *Jogged) Pose() *Pose { return &j.pose }

// Want makes the pose of this tick from the follower's goal.
//
//rt:noalloc
func (j *Jogged) Want(now rt.Instant, _ uint32, _ bool, goal []float32) {
	j.pose.At = now
	j.keys.Next(now, goal, j.step, j.pose.Joints[:len(j.keys.Names())])
}

// Actuated returns false, because there is no arm to move to the follower's pose.
func (*Jogged) Actuated() bool { return false }
