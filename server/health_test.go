package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"edgert/policy"
	"edgert/rt/rttest"
	"edgert/wire"
)

func page(t *testing.T, h *health, path string) (code int, body string) {
	t.Helper()
	r, err := http.Get("http://" + h.listen.String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, strings.TrimSpace(string(text))
}

// What an orchestrator sees over the life of a server.
func TestHealthPages(t *testing.T) {
	h, err := listenHealth("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	want := func(when, path string, code int, body string) {
		t.Helper()
		if gotCode, got := page(t, h, path); gotCode != code || got != body {
			t.Errorf("%s: %s = %d %q, want %d %q", when, path, gotCode, got, code, body)
		}
	}
	want("loading", "/healthz", 200, "starting")
	want("loading", "/readyz", 503, "loading the policy")
	want("loading", "/nothing", 404, "404 page not found")

	var entered, leave chan struct{}
	b := serve(t, config(), func(b *bench) {
		entered, leave = b.holdInferences()
		h.watch(b.server)
	})
	rttest.Eventually(t, "readiness", func() bool { ok, _ := b.server.Ready(); return ok })
	want("serving", "/healthz", 200, "ok")
	want("serving", "/readyz", 200, "ok")

	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	r.send(obsHeader(0, 1), fakeObs(t))
	<-entered
	b.clock.Advance(stuckAfter + time.Second)
	want("hung", "/healthz", 503, "worker busy with one request for 11 s")
	leave <- struct{}{}
	r.next()
	rttest.Eventually(t, "the end of the request", func() bool { ok, _ := b.server.Ready(); return ok })
	_, metrics := page(t, h, "/metrics")
	for _, line := range []string{
		"lean_server_requests_total 1", "lean_server_active_sessions 1", "lean_server_max_sessions 2",
		`lean_server_conditioning_total{mode="free"} 1`, `lean_server_errors_total{reason="bad_observation"} 0`,
		`lean_server_observations_dropped_total{reason="superseded"} 0`, "lean_server_sessions_opened_total 1",
	} {
		if !slices.Contains(strings.Split(metrics, "\n"), line) {
			t.Errorf("/metrics lacks %q", line)
		}
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	want("stopped", "/readyz", 503, "draining")
	want("stopped", "/healthz", 503, "worker dead")
}

func TestListenHealthSaysWhichPortIsTaken(t *testing.T) {
	h, err := listenHealth("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	if _, err := listenHealth(h.listen.String(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), h.listen.String()) || !strings.Contains(err.Error(), "health_port") {
		t.Errorf("ListenHealth on a taken port = %v, want the key and the address", err)
	}
}

// Scripts read the summary: its keys are part of the interface.
func TestSummaryKeys(t *testing.T) {
	b := newBench(t, config())
	text, err := json.Marshal(b.server.Summary())
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"service", "server_id", "device", "requests", "errors", "superseded", "late", "unknown_session", "malformed", "stale_pictures", "warned_pictures", "sessions",
		"conditioning", "queue_wait_ms", "decode_ms", "inference_ms", "service_ms", "path_mallocs", "gc_cycles", "gc_by_hand", "rss_mb", "log_lines_lost", "exit",
	} {
		if _, ok := keys[key]; !ok {
			t.Errorf("summary lacks %q: %s", key, text)
		}
		delete(keys, key)
	}
	if len(keys) > 0 {
		t.Errorf("summary has keys that this test does not name: %v", keys)
	}
	summary := b.server.Summary()
	summary.Requests, summary.Superseded = 123456, 77
	var table strings.Builder
	if err := summary.Print(&table); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"123456", "superseded 77", fmt.Sprint(summary.Service), "inference", "p99"} {
		if !strings.Contains(table.String(), word) {
			t.Errorf("the table lacks %q:\n%s", word, table.String())
		}
	}
}

// sickServer is a server with a robot whose model fails as the test says once a
// request runs.
func sickServer(t *testing.T, before func(b *bench, run int) error) (*bench, *robot) {
	t.Helper()
	b := serve(t, config(), func(b *bench) {
		b.server.cfg.WarmupInferences = 0
		run := 0
		b.model.Before = func() error {
			run++
			return before(b, run)
		}
	})
	b.open(fakeOpen("arm"))
	return b, b.robot("arm")
}

