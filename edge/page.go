package edge

import (
	"context"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/page"
)

func (e *Edge) openPage(context.Context) (err error) {
	if e.page, err = page.Open(e.cfg.Flags, e.clock, e.log); err != nil {
		return err
	}
	e.onClose(e.page.Close)
	e.exporter, err = page.OpenMetrics(e.cfg.Flags, e.clock, e.log)
	e.onClose(e.exporter.Close)
	return err
}

func (e *Edge) showPage() error {
	if e.page == nil && e.exporter == nil && e.cfg.Telemetry == 0 {
		return nil
	}
	viewer := drive.NewViewer(e.robot)
	e.control.viewer = viewer
	healthy := func() (bool, string) { return viewer.Healthy(e.clock.Now()) }
	ticks := func() uint64 { return e.drive.Stats().Ticks }
	e.exporter.Watch(page.Run{Healthy: healthy, Ticks: ticks, Metrics: e.metrics()})
	if e.page == nil {
		return nil
	}
	for _, v := range e.encoders {
		preview, err := capture.NewPreview(v)
		if err != nil {
			return err
		}
		e.sender.Previews = append(e.sender.Previews, preview)
		e.onCloseUnlessStuck(preview.Close)
	}
	e.onClose(e.page.Close) // closes before the previews that the page shows
	e.page.Watch(page.Run{
		Status:   func() any { return e.live() },
		Healthy:  healthy,
		Panel:    e.commands,
		Jog:      e.jog,
		Instance: e.identity.Instance,
		Timeline: page.Lines(e.record, e.robot, time.Duration(float64(time.Second)/e.cfg.FPS), e.clock),
		Ticks:    ticks,
		Metrics:  e.metrics(),
		Previews: e.sender.Previews,
	})
	return nil
}

func (e *Edge) live() *Live {
	c, st := e.control, e.control.stats
	l := &Live{
		Status:  e.status(),
		Phase:   c.phaseText(),
		Taken:   e.taken(),
		Episode: st.episode.Load(),
		Queue:   st.size.Load(),
	}
	if l.Server != nil && c.in.Sessions().Open == nil {
		lost := *l.Server
		lost.Prefix = "" // no session is open
		l.Server = &lost
	}
	l.Live = drive.Live{
		Robot:     e.cfg.Robot,
		State:     state(st.state.Load()).String(),
		Paused:    c.operator.pause.Load(),
		Waits:     e.waits(),
		Bus:       e.drive.Bus(e.arms.Stats()),
		Parts:     e.drive.Parts(),
		Frames:    drive.LiveFramesOf(e.cameras),
		Simulated: e.sims.Len() > 0,
	}
	if e.jog != nil && c.holder() == correcting {
		l.Jog = e.jog.Names()
	}
	l.Works = e.working(c.viewer.Show(&l.Live, e.clock.Now()))
	return l
}
