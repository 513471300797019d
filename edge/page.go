package edge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/page"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record/timeline"
	"github.com/edge-rt/edge-rt/rt"
)

// tickGrace is the time after its last tick for which the process is reported as healthy.
const tickGrace = 2 * time.Second

func (e *Edge) openPage(context.Context) (err error) {
	if e.cfg.HTTP == "" {
		return nil
	}
	token, made := "", false
	if e.cfg.HTTPToken != "" {
		if token, made, err = page.LoadToken(e.cfg.HTTPToken); err != nil {
			return exit.Errorf(exit.Config, "--http-token: %w", err)
		}
	}
	e.page, err = page.Listen(page.Config{
		Address: e.cfg.HTTP,
		Names:   e.cfg.HTTPNames,
		Token:   token,
		Clock:   e.clock,
		Log:     e.log,
	})
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	e.onClose(e.page.Close)
	switch {
	case made: // logged once, with the token after #, which a browser never sends to a server
		e.log.Info("page", "at", e.page.URL(), "to_operate", e.page.URL()+"#token="+token)
	case token != "":
		e.log.Info("page", "at", e.page.URL(), "to_operate", "with the token in "+e.cfg.HTTPToken)
	default:
		e.log.Info("page", "at", e.page.URL())
	}
	return nil
}

// drawLines makes the record's thread keep the last minute of the run for the page. It returns nil
// without a record.
func (e *Edge) drawLines() func([]byte, timeline.Since) []byte {
	if e.record == nil {
		return nil // more joints than a record has
	}
	t := timeline.New(timeline.Config{
		Width:   timeline.LiveWidth,
		Columns: timeline.LiveColumns,
		Zero:    e.clock.Now(),
		Period:  time.Duration(float64(time.Second) / e.cfg.FPS),
		Joints:  e.link.Names,
		Units:   e.link.Units,
	})
	e.record.Visit(t.Visitor())
	return func(b []byte, since timeline.Since) []byte {
		return t.AppendJSON(b, since, e.clock.Now(), e.record.Wall())
	}
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
		e.sender.Previews = append(e.sender.Previews, preview)
		e.onCloseUnlessStuck(preview.Close)
	}
	e.onClose(e.page.Close) // before the previews that it shows
	var mu sync.Mutex       // at most one reader of the newest tick
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
		Instance: e.identity.Instance,
		Timeline: e.drawLines(),
		Ticks:    func() uint64 { return e.drive.Stats().Ticks },
		Previews: e.sender.Previews,
	}.OperatedBy(e.commands))
	return nil
}

func (e *Edge) live() *Live {
	c, st := e.control, e.control.stats
	l := &Live{
		Status:    e.status(),
		Robot:     e.cfg.Robot,
		State:     state(st.state.Load()).String(),
		Paused:    c.operator.pause.Load(),
		Phase:     c.phaseText(),
		Waits:     e.waits(),
		Works:     e.working(false),
		Episode:   st.episode.Load(),
		Queue:     st.size.Load(),
		Bus:       busSummary(e.arm.Stats()),
		Frames:    map[string]LiveFrames{},
		Simulated: e.world != nil,
	}
	if l.Server != nil && c.in.Sessions().Open == nil {
		lost := *l.Server
		lost.Prefix = "" // no session is open
		l.Server = &lost
	}
	for _, cam := range e.cameras {
		l.Frames[cam.Name] = LiveFrames{framesOf(cam), cam.Stats().Lost}
	}
	g, key, _ := c.views.Front()
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
		if g.joints.Conditions[j]&follow.Overloaded != 0 {
			l.Works = e.working(true)
		}
		l.Joints = append(l.Joints, Joint{
			Name:       e.link.Names[j],
			Unit:       e.link.Units[j],
			State:      round3(float64(g.state[j])),
			Goal:       round3(float64(g.goal[j])),
			Stale:      g.joints.Stale&bit != 0,
			Frozen:     g.joints.Frozen&bit != 0,
			Held:       g.joints.Held&bit != 0,
			Conditions: g.joints.Conditions[j].String(),
			Why:        g.joints.Conditions[j].Why(),
		})
		if g.joints.Conditions[j]&follow.HeatOrSupply != 0 {
			joint := &l.Joints[j]
			if joint.Complaint = event.ComplaintText(g.joints.Complaints[j]); joint.Complaint != "" {
				joint.Why += " (" + joint.Complaint + ")"
			}
		}
	}
	return l
}

func millis(d time.Duration) float64 { return round3(float64(max(0, d)) / 1e6) }

// healthy reports whether the tick runs, with a reason when it does not.
func (e *Edge) healthy() (bool, string) {
	g, key, _ := e.control.views.Front()
	if key == rt.NoKey {
		return true, "starting"
	}
	if quiet := e.clock.Now().Sub(g.at); quiet > tickGrace {
		return false, fmt.Sprintf("no tick for %.0f s", quiet.Seconds())
	}
	return true, "ok"
}
