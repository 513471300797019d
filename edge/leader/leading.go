package leader

import (
	"time"

	"edgert/rt"
	"edgert/servo"
	"edgert/servo/robot"
)

// What a hand does with a limp leader.
const (
	turnsPerSecond = 3.0                    // at most; a flick of a wrist is slower
	travelSlack    = 64                     // counts on top of that: noise, and a tick that was late
	mostOfATurn    = 0.45                   // of a turn; of two ways that differ by a turn the shorter one is meant
	settles        = 100 * time.Millisecond // that a place, too far away to be reached, is read before it is believed
	forgets        = time.Second            // without a reading; the hand may have moved it anywhere
	endSlack       = 64                     // counts that a joint may be beyond its range and still lead: of sloppy calibrations
)

// Cause is why a joint of a leader does not lead.
type Cause int64

// The causes.
const (
	OutsideRange Cause = iota + 1 // it is outside its calibrated range
	OverSeam                      // it has gone over its encoder's seam: its reading jumped by a turn
	TooFar                        // its reading jumped by more than a hand can move it in the time
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
	return "it leads"
}

// Encoders is what Leading needs of an arm.
type Encoders interface {
	Raws(dst []int)
	Outside(slack int) (joints uint32)
}

// Leading decides after each read which joints of a leader lead. A joint whose reading is not
// possible is held: the follower's joint stays where it is. Owner: the thread that reads.
type Leading struct {
	raws   []int
	joints []leadingJoint
	held   uint32
}

// leadingJoint is one joint. Places are in counts.
type leadingJoint struct {
	turn     int // counts of its encoder's turn; 0: a potentiometer
	known    bool
	place    int        // the newest possible reading
	at       rt.Instant // its time
	turns    int        // that it has gone over its seam since it led
	odd      int        // the newest reading that was not possible
	oddAt    rt.Instant // its time
	oddSince rt.Instant // time of the first of those that agree with it; 0: the newest reading is possible
	cause    Cause      // 0: it leads
}

// NewLeading returns a Leading for the arm of a description.
func NewLeading(r robot.Robot) *Leading {
	l := &Leading{raws: make([]int, len(r.Motors)), joints: make([]leadingJoint, len(r.Motors))}
	for j, m := range r.Motors {
		l.joints[j].turn = servo.Turn(m.Model)
	}
	return l
}

// Held returns the joints that do not lead, one bit each.
//
//rt:noalloc
func (l *Leading) Held() uint32 { return l.held }

// Causes writes into dst why each joint does not lead; 0: it leads.
//
//rt:noalloc
func (l *Leading) Causes(dst []Cause) {
	for j := range dst {
		dst[j] = l.joints[j].cause
	}
}

// Forget takes the next readings as they are, as after a reconnect.
//
//rt:noalloc
func (l *Leading) Forget() {
	for j := range l.joints {
		l.joints[j].known = false
	}
}

// Check judges the readings of an arm that has answered with all of them. It returns the
// joints that do not lead any more, by their cause, and those that lead again.
//
//rt:noalloc
func (l *Leading) Check(now rt.Instant, arm Encoders) (began [numCauses]uint32, ended uint32) {
	arm.Raws(l.raws)
	outside, far := arm.Outside(servo.RangeSlack), arm.Outside(endSlack)
	before := l.held
	l.held = 0
	for j := range l.joints {
		bit := uint32(1) << j
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
		if now.Sub(k.oddSince) >= settles { // it is there, whatever moved it
			k.take(now, raw)
			k.turns = 0
		}
	}
}

//rt:noalloc
func (k *leadingJoint) take(now rt.Instant, raw int) { k.place, k.at, k.oddSince = raw, now, 0 }

// reach is how many counts a hand may move the joint in a time.
//
//rt:noalloc
func (k *leadingJoint) reach(d time.Duration) int {
	turn := max(k.turn, potentiometer)
	return min(travelSlack+int(turnsPerSecond*d.Seconds()*float64(turn)), int(mostOfATurn*float64(turn)))
}

// potentiometer is about the counts of a turn of one that does not turn over.
const potentiometer = 1024

//rt:noalloc
func within(off, reach int) bool { return off <= reach && off >= -reach }
