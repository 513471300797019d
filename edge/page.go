package edge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"edgert/edge/capture"
	"edgert/edge/page"
	"edgert/rt"
)

// tickGrace is how long after its last tick the process counts as healthy.
const tickGrace = 2 * time.Second

func (e *Edge) openPage(context.Context) (err error) {
	if e.cfg.HTTP == "" {
		return nil
	}
	if e.page, err = page.Listen(e.cfg.HTTP, e.clock, e.log); err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	e.onClose(e.page.Close)
	e.log.Info("page", "at", e.page.URL())
	return nil
}

func (e *Edge) showPage() error {
	if e.page == nil {
		return nil
	}
	e.control.showViews()
	for _, v := range e.encoders {
		preview, err := capture.NewPreview(v)
		if err != nil {
			return err
		}
		e.sender.previews = append(e.sender.previews, preview)
		e.onCloseUnlessStuck(preview.Close)
	}
	e.onClose(e.page.Close) // before what it shows
	var mu sync.Mutex       // one reader of the newest tick at a time
	e.page.Watch(page.Run{
		Status: func() any {
			mu.Lock()
			defer mu.Unlock()
			return e.live()
		},
		Healthy: func() (bool, string) {
			mu.Lock()
			defer mu.Unlock()
			return e.healthy()
		},
		SetTask:  e.SetTask,
		Ticks:    func() uint64 { return e.loop.Stats().Ticks },
		Previews: e.sender.previews,
	})
	return nil
}

func (e *Edge) live() *Live {
	c, st := e.control, e.control.stats
	l := &Live{
		Status: e.status(), Robot: e.cfg.Robot, State: state(st.state.Load()).String(), Paused: c.operator.pause.Load(), Phase: c.phaseText(), Waits: e.waits(),
		Episode: st.episode.Load(), Queue: st.size.Load(), Bus: busSummary(e.arm.Stats()), Frames: map[string]LiveFrames{}, Simulated: e.world != nil,
	}
	if l.Server != nil && e.link.uplink.Load() == nil {
		lost := *l.Server
		lost.Prefix = "" // no session is open
		l.Server = &lost
	}
	for _, cam := range e.cameras {
		l.Frames[cam.Name] = LiveFrames{framesOf(cam), cam.Stats().Lost}
	}
	g, key, _ := c.out.views.Front()
	if key == rt.NoKey {
		return l
	}
	now := e.clock.Now()
	l.Tick = LiveTick{AgeMS: millis(now.Sub(g.at)), LatenessUS: float64(g.lateness) / 1e3}
	if g.source != 0 {
		l.Tick.ActionAgeMS = new(millis(now.Sub(g.source)))
	}
	for j := range g.state {
		bit := uint32(1) << j
		l.Joints = append(l.Joints, Joint{
			Name: e.link.names[j], Unit: e.link.units[j], State: round3(float64(g.state[j])), Goal: round3(float64(g.goal[j])),
			Stale: g.joints.Stale&bit != 0, Frozen: g.joints.Frozen&bit != 0, Held: g.joints.Held&bit != 0,
			Conditions: g.joints.Conditions[j].String(), Why: g.joints.Conditions[j].Why(),
		})
	}
	return l
}

func millis(d time.Duration) float64 { return round3(float64(max(0, d)) / 1e6) }

// healthy reports whether the tick runs, and why it does not.
func (e *Edge) healthy() (bool, string) {
	g, key, _ := e.control.out.views.Front()
	if key == rt.NoKey {
		return true, "starting"
	}
	if quiet := e.clock.Now().Sub(g.at); quiet > tickGrace {
		return false, fmt.Sprintf("no tick for %.0f s", quiet.Seconds())
	}
	return true, "ok"
}
