package motor

import (
	"math"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Obstacle is a limit that a shaft cannot pass, in encoder counts. The zero value is no obstacle.
type Obstacle struct {
	On      bool
	Lo, Hi  int
	Object  bool // an object that the shaft holds: it falls when the shaft stops pressing
	Gripped bool // the shaft has pressed on the object
	// start of the time without pressure on a gripped object; 0: the object is pressed or not
	// gripped
	slack rt.Instant
}

// ObstacleAt returns an obstacle for a shaft. The parameters are the counts of the obstacle and of the shaft. When they
// are equal, the shaft cannot move in either direction.
//
//rt:noalloc
func ObstacleAt(at, place int, object bool) Obstacle {
	o := Obstacle{
		On:     true,
		Lo:     math.MinInt32,
		Hi:     math.MaxInt32,
		Object: object,
	}
	if at <= place {
		o.Lo = at
	}
	if at >= place {
		o.Hi = at
	}
	return o
}

// Clamp returns the count nearest to raw that the shaft can reach.
//
//rt:noalloc
func (o *Obstacle) Clamp(raw int) int {
	if !o.On {
		return raw
	}
	return min(max(raw, o.Lo), o.Hi)
}

// Blocks reports whether the obstacle keeps a shaft from moving by the distance off, in counts, from the position
// place.
//
//rt:noalloc
func (o *Obstacle) Blocks(place, off int) bool {
	return o.On && (off > 0 && place >= o.Hi || off < 0 && place <= o.Lo)
}

// dropAfter is the time without pressure after which a held object falls.
const dropAfter = 50 * time.Millisecond

// Press reports whether the object falls. firm is true while the shaft presses on it.
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

// Lasts reports whether a condition has held for the time d. holds is the condition now. *since is
// the instant since which the condition holds, 0 when it does not hold; Lasts updates it.
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
