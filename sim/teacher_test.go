package sim

import (
	"math"
	"testing"
)

// teacher is a scripted policy that never touches the post: it walks along the
// tangent of a circle around it. It keeps one side for a whole leg.
//
// Source: the demonstrations that the demo policy is trained on.
type teacher struct {
	side float64
	leg  Point // the target that side was chosen for
}

const (
	teacherClearance = 0.085
	teacherSpeed     = 0.25 / ticksPerSecond // metres per tick
	teacherBrake     = 0.12                  // share of the distance, per tick
	gripNear         = 0.15
)

// goal returns the joints for the world's next tick.
func (e *teacher) goal(w *World) [DOF]float64 {
	p, g, c := w.tip(), w.Target(), w.Post()
	lateral, ahead := offset(p, g, c)
	if e.leg != g {
		e.side, e.leg = 1, g
		if lateral > 0 {
			e.side = -1
		}
	}
	togo, toPost := distance(p, g), distance(p, c)
	angle := math.Atan2(g.Y-p.Y, g.X-p.X)
	if ahead > 0 && math.Abs(lateral) < teacherClearance && ahead < togo+teacherClearance {
		angle = math.Atan2(c.Y-p.Y, c.X-p.X)
		if toPost < teacherClearance {
			angle += e.side * (math.Pi/2 + 0.5*(teacherClearance-toPost)/(teacherClearance-postRadius))
		} else {
			angle += e.side * math.Asin(teacherClearance/toPost)
		}
	}
	step := min(teacherSpeed, teacherBrake*togo)
	next := Point{p.X + step*math.Cos(angle), p.Y + step*math.Sin(angle)}
	want := 100 * min(max(1-distance(next, g)/gripNear, 0), 1)
	return poseAt(next, towards(w.Q()[gripper], want, maxStep[gripper]))
}

// offset returns the post's signed distance from the line p-g, and how far ahead
// it lies.
func offset(p, g, c Point) (lateral, ahead float64) {
	d := distance(p, g) + 1e-9
	ux, uy := (g.X-p.X)/d, (g.Y-p.Y)/d
	return ux*(c.Y-p.Y) - uy*(c.X-p.X), ux*(c.X-p.X) + uy*(c.Y-p.Y)
}

func TestTheTeacherReachesElevenTargetsIn20Seconds(t *testing.T) {
	const seeds = 20
	reached := 0
	for seed := range uint64(seeds) {
		w := NewWorld(seed, 1-2*int(seed%2))
		var e teacher
		for range 20 * ticksPerSecond {
			goal := e.goal(w)
			w.Step(goal[:])
		}
		r, c, o := w.Legs()
		if c != 0 || o != 0 {
			t.Errorf("seed %d: %d collided, %d timed out, want none", seed, c, o)
		}
		reached += r
	}
	// The numpy teacher, which tosses a coin where both sides are equal: 11.05.
	if mean := float64(reached) / seeds; mean < 10.5 || mean > 11.6 {
		t.Errorf("the teacher reaches %.2f targets in 20 s, want about 11.05", mean)
	}
}
