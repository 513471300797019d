package smoothing

import (
	"cmp"
	"fmt"
	"math"
)

// rateLimit keeps each joint's velocity and acceleration within bounds. It brakes in time to stop
// at the goal.
type rateLimit struct {
	dt           float64
	speed, accel float64   // units per second, and per second squared; +Inf: no bound
	at, v        []float64 // [dof]
	aheadAt      []float64 // scratch of preview
	aheadV       []float64
	started      bool
}

// newRateLimit returns a rateLimit for rows of dof joints. The parameter rate is the number of rows per second. A speed
// or accel of 0 means no limit.
func newRateLimit(speed, accel, rate float64, dof int) (*rateLimit, error) {
	if !(speed >= 0) || !(accel >= 0) || !(rate > 0) || math.IsInf(speed, 1) || math.IsInf(accel, 1) {
		return nil, fmt.Errorf("smoothing: a velocity of %v and an acceleration of %v at %v rows per second: want "+
			"finite "+
			"limits above 0, or 0 for no limit", speed, accel, rate)
	}
	return &rateLimit{
		dt:      1 / rate,
		speed:   cmp.Or(speed, math.Inf(1)),
		accel:   cmp.Or(accel, math.Inf(1)),
		at:      make([]float64, dof),
		v:       make([]float64, dof),
		aheadAt: make([]float64, dof),
		aheadV:  make([]float64, dof),
	}, nil
}

//rt:noalloc
func (l *rateLimit) reset(row []float32) {
	for j, x := range row {
		l.at[j], l.v[j] = float64(x), 0
	}
	l.started = true
}

//rt:noalloc
func (l *rateLimit) rest() { clear(l.v) }

// apply limits the row, [dof], in place. The first row passes unchanged unless reset was called before. A value that is
// not finite passes unchanged too, and the last gate before the bus refuses it.
//
//rt:noalloc
func (l *rateLimit) apply(row []float32) {
	if !l.started {
		l.reset(row)
		return
	}
	for j, x := range row {
		l.move(&l.at[j], &l.v[j], float64(x))
		if finite(float64(x)) {
			row[j] = float32(l.at[j])
		}
	}
}

// preview replaces rows of actions, [n*dof], by the rows that apply would make if each action lasted as many ticks as
// the parameter steps. It changes no state.
//
//rt:noalloc
func (l *rateLimit) preview(rows []float32, steps int) {
	if !l.started {
		return
	}
	copy(l.aheadAt, l.at)
	copy(l.aheadV, l.v)
	for dof := len(l.at); len(rows) >= dof; rows = rows[dof:] {
		for j := range l.at {
			from, to := l.aheadAt[j], float64(rows[j])
			for i := 1; i <= steps; i++ {
				l.move(&l.aheadAt[j], &l.aheadV[j], from+(to-from)*float64(i)/float64(steps))
			}
			if finite(to) {
				rows[j] = float32(l.aheadAt[j])
			}
		}
	}
}

// move moves a joint, whose position is *at and whose velocity is *v, by one tick towards the goal to. If the goal is
// not finite, the joint stops.
//
//rt:noalloc
func (l *rateLimit) move(at, v *float64, to float64) {
	if !finite(to) {
		*v = 0
		return
	}
	way := to - *at
	want := way / l.dt
	// stop is the largest speed v from which the joint still stops within the remaining distance, if it brakes by
	// accel*dt in every tick: v*v/(2*accel) + v*dt/2 <= |way|.
	if a := l.accel; !math.IsInf(a, 1) {
		half := a * l.dt / 2
		stop := math.Sqrt(half*half+2*a*math.Abs(way)) - half
		want = math.Copysign(math.Min(math.Abs(want), stop), want)
		want = min(max(want, *v-a*l.dt), *v+a*l.dt)
	}
	want = min(max(want, -l.speed), l.speed)
	*v = want
	if *at += want * l.dt; math.Abs(to-*at) < 1e-9*max(1, math.Abs(to)) {
		*at = to
	}
}

//rt:noalloc
func finite(x float64) bool { return x-x == 0 }
