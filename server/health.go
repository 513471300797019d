package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/internal/webpage/metric"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/status"
	"github.com/edge-rt/edge-rt/systemd/notify"
	"github.com/edge-rt/edge-rt/wire/listen"
)

// health is the HTTP server: /healthz reports whether the process must be restarted, /readyz reports whether the server
// takes robots, /metrics has its counters, and / is a page for people. It listens before the policy is loaded, so that
// a supervisor sees it start.
type health struct {
	*status.Server
	server  atomic.Pointer[Server]
	loading atomic.Pointer[string] // progress of loading the policy
}

// listenHealth binds address. Its error names the program that probably uses the address. The parameter names has
// further host names that browsers may use for this machine.
func listenHealth(address string, log *slog.Logger, names ...string) (h *health, err error) {
	h = new(health)
	h.Server, err = status.Listen(address, status.Config{
		Names:   names,
		Healthy: h.healthy,
		Ready:   h.ready,
		Clock:   rt.KernelClock(),
		Log:     log,
		Status:  func(q status.Query) any { return h.live(q) },
		Metrics: func(dropped *atomic.Uint64) http.Handler {
			return metric.Handler(metricsOf(h.server.Load, dropped))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("health_port: %w", listen.Explain(err,
			"choose another with --health-port, or 0 to switch it off"))
	}
	return h, nil
}

// live returns the content of the page.
func (h *health) live(q status.Query) *Live {
	l := showLive(h.server.Load(), q)
	if text := h.loading.Load(); text != nil && l.Server == nil {
		l.State = *text
	}
	return l
}

func (h *health) watch(s *Server) { h.server.Store(s) }

// loads shows text, the progress of loading the policy, on the pages. It does nothing if h is nil, because then there
// are no pages.
func (h *health) loads(text string) {
	if h != nil {
		text = loadingText + ": " + text
		h.loading.Store(&text)
	}
}

func (h *health) healthy() (ok bool, why string) {
	s := h.server.Load()
	if s == nil || !s.phase.warmed.Load() {
		return true, "starting"
	}
	if ok, why = s.healthy(); ok && len(s.certificates.texts()) > 0 { // a restart would not resolve these findings
		why = "ok, but " + strings.Join(s.certificates.texts(), "; ")
	}
	return ok, why
}

func (h *health) ready() (ok bool, why string) {
	s := h.server.Load()
	switch text := h.loading.Load(); {
	case s != nil:
		return s.ready()
	case text != nil:
		return false, *text
	}
	return false, loadingText
}

// notifyInterval is the interval of the reports to the service manager, and so the longest time until the service
// manager is informed of a change.
const notifyInterval = 200 * time.Millisecond

// warmUpMargin is the time that a start may take in addition to the time limit of the next inference of the warm-up.
const warmUpMargin = 30 * time.Second

// notifier reports the server's condition to the service manager: readiness as soon as robots get
// chunks, a sign of life while worker and housekeeping make progress, and the number of sessions.
type notifier struct {
	*notify.Notifier
	server    *Server
	state     notify.State
	sessions  int        // number of sessions in state.Status
	busySince rt.Instant // start of the worker's run at the last update
	warmRuns  uint64     // runs of the warm-up at the last update
	unhealthy string     // the reason at the last update, which has been logged
}

// startNotifier reports the condition of s to the service manager until ctx is done or the returned function is called,
// and then reports that the server stops. The returned function waits for that last report.
func startNotifier(ctx context.Context, to *notify.Notifier, s *Server) (end func()) {
	n := &notifier{Notifier: to, server: s}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(notifyInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				n.update(s.clock.Now())
			case <-ctx.Done():
				n.state.Status, n.state.Stopping = "draining", true
				n.Update(s.clock.Now(), n.state)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// update reports the server's present condition. It allocates when the number of sessions has changed.
func (n *notifier) update(now rt.Instant) {
	if !n.state.Ready {
		n.state.Ready, _ = n.server.ready()
		// a warm-up makes progress even when it is slow
		if runs := n.server.worker.engine.warmRuns.Load(); runs != n.warmRuns {
			n.warmRuns = runs
			n.Extend(warmUpMargin + stuckTimes*n.server.worker.engine.longestRun())
		}
	}
	if sessions := n.server.sessions.count(); n.state.Ready && (n.state.Status == "" || sessions != n.sessions) {
		n.sessions, n.state.Status = sessions, "serving "+n.server.prefix+", sessions: "+strconv.Itoa(sessions)
	}
	moves, why := n.server.housekeeper.healthy()
	if n.unhealthy != why {
		if n.unhealthy = why; why != "" {
			n.server.log.Error("NOT HEALTHY: restart the server", "why", why)
		}
	}
	if n.progress(now) && moves {
		n.state.Progress++
	}
	n.Update(now, n.state)
}

// progress reports whether the worker makes progress: it has begun or ended a request since the last update, or its
// present request is within the time limit of this policy's runs, or it is idle and has taken the signal that each
// update sets in worker.work. A worker that is stuck in a request, or has ended, makes no progress.
//
//rt:noalloc
func (n *notifier) progress(now rt.Instant) bool {
	w := n.server.worker
	busySince := rt.Instant(w.engine.busySince.Load())
	progress := busySince != n.busySince || len(w.work) == 0
	if busySince != 0 && !progress { // a slow policy does not count as a hang
		since, _ := w.engine.overdue(now)
		progress = since == 0
	}
	n.busySince = busySince
	w.work.Wake()
	return progress
}
