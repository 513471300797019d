package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"edgert/internal/bind"
	"edgert/policy"
	"edgert/rt"
	"edgert/server/page"
	"edgert/wire"
	"edgert/wire/zenoh/endpoint"
)

// health is the HTTP side: /healthz says whether to restart the process, /readyz
// whether to send robots, /metrics how it goes, / shows it to people. It listens before
// the policy is loaded, so that a supervisor sees it start.
type health struct {
	*page.Page
	server atomic.Pointer[Server]
}

// listenHealth binds address; an error says who probably has it. names are those by which
// browsers may call this machine, beside its own.
func listenHealth(address string, log *slog.Logger, names ...string) (h *health, err error) {
	h = new(health)
	h.Page, err = page.Listen(address, page.Config{
		Names: names, Healthy: h.healthy, Ready: h.ready, Clock: rt.KernelClock(), Log: log,
		Status: func(q page.Query) any { return showLive(h.server.Load(), q) },
		Metrics: func(dropped *atomic.Uint64) http.Handler {
			return promhttp.HandlerForTransactional(metricsOf(h.server.Load, dropped), promhttp.HandlerOpts{})
		},
	})
	if err != nil {
		return nil, fmt.Errorf("health_port: %w", bind.Explain(err, "choose another with --health-port, or 0 for none"))
	}
	return h, nil
}

func (h *health) watch(s *Server) { h.server.Store(s) }

func (h *health) healthy() (ok bool, why string) {
	s := h.server.Load()
	if s == nil || !s.warmed.Load() {
		return true, "starting"
	}
	if ok, why = s.healthy(); ok && len(s.certificates.texts()) > 0 { // a restart cures no certificate
		why = "ok, but " + strings.Join(s.certificates.texts(), "; ")
	}
	return ok, why
}

func (h *health) ready() (ok bool, why string) {
	s := h.server.Load()
	if s == nil {
		return false, loadingText
	}
	return s.Ready()
}

const loadingText = "loading the policy"

// sickness is how a device failed.
type sickness int

const (
	sickRun sickness = iota
	sickMemory
	sickHang
	sickNotFinite
	numSicknesses
)

func (s sickness) String() string {
	return [numSicknesses]string{"run", "memory", "hang", "not_finite"}[s]
}

const (
	// failuresMax is how many runs in a row give a device up. All but the first are the
	// server's own, so that no robot's request can bring a server down.
	failuresMax = 3
	// terminateTimeout is what a run that hangs gets to end once it is terminated.
	terminateTimeout = 3 * time.Second
	// probeInterval is how long a device may be idle until the server infers by itself
	// to know whether it works; longer where that would take more than a hundredth of it.
	probeInterval = 10 * time.Second
	probeShare    = 100
)

// ErrDevice ends a server whose device no longer computes. The service manager
// starts it again: after most failures of a GPU only a new process gets a working
// context, and a thread that the driver never gives back ends with the old one.
var ErrDevice = errors.New("server: the device failed")

// judge finds out who is to blame for a run of b with so many rows that failed: the
// requests in it, or the device, which is given up then. Runs of the server's own, of
// which nothing can be wrong, decide, before anybody is told anything. They overwrite
// the rows.
//
// Owner: worker, while nothing runs.
//
//go:noinline
func (w *worker) judge(err error, b *buffer, rows int) {
	how := sickRun
	switch {
	case w.sick.Load() != nil: // it was terminated
		return
	case errors.Is(err, policy.ErrMemory):
		how = sickMemory
	case errors.Is(err, errNotFinite):
		how = sickNotFinite
	}
	w.stats.sick[how].Add(1)
	for range failuresMax - 1 {
		own, panicked := w.probe(b, rows)
		if own == nil || w.sick.Load() != nil {
			return
		}
		err = own
		w.stats.sick[how].Add(1)
		if panicked || how == sickMemory { // there will not be more in a moment, and arenas do not shrink
			break
		}
	}
	w.giveUp(fmt.Sprintf("the server's own runs fail, too: %v", err), how)
}

// probe is a run of the server's own.
func (w *worker) probe(b *buffer, rows int) (err error, panicked bool) {
	for row := range rows {
		w.tensors.blank(b.first+row, false, 0)
	}
	e := w.runNow(b, rows, 0)
	if e.Err == nil && w.blankFinite && !w.finite(b, rows) {
		e.Err = errNotFinite
	}
	if e.Err != nil {
		w.stats.probes[probeFailed].Add(1)
		return e.Err, e.Panicked
	}
	w.stats.probes[probeOK].Add(1)
	w.blankFinite = w.finite(b, rows)
	w.worked = e.At
	return nil, false
}

func (w *worker) finite(b *buffer, rows int) bool {
	for row := range rows {
		if !w.model.Finite(b.first + row) {
			return false
		}
	}
	return true
}

