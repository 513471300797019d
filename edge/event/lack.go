package event

import (
	"time"

	"edgert/rt"
)

// Lack is why no chunk came for so long that a run gave up.
type Lack int64

// The reasons, B of Ended. One that lasted as long as another comes first here.
const (
	LackNone     Lack = iota // the run did not give up
	LackJoints               // joints did not answer
	LackPictures             // a camera gave no picture
	LackSession              // there was no session
	LackAnswers              // there was one, and no chunk came that could be used
	numLacks
)

const (
	maxJoints = 32          // have a bit each
	maxGap    = time.Second // between two ticks; what is longer is not known
)

// Lacks counts for how long each was lacking since the last chunk. The state at one instant
// is no reason for an end that took a minute. Owner: one thread.
type Lacks struct {
	at     rt.Instant // of the newest tick; 0: none since Reset
	lasted [numLacks]time.Duration
	joints [maxJoints]time.Duration // that each was silent
}

// Reset begins anew: a chunk came, or none is wanted.
//
//rt:noalloc
func (l *Lacks) Reset(now rt.Instant) { *l = Lacks{at: now} }

// Lacking is what a tick lacks.
type Lacking struct {
	Joints   uint32 // that do not answer, one bit each
	Bus      bool   // so many of them, or so important ones, that nothing is asked
	Pictures bool
	Session  bool
}

// Add counts the time since the tick before.
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
		if is.Joints&(1<<j) != 0 {
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

// Lasted returns for how long something was lacking.
func (l *Lacks) Lasted(k Lack) time.Duration {
	if k <= LackNone || k >= numLacks {
		return 0
	}
	return l.lasted[k]
}

// Joints returns those that were silent for at least half as long as the one that was silent
// longest, one bit each.
func (l *Lacks) Joints() (set uint32) {
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
