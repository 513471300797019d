package uplink

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/wire"
)

// Pace is the server's time for a chunk; 0: not known.
type Pace struct {
	Least time.Duration // fastest recent inference
	Most  time.Duration // 99th percentile of inferences
	Queue time.Duration // longest wait for a turn
}

// paceOf reads a server's announced times, and accepts any values.
func paceOf(c *wire.Capabilities) Pace {
	read := func(ms float64) time.Duration {
		if !(ms > 0) {
			return 0
		}
		return time.Duration(min(ms, float64(paceMost/time.Millisecond)) * float64(time.Millisecond))
	}
	p := Pace{Least: read(c.InferenceMsMin), Most: read(c.InferenceMsP99), Queue: read(c.QueueWaitMs)}
	p.Most = max(p.Most, p.Least)
	return p
}

// Or returns p, the time that the answers of this run show, or the announced time while p is not known. So a server
// does not count as slow because of a single slow inference from before this run.
//
//rt:noalloc
func (p Pace) Or(announced Pace) Pace {
	if p.Least > 0 {
		return p
	}
	return announced
}

// sharedPace is a Pace shared by threads. Atomic.
type sharedPace struct{ least, most, queue atomic.Int64 }

func (s *sharedPace) store(p Pace) {
	s.least.Store(int64(p.Least))
	s.most.Store(int64(p.Most))
	s.queue.Store(int64(p.Queue))
}

//rt:noalloc
func (s *sharedPace) load() Pace {
	return Pace{time.Duration(s.least.Load()), time.Duration(s.most.Load()), time.Duration(s.queue.Load())}
}

// Inferences are the durations of the last inferences, as their chunks report them. Owner: the tick.
type Inferences struct {
	took [paceWindow]time.Duration
	n    int
}

// Add takes the duration of an inference, in milliseconds. It ignores a value that cannot be a duration.
//
//rt:noalloc
func (a *Inferences) Add(ms float64) {
	if ms >= 0 && ms <= float64(paceMost/time.Millisecond) {
		a.took[a.n%paceWindow] = time.Duration(ms * float64(time.Millisecond))
		a.n++
	}
}

// Learn combines the announced pace p with the measured answers. The fastest of the last three answers is the policy's
// time, so that one or two slow answers do not let old actions run. With fewer answers, the announced time counts as
// one of them.
//
//rt:noalloc
func (a *Inferences) Learn(p Pace) Pace {
	kept := min(a.n, paceWindow)
	if kept == 0 {
		return p
	}
	most := slices.Max(a.took[:kept])
	least := most
	for i := range min(kept, paceKnown) {
		least = min(least, a.took[(a.n-1-i)%paceWindow])
	}
	if kept < paceKnown && p.Least > 0 {
		least = min(least, p.Least)
	}
	if kept == paceWindow {
		p.Most = min(p.Most, paceTimes*most)
	}
	p.Least, p.Most = least, max(p.Most, most)
	return p
}

// Any reports whether there was an answer.
//
//rt:noalloc
func (a *Inferences) Any() bool { return a.n > 0 }

// Known reports whether the answers alone determine the time for a chunk.
//
//rt:noalloc
func (a *Inferences) Known() bool { return a.n >= paceKnown }

// KnownPace returns the server's time for a chunk, from the answers and the server's own figures.
func (l *Link) KnownPace() Pace {
	p, answered := l.In.Announced(), l.Out.Pace()
	if answered.Least > 0 {
		p.Least, p.Most = answered.Least, max(p.Most, answered.Most)
	}
	return p
}
