package leader

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Limits of the motion of a limp leader by a hand.
const (
	turnsPerSecond = 3.0 // fastest motion by a hand; a flick of a wrist is slower
	travelSlack    = 64  // counts by which a reading may exceed this fastest motion, because of noise or a late tick
	// largest travel between two readings, in turns: below half a turn, so a jump at the seam is not taken for travel
	mostOfATurn = 0.45
	settles     = 100 * time.Millisecond // an impossible place is accepted after it was read for this time
	// a reading of this age is too old: a hand may have moved the joint anywhere since
	forgets  = time.Second
	endSlack = 64 // counts: a joint still leads this far outside its range, because calibrations are not exact
)

// Cause is the reason why a joint of a leader does not lead.
type Cause int64

// The causes.
const (
	OutsideRange Cause = iota + 1 // the joint is outside its calibrated range
	OverSeam                      // the joint crossed its encoder's seam: its reading jumped by a turn
	TooFar                        // the reading jumped by more than a hand can move the joint between two readings
	Remotely                      // the leader's machine does not let the joint lead, and logs the reason
	numCauses
)

func (c Cause) String() string {
	switch c {
	case OutsideRange:
		return "it is outside its calibrated range; move it inside"
	case OverSeam:
		return "it went over its encoder's seam, and its reading jumped by a turn; turn it back"
	case TooFar:
		return "its reading jumped by more than a hand can move it"
	}
	if c == Remotely {
		return "its machine holds it back; the log of edge-rt leader has the reason"
	}
	return "it leads"
}

// Encoders is the part of an arm that Leading needs.
type Encoders interface {
	Raws(dst []int)
	Outside(slack int) (joints robot.Joints)
}

// Leading decides after each read which joints of a leader lead. A joint with an impossible reading
// does not lead: the follower's joint holds. Owner: the reading thread.
type Leading struct {
	raws   []int
	joints []leadingJoint
	held   robot.Joints
}

// leadingJoint is one joint. Places are in counts.
type leadingJoint struct {
	turn     int // counts of one turn of its encoder; 0: a potentiometer
	known    bool
	place    int        // the newest possible reading
	at       rt.Instant // instant of that reading
	turns    int        // crossings of the seam since the joint led
	odd      int        // the newest impossible reading
	oddAt    rt.Instant // instant of that reading
	oddSince rt.Instant // time of the first reading that agrees with odd; 0: the newest reading is possible
	cause    Cause      // 0: the joint leads
}

// NewLeading returns a Leading for an arm with this description.
func NewLeading(r robot.Robot) *Leading {
	l := &Leading{raws: make([]int, len(r.Motors)), joints: make([]leadingJoint, len(r.Motors))}
	for j, m := range r.Motors {
		l.joints[j].turn = servo.Turn(m.Model)
	}
	return l
}

// Held returns the joints that do not lead.
//
//rt:noalloc
func (l *Leading) Held() robot.Joints { return l.held }

// causes writes the cause of each joint into dst; 0: the joint leads.
//
//rt:noalloc
func (l *Leading) causes(dst []Cause) {
	for j := range dst {
		dst[j] = l.joints[j].cause
	}
}

// Forget makes the next Check accept any readings, as after a reconnect.
//
//rt:noalloc
func (l *Leading) Forget() {
	for j := range l.joints {
		l.joints[j].known = false
	}
}

// Check evaluates a complete set of readings of an arm. The result began lists, by cause, the joints that did not
// have this cause before. The result ended lists the joints that lead again.
//
//rt:noalloc
func (l *Leading) Check(now rt.Instant, arm Encoders) (began [numCauses]robot.Joints, ended robot.Joints) {
	arm.Raws(l.raws)
	outside, far := arm.Outside(servo.RangeSlack), arm.Outside(endSlack)
	before := l.held
	l.held = 0
	for j := range l.joints {
		bit := robot.Joints(1) << j
		k := &l.joints[j]
		k.read(now, l.raws[j])
		was := k.cause
		switch {
		case k.turns != 0:
			k.cause = OverSeam
		case far&bit != 0, outside&bit != 0 && was == OutsideRange:
			k.cause = OutsideRange
		case k.oddSince != 0:
			k.cause = TooFar
		default:
			k.cause = 0
			continue
		}
		l.held |= bit
		if was != k.cause {
			began[k.cause] |= bit
		}
	}
	return began, before &^ l.held
}

// read takes a reading.
//
//rt:noalloc
func (k *leadingJoint) read(now rt.Instant, raw int) {
	if !k.known || now.Sub(k.at) > forgets {
		k.take(now, raw)
		k.known, k.turns = true, 0
		return
	}
	reach := k.reach(now.Sub(k.at))
	switch off := raw - k.place; {
	case within(off, reach):
		k.take(now, raw)
	case k.turn > 0 && within(off-k.turn, reach):
		k.turns++
		k.take(now, raw)
	case k.turn > 0 && within(off+k.turn, reach):
		k.turns--
		k.take(now, raw)
	default:
		if k.oddSince == 0 || !within(raw-k.odd, k.reach(now.Sub(k.oddAt))) {
			k.oddSince = now
		}
		k.odd, k.oddAt = raw, now
		if now.Sub(k.oddSince) >= settles { // the readings agree for so long that the joint must be there
			k.take(now, raw)
			k.turns = 0
		}
	}
}

//rt:noalloc
func (k *leadingJoint) take(now rt.Instant, raw int) { k.place, k.at, k.oddSince = raw, now, 0 }

// reach returns by how many counts a hand may move the joint in the time d.
//
//rt:noalloc
func (k *leadingJoint) reach(d time.Duration) int {
	turn := max(k.turn, potentiometer)
	return min(travelSlack+int(turnsPerSecond*d.Seconds()*float64(turn)), int(mostOfATurn*float64(turn)))
}

// potentiometer is the approximate number of counts of one turn of a potentiometer.
const potentiometer = 1024

//rt:noalloc
func within(off, reach int) bool { return off <= reach && off >= -reach }
