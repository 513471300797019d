package motor

import (
	"math"
	"time"

	"edgert/rt"
)

// Obstacle is what a shaft cannot pass, in encoder counts. The zero value is none.
type Obstacle struct {
	On      bool
	Lo, Hi  int
	Object  bool       // held by the shaft: it falls when nothing presses on it any more
	Gripped bool       // the shaft has pressed on the object
	slack   rt.Instant // since when nothing has; 0: something does
}

// ObstacleAt is an obstacle at a count that a shaft at place comes to; at its own
// place the shaft cannot leave either way.
//
//rt:noalloc
func ObstacleAt(at, place int, object bool) Obstacle {
	o := Obstacle{On: true, Lo: math.MinInt32, Hi: math.MaxInt32, Object: object}
	if at <= place {
		o.Lo = at
	}
	if at >= place {
		o.Hi = at
	}
	return o
}

// Clamp returns the count nearest to raw on this side of the obstacle.
//
//rt:noalloc
func (o *Obstacle) Clamp(raw int) int {
	if !o.On {
		return raw
	}
	return min(max(raw, o.Lo), o.Hi)
}

// Blocks reports whether a shaft at place is kept from going off counts further.
//
//rt:noalloc
func (o *Obstacle) Blocks(place, off int) bool {
	return o.On && (off > 0 && place >= o.Hi || off < 0 && place <= o.Lo)
}

// dropAfter is how long a grip may be loose before what it holds falls.
const dropAfter = 50 * time.Millisecond

// Press notes whether the shaft presses on an object, and reports whether the object
// falls.
//
//rt:noalloc
func (o *Obstacle) Press(firm bool, now rt.Instant) (falls bool) {
	if !o.On || !o.Object {
		return false
	}
	if firm {
		o.Gripped = true
	}
	return Lasts(&o.slack, o.Gripped && !firm, dropAfter, now)
}

// Lasts reports whether a condition has held for some time.
//
//rt:noalloc
func Lasts(since *rt.Instant, holds bool, d time.Duration, now rt.Instant) bool {
	switch {
	case !holds:
		*since = 0
	case *since == 0:
		*since = now
	}
	return holds && now.Sub(*since) >= d
}
