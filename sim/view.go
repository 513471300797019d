package sim

import "github.com/edge-rt/edge-rt/rt"

// View holds the table's visible state at one instant.
type View struct {
	At           rt.Instant
	Q            [DOF]float64 // degrees, the gripper in percent
	Target, Post Point
	Score
}

// View returns the world as it is at the clock's present instant.
//
//rt:noalloc
func (l *Live) View() View {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	v := View{
		At:     l.newest,
		Target: l.world.target,
		Post:   l.world.post,
		Score:  Score{SkippedTicks: l.skipped},
	}
	for j := range v.Q {
		v.Q[j] = l.at(j, l.phase)
	}
	v.Reached, v.Collided, v.Timeouts = l.world.Legs()
	return v
}

// Tip returns the place of the arm's tip.
func (v *View) Tip() Point { return TipAt(v.Q[pan], v.Q[elbow]) }

// Render paints the camera's picture of the view, like World.Render.
//
//rt:noalloc
func (v *View) Render(dst []byte, width, height int) {
	s := scene{
		Pan:    v.Q[pan],
		Elbow:  v.Q[elbow],
		Target: v.Target,
		Post:   v.Post,
	}
	s.render(dst, width, height)
}
