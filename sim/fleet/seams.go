package fleet

import (
	"math"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/sim"
)

// The joints that move the tip.
const (
	pan   = 0
	elbow = 2
)

// seams finds the goals at which the motion changes from one chunk to the next.
type seams struct {
	seq   uint64 // number of the request whose action ran last
	last  [2]float64
	speed [2]float64 // change of the goal per tick
	ran   int        // number of actions so far
	way   int        // side on which the newest plan of this leg passes the post; 0: no plan yet
}

// step takes an executed goal. seam reports whether this is the first goal of another chunk. jump
// is the goal's distance in degrees from the straight line through the last two goals, continued by
// one tick: the larger of the distances of pan and elbow.
func (s *seams) step(goal [sim.DOF]float64, seq uint64) (jump float64, seam bool) {
	now := [2]float64{goal[pan], goal[elbow]}
	seam = s.ran >= 2 && seq != s.seq
	for i := range now {
		jump = max(jump, math.Abs(now[i]-s.last[i]-s.speed[i]))
		s.speed[i] = now[i] - s.last[i]
	}
	if s.ran == 0 {
		s.speed = [2]float64{}
	}
	s.last, s.seq = now, seq
	s.ran++
	return jump, seam
}

// hold records a tick without an action, on which the goal does not move.
func (s *seams) hold(goal [sim.DOF]float64) {
	s.last, s.speed = [2]float64{goal[pan], goal[elbow]}, [2]float64{}
}

// turn returns 1 for a mode switch: the new plan passes the post on another side than the leg's
// previous plan. Otherwise it returns 0.
func (s *seams) turn(rows []float32, post sim.Point) int {
	way := wayOf(rows, post)
	switched := way != 0 && s.way != 0 && way != s.way
	if way != 0 {
		s.way = way
	}
	if switched {
		return 1
	}
	return 0
}

// Replay computes the ages and seams of an Outcome from recorded actions, which the caller adds in their order.
type Replay struct {
	Out   *Outcome
	seams seams
	at    time.Duration // when the last action ran
	goal  [sim.DOF]float64
}

// Add adds an action: at is the time at which it ran, age the age of its observation then, and seq the number of its
// request.
func (f *Replay) Add(at, age time.Duration, action [sim.DOF]float64, seq uint64) {
	if f.seams.ran > 0 && at-f.at > Period*3/2 { // the arm was at rest between the two actions
		f.seams.hold(f.goal)
	}
	if jump, seam := f.seams.step(action, seq); seam {
		f.Out.Seams = append(f.Out.Seams, jump)
	}
	f.Out.age(int(age / Period))
	f.at, f.goal = at, action
}

// wayOf returns +1 when the tip passes the post on the far side and -1 when it passes on the near
// side. It returns 0 when the tip does not pass the post in these rows.
func wayOf(rows []float32, post sim.Point) int {
	var before sim.Point
	for i := 0; i+sim.DOF <= len(rows); i += sim.DOF {
		tip := sim.TipAt(float64(rows[i+pan]), float64(rows[i+elbow]))
		if i > 0 && (tip.X > post.X) != (before.X > post.X) {
			if tip.Y > post.Y {
				return 1
			}
			return -1
		}
		before = tip
	}
	return 0
}

// losses measures the times from a lost message to the next merge, and from a lost request to the next request.
type losses struct {
	since    time.Duration // time of the first lost message since the last merge; -1: no message was lost
	requests []sentRequest
}

type sentRequest struct {
	key            int64
	tick, estimate int
	lost           bool
	// Number of ticks on which no request was due, because enough actions were left. They are counted
	// from the end of the estimated round trip to the next request.
	full int
}

func (l *losses) lose(key int64, at time.Duration) {
	if l.since < 0 {
		l.since = at
	}
	for i := len(l.requests) - 1; i >= 0; i-- {
		if l.requests[i].key == key {
			l.requests[i].lost = true
			return
		}
	}
}

func (l *losses) tick(tick int, v chunk.View, horizon int) {
	if len(l.requests) == 0 || v.SMin == 0 || v.Size <= horizon-v.SMin {
		return
	}
	if last := &l.requests[len(l.requests)-1]; tick > last.tick+last.estimate {
		last.full++
	}
}

func (l *losses) ask(key int64, tick, estimate int) {
	l.requests = append(l.requests, sentRequest{key: key, tick: tick, estimate: estimate})
}

func (l *losses) recover(now time.Duration, out *Outcome) {
	if l.since >= 0 {
		out.Recoveries = append(out.Recoveries, now-l.since)
		l.since = -1
	}
}

// finish ends the measurement at the end of the world: it records a loss that no merge has ended, and for each lost
// request the ticks from the end of its estimated round trip to the next request.
func (l *losses) finish(end time.Duration, out *Outcome) {
	l.recover(end, out)
	for i, r := range l.requests {
		if !r.lost {
			continue
		}
		out.Lost++
		if i+1 < len(l.requests) {
			again := l.requests[i+1].tick - r.tick - r.estimate
			out.Again, out.AgainDue = append(out.Again, again), append(out.AgainDue, again-r.full)
		}
	}
}
