package bringup

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// Times and speeds of the simulated hand.
const (
	handFirst = 5 * time.Second // time in the middle pose after the start
	// time that the hand holds the middle pose after a program has switched torque off, unless the program writes
	// homing offsets
	handWaits   = 15 * time.Second
	handBegins  = time.Second            // time that the hand holds the pose after a program has written homing offsets
	handRests   = 3 * time.Second        // time in the middle pose between two rounds
	handDwells  = 300 * time.Millisecond // time at a stop
	handReturns = 360.0                  // degrees a second, back to the middle pose
	handDrives  = 270.0                  // degrees a second, of a motor under torque
	handCatchUp = 10 * time.Minute       // longest time that one call of advance simulates
)

// handStops are the angles in degrees from the middle pose to a joint's stops, by LeRobot's names.
var handStops = map[string][2]float64{
	"shoulder_pan": {-110, 110}, "shoulder_lift": {-100, 95}, "elbow_flex": {-95, 97},
	"wrist_flex": {-95, 95}, "gripper": {-45, 60},
}

// otherStops are the stops of a joint with another name.
var otherStops = [2]float64{-80, 80}

// hand is a servosim.Plant that simulates a person who moves the limp joints as calibrate requests.
// The hand holds the middle pose, moves one joint after the other to both of its stops and back,
// and starts again. Motors under torque move to their goals, and the hand waits.
//
// Owner: any thread.
type hand struct {
	mu     sync.Mutex
	joints []handJoint // guarded by mu
	dice   *rand.Rand  // guarded by mu
	at     rt.Instant  // guarded by mu
	until  rt.Instant  // guarded by mu; end of the hand's rest
	moves  []handMove  // guarded by mu; the rest of a round
}

// handJoint is the shaft of one joint; its positions are counts of the encoder without an offset.
type handJoint struct {
	low, middle, high float64
	perDegree         float64
	place, goal       float64
	speed             float64 // counts per second of the last motion
	torque            bool
	turn              int  // counts of one turn, within which goals lie; 0: goals have no seam
	still             bool // the hand does not move this joint, which has no stops
	second            bool // the motor faces the one before it, as the second motor of one joint
}

// handMove is one move of a round: the motion of a joint to a position, at a speed in degrees per second, or a pause.
type handMove struct {
	joint     int
	to, speed float64
	pause     time.Duration
}

// newHand returns a hand with a simulated arm. With seed 0 the arm is assembled by the manual: each joint's middle is
// near half a turn. With any other seed the horns are mounted at random angles, so that a range may lie over the
// encoder's seam.
func newHand(r robot.Robot, seed uint64, now rt.Instant) *hand {
	h := &hand{dice: rand.New(rand.NewPCG(seed, 0x68616e64)), at: now, until: now.Add(handFirst)}
	for _, m := range r.Motors {
		h.joints = append(h.joints, h.assemble(m, seed))
		if m.Shadow != 0 {
			j := h.joints[len(h.joints)-1]
			j.low, j.high = -j.high, -j.low
			j.middle, j.place = -j.middle, -j.place
			j.second = true
			h.joints = append(h.joints, j)
		}
	}
	return h
}

func (h *hand) assemble(m robot.Motor, seed uint64) handJoint {
	model := m.Model
	j := handJoint{perDegree: float64(model.MaxRaw()) / model.Span, still: m.FullTurn}
	middle := float64(model.MaxRaw())/2 + h.vary(10*j.perDegree)
	if turnOf(model) != 0 && seed != 0 {
		middle = h.dice.Float64() * float64(model.MaxRaw())
	}
	if model.Protocol == table.Feetech {
		j.turn = model.Resolution
	}
	stops, ok := handStops[strings.TrimPrefix(m.Name, "arm_")]
	if !ok {
		stops = otherStops
	}
	j.low = math.Round(middle + (stops[0]+h.vary(4))*j.perDegree)
	j.high = math.Round(middle + (stops[1]+h.vary(4))*j.perDegree)
	j.middle = math.Round(middle)
	if turnOf(model) == 0 {
		j.low, j.high = max(j.low, 0), min(j.high, float64(model.MaxRaw()))
	}
	if j.still {
		j.low, j.high = math.Inf(-1), math.Inf(1)
	}
	j.place, j.goal = j.middle, j.middle
	return j
}

// vary returns a random number between -most and most.
func (h *hand) vary(most float64) float64 { return (2*h.dice.Float64() - 1) * most }

// round plans a round: each joint moves to both of its stops and back.
func (h *hand) round() {
	for i := range h.joints {
		j := &h.joints[i]
		if j.still || j.second {
			continue
		}
		first, second := j.low, j.high
		if h.dice.IntN(2) == 1 {
			first, second = second, first
		}
		speed := 120 + h.vary(30)
		for _, to := range []float64{first, second, j.middle} {
			h.moves = append(h.moves, handMove{joint: i, to: to, speed: speed}, handMove{pause: handDwells})
		}
	}
}

