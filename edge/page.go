package edge

import (
	"context"
	"edgert/edge/capture"
	"edgert/edge/page"
	"edgert/rt"
	"fmt"
	"sync"
	"time"
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
		Ticks:    func() uint64 { return e.loop.Stats().Ticks },
		Previews: e.sender.previews,
	})
	return nil
}

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
