package event

import (
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Lack is the reason why no chunk arrived for so long that a run gave up.
type Lack int64

// The reasons, which are B of the code Ended. Among reasons of equal duration the first one counts
// as the longest.
const (
	LackNone     Lack = iota // the run did not give up
	LackJoints               // joints did not answer
	LackPictures             // a camera gave no picture
	LackSession              // no session was open
	LackAnswers              // a session was open, and no usable chunk arrived
	numLacks
)

var lackTexts = [numLacks]string{"the actions ran out between two chunks", "joints do not answer",
	"a camera gives no picture", "there is no session", "no usable chunk arrives"}

// String returns the reason as a clause of a log line.
func (k Lack) String() string {
	if k < 0 || k >= numLacks {
		return "lack " + strconv.FormatInt(int64(k), 10)
	}
	return lackTexts[k]
}

const (
	maxJoints = 32          // joints of a set, one bit each
	maxGap    = time.Second // maximum time that counts between two ticks; the state in a longer gap is unknown
)

// Lacks measures the duration of each lack since the last Reset. A run that gives up after a minute may have lacked one
// thing for most of that time and another on its last tick. Owner: one thread.
type Lacks struct {
	at     rt.Instant // instant of the newest tick; 0: no tick since Reset
	lasted [numLacks]time.Duration
	joints [maxJoints]time.Duration // time for which each joint was silent
}

// Reset sets all durations to 0: after a chunk or a status reply, or while no chunk is needed.
//
//rt:noalloc
func (l *Lacks) Reset(now rt.Instant) { *l = Lacks{at: now} }

// Lacking holds the lacks of one tick.
type Lacking struct {
	Joints   robot.Joints // silent joints
	Bus      bool         // because of silent joints the tick sends no request
	Pictures bool
	Session  bool
}

// Add adds the time since the previous tick to each lack of this tick, or to LackAnswers if the
// tick has no other lack.
//
//rt:noalloc
func (l *Lacks) Add(now rt.Instant, is Lacking) {
	since := min(now.Sub(l.at), maxGap)
	if before := l.at; before == 0 || since < 0 {
		since = 0
	}
	l.at = now
	joints := is.Bus || is.Joints != 0
	if joints {
		l.lasted[LackJoints] += since
	}
	if is.Pictures {
		l.lasted[LackPictures] += since
	}
	if is.Session {
		l.lasted[LackSession] += since
	}
	if !joints && !is.Pictures && !is.Session {
		l.lasted[LackAnswers] += since
	}
	for j := range l.joints {
		if is.Joints.Has(j) {
			l.joints[j] += since
		}
	}
}

// Longest returns the reason that lasted longest.
func (l *Lacks) Longest() (longest Lack) {
	for k := LackJoints; k < numLacks; k++ {
		if l.lasted[k] > l.lasted[longest] {
			longest = k
		}
	}
	return longest
}

// Lasted returns the duration of a lack.
func (l *Lacks) Lasted(k Lack) time.Duration {
	if k <= LackNone || k >= numLacks {
		return 0
	}
	return l.lasted[k]
}

// Joints returns the joints that were silent for at least half as long as the longest silent joint,
// one bit each.
func (l *Lacks) Joints() (set robot.Joints) {
	longest := time.Duration(0)
	for _, d := range l.joints {
		longest = max(longest, d)
	}
	for j, d := range l.joints {
		if d > 0 && 2*d >= longest {
			set |= 1 << j
		}
	}
	return set
}