// lock locks the hand, moves its joints up to now, and returns the function that unlocks it.
func (h *hand) lock(now rt.Instant) (unlock func()) {
	h.mu.Lock()
	h.advance(now)
	for i := range h.joints {
		if j := &h.joints[i]; j.second {
			j.place, j.speed = -h.joints[i-1].place, -h.joints[i-1].speed
		}
	}
	return h.mu.Unlock
}

// advance moves the joints up to now.
func (h *hand) advance(now rt.Instant) {
	if late := now.Sub(h.at) - handCatchUp; late > 0 {
		h.at = h.at.Add(late)
	}
	for h.at < now {
		if h.driven() {
			h.drive(now)
			return
		}
		switch {
		case h.at < h.until:
			h.rest(min(now, h.until))
		case len(h.moves) == 0:
			h.round()
		default:
			h.lead(now)
		}
	}
}

func (h *hand) driven() bool {
	return slices.ContainsFunc(h.joints, func(j handJoint) bool { return j.torque })
}

// drive moves the joints under torque towards their goals; the hand holds the others.
func (h *hand) drive(now rt.Instant) {
	for i := range h.joints {
		if j := &h.joints[i]; j.torque {
			j.step(min(max(j.goal, j.low), j.high), handDrives, now.Sub(h.at))
		}
	}
	h.at = now
	h.moves = nil
	h.until = max(h.until, now.Add(handRests))
}

// rest holds the middle pose, or returns to it.
func (h *hand) rest(end rt.Instant) {
	for i := range h.joints {
		if j := &h.joints[i]; !j.still {
			j.step(j.middle, handReturns, end.Sub(h.at))
		}
	}
	h.at = end
}

// lead makes the next move of the round, or as much of it as has happened by the instant now.
func (h *hand) lead(now rt.Instant) {
	m := &h.moves[0]
	if m.pause > 0 {
		waited := min(m.pause, now.Sub(h.at))
		h.at, m.pause = h.at.Add(waited), m.pause-waited
	} else {
		j := &h.joints[m.joint]
		needs := time.Duration(math.Abs(m.to-j.place)/(m.speed*j.perDegree)*float64(time.Second)) + time.Nanosecond
		end := min(now, h.at.Add(needs))
		j.step(m.to, m.speed, end.Sub(h.at))
		if h.at = end; j.place != m.to {
			return
		}
		j.speed = 0
	}
	if m.pause > 0 {
		return
	}
	if h.moves = h.moves[1:]; len(h.moves) == 0 {
		h.until = h.at.Add(handRests)
	}
}

// step moves the joint towards the position to, at a speed in degrees per second; during is the motion's duration.
func (j *handJoint) step(to, speed float64, during time.Duration) {
	reach := speed * j.perDegree * during.Seconds()
	was := j.place
	j.place += min(max(to-j.place, -reach), reach)
	j.speed = 0
	if during > 0 {
		j.speed = (j.place - was) / during.Seconds()
	}
}

// Goal sets the goal of a motor under torque. A Feetech's goal is a position within one turn; the
// joint's stops determine the side of the encoder's seam.
func (h *hand) Goal(now rt.Instant, joint, raw int) {
	defer h.lock(now)()
	j := &h.joints[joint]
	if j.turn != 0 && !j.still {
		raw = servo.InTurn(raw, int(j.low), int(j.high), j.turn)
	}
	j.goal = float64(raw)
}

// Torque gives a joint to its motor, or back to the hand.
func (h *hand) Torque(now rt.Instant, joint int, on bool) {
	defer h.lock(now)()
	h.joints[joint].torque, h.joints[joint].speed = on, 0
}

func (h *hand) Present(now rt.Instant, joint int) int {
	defer h.lock(now)()
	return int(math.Round(h.joints[joint].place))
}

// Speed implements servosim.Turner.
func (h *hand) Speed(now rt.Instant, joint int) float64 {
	defer h.lock(now)()
	return h.joints[joint].speed
}

// watch returns a function that gets a program's writes and makes the hand react to two of them. A program that
// switches torque off is about to request the middle pose; a program that writes homing offsets no longer needs it.
func (h *hand) watch(model *table.Model) func(*servosim.Event) {
	torque, homing := model.Row(table.TorqueEnable), model.Row(table.HomingOffset)
	return func(e *servosim.Event) {
		if e.NotReceived || len(e.Data) == 0 {
			return
		}
		writes := func(r table.Row) bool {
			return r.Size > 0 && e.Addr <= r.Addr && r.Addr < e.Addr+len(e.Data)
		}
		switch {
		case writes(torque) && e.Data[torque.Addr-e.Addr] == 0:
			h.rests(e.At, handWaits)
		case writes(homing):
			h.rests(e.At, handBegins)
		}
	}
}

// rests makes the hand return to the middle pose. The parameter during is the time until its next round.
func (h *hand) rests(now rt.Instant, during time.Duration) {
	defer h.lock(now)()
	h.moves, h.until = nil, now.Add(during)
}

// handSays returns the text that explains the simulated hand to the operator.
func handSays() string {
	return fmt.Sprintf("A hand holds the arm in its middle pose, and moves each joint to both of its ends, %v after "+
		"a program has written "+
		"homing offsets (edge-rt calibrate) and again and again otherwise.", handBegins)
}
