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

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/status"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// health is the HTTP server: /healthz reports whether the process must be restarted, /readyz
// whether it takes robots, /metrics its counters, and / is a page for people. It listens before the
// policy is loaded, so that a supervisor sees it start.
type health struct {
	*status.Server
	server atomic.Pointer[Server]
}

// listenHealth binds address; its error names the program that probably uses the address. names are
// further host names of this machine that browsers may use.
func listenHealth(address string, log *slog.Logger, names ...string) (h *health, err error) {
	h = new(health)
	h.Server, err = status.Listen(address, status.Config{
		Names:   names,
		Healthy: h.healthy,
		Ready:   h.ready,
		Clock:   rt.KernelClock(),
		Log:     log,
		Status:  func(q status.Query) any { return showLive(h.server.Load(), q) },
		Metrics: func(dropped *atomic.Uint64) http.Handler {
			return promhttp.HandlerForTransactional(metricsOf(h.server.Load, dropped), promhttp.HandlerOpts{})
		},
	})
	if err != nil {
		return nil, fmt.Errorf("health_port: %w", listen.Explain(err,
			"choose another with --health-port, or 0 to switch it off"))
	}
	return h, nil
}

func (h *health) watch(s *Server) { h.server.Store(s) }

func (h *health) healthy() (ok bool, why string) {
	s := h.server.Load()
	if s == nil || !s.warmed.Load() {
		return true, "starting"
	}
	if ok, why = s.healthy(); ok && len(s.certificates.texts()) > 0 { // a restart does not renew a certificate
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

// sickness is the kind of a device's failure.
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
	// failuresMax is the number of failed runs in a row after which the device is given up. All but
	// the first are the server's own, so that no robot's request can bring the server down.
	failuresMax = 3
	// terminateTimeout is how long a hanging run may take to end after it is terminated.
	terminateTimeout = 3 * time.Second
	// probeInterval is how long a device may be idle before the server runs an inference of its own
	// to check it; it is longer where such a run takes more than 1/probeShare of it.
	probeInterval = 10 * time.Second
	probeShare    = 100
)

// ErrDevice ends a server whose device no longer computes. The service manager starts it again:
// after most failures of a GPU only a new process gets a working context, and a thread that the
// driver never returns ends with the old process.
var ErrDevice = errors.New("server: the device failed")

// judge decides whether a failed run of the given rows of b is the fault of its requests or of the
// device, which is then given up. Before any robot is informed, it repeats the run with blank
// inputs, which are known to be valid, and overwrites the rows.
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
		if panicked || how == sickMemory { // memory will not be free in a moment, because arenas do not shrink
			break
		}
	}
	w.giveUp(fmt.Sprintf("the server's own runs fail, too: %v", err), how)
}

// probe runs rows of blank inputs, the server's own inference.
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

// probeIdle runs an inference of the server's own after a long idle time, so that a server whose
// device has died is not ready; false when no probe is due.
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

// giveUp makes the server end; it is not ready from now on.
//
//go:noinline
func (w *worker) giveUp(why string, how sickness) {
	if w.sick.CompareAndSwap(nil, &why) {
		w.log.Error("THE DEVICE FAILED: the server ends, to be started again", "device", w.placement.Device, "how", how,
			"why", why)
	}
}

// sickness returns why the device was given up, nil when it works.
func (w *worker) sickness() error {
	if why := w.sick.Load(); why != nil {
		return fmt.Errorf("%w: %s", ErrDevice, *why)
	}
	return nil
}

// watch is the housekeeping's record of an overdue run of the worker.
type watch struct {
	overdue    rt.Instant // begin of the run that is overdue
	terminated rt.Instant
	lost       bool
}

// overdue returns the begin of a run, or of the decoding of a batch, that exceeds its time limit,
// and a text for people; "" when both are in time.
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

// endHang gives up a device whose run exceeds its time limit. It terminates the run, and closes
// lost when the run does not end even then. A batch whose decoding hangs is treated alike. It acts
// only at the second check that finds the same run, because the process itself may have been
// stopped for the time.
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

// certified is a network that reports on its own certificates.
type certified interface {
	Certificates(now time.Time) []endpoint.Finding
}

// certificates holds the findings on the certificates by which robots reach the server.
type certificates struct {
	found atomic.Pointer[[]endpoint.Finding]
}

// look reads the findings, and logs each new one and the moment when all are resolved.
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

// all returns the findings of the last look.
//
// Owner: any goroutine.
func (c *certificates) all() []endpoint.Finding {
	if found := c.found.Load(); found != nil {
		return *found
	}
	return nil
}

// texts returns the texts of all findings.
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

// longestRun returns the expected duration of the longest run. For sizes that have not run yet,
// each row takes the time of a single one.
func (w *worker) longestRun() time.Duration {
	one, sizes := max(w.sizes.Took(1), time.Duration(w.pace.most.Load())), w.sizes.All()
	longest := max(w.sizes.Longest(), one)
	if largest := sizes[len(sizes)-1]; w.sizes.Took(largest) == 0 {
		longest = max(longest, time.Duration(largest)*one)
	}
	return longest
}

// healthy reports whether the worker runs and makes progress.
//
// Owner: any goroutine.
func (w *worker) healthy() (ok bool, why string) {
	if why := w.sick.Load(); why != nil {
		return false, *why
	}
	if !w.alive.Load() {
		return false, "worker dead"
	}
	_, why = w.overdue(w.clock.Now())
	return why == "", why
}