// probeIdle has the server infer by itself when nobody else did for long, so that it
// is not ready with a device that died meanwhile; false when it is not time yet.
func (w *worker) probeIdle(now rt.Instant) bool {
	if w.running != nil || w.open != nil {
		return false
	}
	if due := w.worked.Add(max(probeInterval, probeShare*w.sizes.Took(1))); now < due {
		w.wakeAt(due)
		return false
	}
	w.worked = now
	if err, _ := w.probe(w.buffers[0], 1); err != nil {
		w.log.Warn("a run of the server's own failed", "why", err)
		w.judge(err, w.buffers[0], 1)
	}
	w.busySince.Store(0)
	return true
}

// giveUp has the server end; it is not ready from now on.
//
//go:noinline
func (w *worker) giveUp(why string, how sickness) {
	if w.sick.CompareAndSwap(nil, &why) {
		w.log.Error("THE DEVICE FAILED: the server ends, to be started again", "device", w.placement.Device, "how", how, "why", why)
	}
}

// sickness is why the device was given up, nil when it works.
func (w *worker) sickness() error {
	if why := w.sick.Load(); why != nil {
		return fmt.Errorf("%w: %s", ErrDevice, *why)
	}
	return nil
}

// watch is what the housekeeping remembers of what the worker waits for.
type watch struct {
	overdue    rt.Instant // its begin, once it took too long
	terminated rt.Instant
	lost       bool
}

// overdue is what the worker has waited for for longer than it may: a run, or rows that
// are decoded; "" when there is nothing.
//
// Owner: any goroutine.
func (w *worker) overdue(now rt.Instant) (since rt.Instant, why string) {
	since = rt.Instant(w.busySince.Load())
	limit := max(stuckAfter, stuckTimes*w.longestRun())
	if busy := now.Sub(since); since != 0 && busy > limit {
		return since, fmt.Sprintf("worker busy with one request for %.0f s", busy.Seconds())
	}
	for _, b := range w.buffers {
		since = rt.Instant(b.since.Load())
		if filling := now.Sub(since); b.filling.Load() > 0 && filling > decodeTimes*limit {
			return since, fmt.Sprintf("observations of one batch are being decoded for %.0f s", filling.Seconds())
		}
	}
	return 0, ""
}

// endHang gives up a device whose run takes longer than it may: the run is
// terminated, and the thread left behind when that does not help. So it is with a thread
// that decodes. One check is not enough: the process itself may have been stopped for so
// long.
//
// Owner: housekeeping.
func (w *worker) endHang(now rt.Instant) {
	switch since, why := w.overdue(now); {
	case since == 0:
	case w.watch.overdue != since:
		w.watch.overdue = since
	case w.watch.terminated == 0:
		w.watch.terminated = now
		w.stats.sick[sickHang].Add(1)
		w.giveUp(why, sickHang)
		w.terminate()
	case !w.watch.lost && now.Sub(w.watch.terminated) > terminateTimeout:
		w.watch.lost = true
		close(w.lost)
	}
}

// certified is a network with certificates of its own.
type certified interface {
	Certificates(now time.Time) []endpoint.Finding
}

// certificates are the findings of the certificates by which robots reach the server.
type certificates struct {
	found atomic.Pointer[[]endpoint.Finding]
}

// look reads the findings and logs those that are new, and that all are gone.
//
// Owner: housekeeping.
func (c *certificates) look(network wire.Session, now time.Time, log *slog.Logger) {
	shown, ok := network.(certified)
	if !ok {
		return
	}
	before, found := c.all(), shown.Certificates(now)
	for _, f := range found {
		switch {
		case slices.Contains(before, f):
		case f.Refused:
			log.Error("NO ROBOT CAN CONNECT", "why", f.Text, "clock", now.UTC().Format(time.RFC3339))
		default:
			log.Warn("certificate", "why", f.Text)
		}
	}
	if len(before) > 0 && len(found) == 0 {
		log.Info("the certificates are in order again")
	}
	c.found.Store(&found)
}

// all are the findings of the last look.
//
// Owner: any goroutine.
func (c *certificates) all() []endpoint.Finding {
	if found := c.found.Load(); found != nil {
		return *found
	}
	return nil
}

// texts are all findings in words.
func (c *certificates) texts() (texts []string) {
	for _, f := range c.all() {
		texts = append(texts, f.Text)
	}
	return texts
}

// usable reports whether robots can connect, and why not.
func (c *certificates) usable() (ok bool, why string) {
	var texts []string
	for _, f := range c.all() {
		if f.Refused {
			texts = append(texts, f.Text)
		}
	}
	return len(texts) == 0, strings.Join(texts, "; ")
}

// longestRun is how long the longest run is expected to take: of sizes that have not run
// yet, each row takes the time of one alone.
func (w *worker) longestRun() time.Duration {
	one, sizes := max(w.sizes.Took(1), time.Duration(w.pace.most.Load())), w.sizes.All()
	longest := max(w.sizes.Longest(), one)
	if largest := sizes[len(sizes)-1]; w.sizes.Took(largest) == 0 {
		longest = max(longest, time.Duration(largest)*one)
	}
	return longest
}
