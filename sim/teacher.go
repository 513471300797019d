package sim

import "math"

// Teacher drives the arm by a rule so that the tip never touches the post: the tip moves along the tangent of a circle
// around the post. The Teacher keeps to one side of the post for a whole leg. The zero value has not chosen a side.
//
// Source: the demonstrations that the demo policy is trained on.
type Teacher struct {
	side float64
	leg  Point // the target for which side was chosen
}

const (
	teacherClearance = 0.085
	teacherSpeed     = 0.25 / ticksPerSecond // metres per tick
	teacherBrake     = 0.12                  // share of the remaining distance that the tip may move per tick
	gripNear         = 0.15
)

// Goal returns the joints for the next 60 Hz tick of an arm whose tip is at p and whose gripper is
// at grip percent, on its way to target around post.
func (e *Teacher) Goal(p, target, post Point, grip float64) [DOF]float64 {
	lateral, ahead := offset(p, target, post)
	if e.leg != target {
		e.side, e.leg = 1, target
		if lateral > 0 {
			e.side = -1
		}
	}
	togo, toPost := distance(p, target), distance(p, post)
	angle := math.Atan2(target.Y-p.Y, target.X-p.X)
	if ahead > 0 && math.Abs(lateral) < teacherClearance && ahead < togo+teacherClearance {
		angle = math.Atan2(post.Y-p.Y, post.X-p.X)
		if toPost < teacherClearance {
			angle += e.side * (math.Pi/2 + 0.5*(teacherClearance-toPost)/(teacherClearance-postRadius))
		} else {
			angle += e.side * math.Asin(teacherClearance/toPost)
		}
	}
	step := min(teacherSpeed, teacherBrake*togo)
	next := Point{p.X + step*math.Cos(angle), p.Y + step*math.Sin(angle)}
	want := 100 * min(max(1-distance(next, target)/gripNear, 0), 1)
	return poseAt(next, towards(grip, want, maxStep[gripper]))
}

// offset returns the signed distance of the post at c from the line from p to g, and how far ahead
// of p the post lies on that line.
func offset(p, g, c Point) (lateral, ahead float64) {
	d := distance(p, g) + 1e-9
	ux, uy := (g.X-p.X)/d, (g.Y-p.Y)/d
	return ux*(c.Y-p.Y) - uy*(c.X-p.X), ux*(c.X-p.X) + uy*(c.Y-p.Y)
}