// wantEnd wants the robot to be sent elsewhere, the server to end with ErrDevice
// that says why, and the metrics to have counted it.
func wantEnd(t *testing.T, b *bench, r *robot, how sickness, failures uint64, why string) {
	t.Helper()
	if got := r.next(); got.event.Code != wire.EventDraining || got.event.Text != sickText || got.event.RetryAfterMs <= 0 {
		t.Errorf("the robot gets %+v, want that the device failed, and to go elsewhere", got.event)
	}
	if ok, why := b.server.Ready(); ok || why != "draining" {
		t.Errorf("Ready() = %v, %q, want draining", ok, why)
	}
	if ok, said := b.server.worker.healthy(); ok || !strings.Contains(said, why) {
		t.Errorf("healthy() = %v, %q, want %q", ok, said, why)
	}
	if err := b.stop(); !errors.Is(err, ErrDevice) || !strings.Contains(err.Error(), why) {
		t.Errorf("Serve = %v, want ErrDevice with %q", err, why)
	}
	if n := b.server.stats.sick[how].Load(); n != failures {
		t.Errorf("%d counted as %s, want %d", n, how, failures)
	}
}

// Goal: two failed requests and a failed run of the server's own end it. The first
// robot is told why it gets nothing, and all are sent elsewhere.
func TestThreeFailedRunsEndTheServer(t *testing.T) {
	b, r := sickServer(t, func(*bench, int) error { return fmt.Errorf("%w: CUDA failure 700", policy.ErrRun) })
	r.send(obsHeader(0, 1), fakeObs(t))
	if got := r.next(); got.event.Code != wire.EventBadObservation || !strings.Contains(got.event.Text, "CUDA failure 700") {
		t.Errorf("after the first failure the robot gets %+v, want why", got.event)
	}
	if ok, why := b.server.Ready(); !ok {
		t.Errorf("after one failure the server is not ready: %s", why)
	}
	b.clock.Advance(time.Second) // so that another such event would not be one too many
	r.send(obsHeader(0, 2), fakeObs(t))
	wantEnd(t, b, r, sickRun, 3, "3 runs in a row failed, the last one without a request: policy: inference failed: CUDA failure 700")
}

// Goal: requests that the policy cannot take, however many, do not end the server:
// its own run succeeds.
func TestBadRequestsDoNotEndTheServer(t *testing.T) {
	b, r := sickServer(t, func(_ *bench, run int) error {
		if run%3 != 0 { // each third is the server's own
			return policy.ErrRun
		}
		return nil
	})
	for seq := uint64(1); seq <= 6; seq++ {
		b.clock.Advance(time.Minute) // so that no event is one too many
		r.send(obsHeader(0, seq), fakeObs(t))
		if got := r.next(); got.event.Code != wire.EventBadObservation {
			t.Fatalf("request %d gets %+v, want bad_observation", seq, got)
		}
	}
	if ok, why := b.server.Ready(); !ok {
		t.Errorf("the server is not ready: %s", why)
	}
	if n := b.server.stats.sick[sickRun].Load(); n != 6 {
		t.Errorf("%d failures counted, want 6", n)
	}
	if err := b.stop(); err != nil {
		t.Error(err)
	}
}

// Goal: failures that a success parts are not in a row.
func TestASuccessBeginsTheCountAnew(t *testing.T) {
	b, r := sickServer(t, func(_ *bench, run int) error {
		if run%2 == 1 {
			return policy.ErrRun
		}
		return nil
	})
	for seq := uint64(1); seq <= 6; seq++ {
		b.clock.Advance(time.Minute)
		r.send(obsHeader(0, seq), fakeObs(t))
		r.next()
	}
	if answered := b.server.Summary().Requests; answered != 3 {
		t.Errorf("%d requests answered, want every other of 6", answered)
	}
}

// Goal: a device without memory is given up at once: what fits today will not fit
// in a moment, and arenas do not shrink.
func TestShortMemoryEndsTheServer(t *testing.T) {
	b, r := sickServer(t, func(*bench, int) error { return fmt.Errorf("%w: %w: 9 MB", policy.ErrRun, policy.ErrMemory) })
	r.send(obsHeader(0, 1), fakeObs(t))
	wantEnd(t, b, r, sickMemory, 1, "out of memory: 9 MB")
}

// Goal: a run that hangs is terminated, and the server ends in order.
func TestHangEndsTheServer(t *testing.T) {
	entered := make(chan struct{}, 1)
	b, r := sickServer(t, func(b *bench, _ int) error {
		entered <- struct{}{}
		<-b.model.Terminated
		return fmt.Errorf("%w: exiting due to terminate flag", policy.ErrRun)
	})
	r.send(obsHeader(0, 1), fakeObs(t))
	<-entered
	b.clock.Advance(stuckAfter + time.Second)
	wantEnd(t, b, r, sickHang, 1, "worker busy with one request for 11 s")
	if n := b.server.stats.sick[sickRun].Load(); n != 0 {
		t.Errorf("the terminated run counts as %d failures beside the hang, want 0", n)
	}
}

// Goal: a run that does not end even then is left behind; the error says so, which
// keeps the model from being closed under it.
func TestLostRunEndsTheServer(t *testing.T) {
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	defer close(leave)
	b, r := sickServer(t, func(b *bench, _ int) error {
		entered <- struct{}{}
		<-leave
		return nil
	})
	r.send(obsHeader(0, 1), fakeObs(t))
	<-entered
	b.clock.Advance(stuckAfter + time.Second)
	<-b.model.Terminated
	b.clock.Advance(terminateTimeout + time.Second)
	wantEnd(t, b, r, sickHang, 1, "worker busy with one request for 11 s")
	if err := b.stop(); !errors.Is(err, errStillInferring) {
		t.Errorf("Serve = %v, want errStillInferring", err)
	}
}

// Goal: a process that was stopped for a while does not blame its device: the run
// in hand gets the time between two checks to end.
func TestOneOverdueCheckIsNotAHang(t *testing.T) {
	b := newBench(t, config())
	w := b.server.worker
	w.busySince.Store(int64(b.clock.Now()))
	b.clock.Advance(stuckAfter + time.Minute)
	w.endHang(b.clock.Now())
	w.busySince.Store(int64(b.clock.Now())) // the next request
	w.endHang(b.clock.Now())
	b.clock.Advance(stuckAfter + time.Second)
	w.endHang(b.clock.Now())
	if why := w.sickness(); why != nil {
		t.Errorf("given up: %v", why)
	}
	w.endHang(b.clock.Now())
	if why := w.sickness(); why == nil {
		t.Error("not given up after two checks of one request")
	}
}

// Goal: a thousand connections that say nothing neither stay nor keep a probe out,
// and what gave way is counted and logged; one alone is closed after its time.
func TestIdleConnectionsToTheHealthPort(t *testing.T) {
	var log strings.Builder
	h, err := listenHealth("127.0.0.1:0", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	const extra = 200
	var idle []net.Conn
	for range healthConnectionsMax + extra {
		c, err := net.Dial("tcp", h.listen.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	if code, _ := page(t, h, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz = %d beside idle connections, want 200", code)
	}
	if n := h.dropped.Load(); n != extra+1 {
		t.Errorf("%d connections gave way, want %d", n, extra+1)
	}
	h.mu.Lock()
	open := len(h.open)
	h.mu.Unlock()
	if open > healthConnectionsMax {
		t.Errorf("%d connections are open, want %d at most", open, healthConnectionsMax)
	}
	newest := idle[len(idle)-1]
	newest.SetReadDeadline(time.Now().Add(3 * healthReadTimeout))
	if _, err := newest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that says nothing: %v, want it closed within %v", err, healthReadTimeout)
	}
	if err := h.close(); err != nil {
		t.Error(err)
	}
	if said := log.String(); strings.Count(said, "too many connections") != 1 {
		t.Errorf("the log says %q, want one line about them", said)
	}
}
