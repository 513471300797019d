package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/wire"
)

func getPage(t *testing.T, h *health, path string) (code int, body string) {
	t.Helper()
	r := rttest.Must(http.Get("http://" + h.Addr().String() + path))(t)
	defer r.Body.Close()
	text := rttest.Must(io.ReadAll(r.Body))(t)
	return r.StatusCode, strings.TrimSpace(string(text))
}

// The health pages give an orchestrator the right answers over the life of a server.
func TestHealthPages(t *testing.T) {
	h := pages(t, nil)
	want := func(when, path string, code int, body string) {
		t.Helper()
		if gotCode, got := getPage(t, h, path); gotCode != code || got != body {
			t.Errorf("%s: %s = %d %q, want %d %q", when, path, gotCode, got, code, body)
		}
	}
	want("loading", "/healthz", 200, "starting")
	want("loading", "/readyz", 503, "loading the policy")
	want("loading", "/nothing", 404, "404 page not found")

	b := serve(t, config(), func(b *bench) {
		b.hold()
		h.watch(b.server)
	})
	b.untilReady()
	want("serving", "/healthz", 200, "ok")
	want("serving", "/readyz", 200, "ok")

	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	r.ask(1)
	<-b.entered
	b.clock.Advance(stuckAfter + time.Second)
	want("hung", "/healthz", 503, "worker busy with one request for 11 s")
	b.leave <- struct{}{}
	r.next()
	b.untilReady()
	_, metrics := getPage(t, h, "/metrics")
	for _, line := range []string{
		"lean_server_requests_total 1", "lean_server_active_sessions 1", "lean_server_max_sessions 2",
		`lean_server_conditioning_total{mode="free"} 1`, `lean_server_errors_total{reason="bad_observation"} 0`,
		`lean_server_observations_dropped_total{reason="superseded"} 0`, "lean_server_sessions_opened_total 1",
	} {
		if !slices.Contains(strings.Split(metrics, "\n"), line) {
			t.Errorf("/metrics lacks %q", line)
		}
	}
	b.end()
	want("stopped", "/readyz", 503, "draining")
	want("stopped", "/healthz", 503, "worker dead")
}

func TestListenHealthNamesThePortThatIsTaken(t *testing.T) {
	taken := pages(t, nil).Addr().String()
	rttest.Fails(t, rttest.Err(listenHealth(taken, slog.New(slog.DiscardHandler))), taken, "health_port")
}

// Goal: the summary keeps its keys, because users' scripts read them.
func TestSummaryKeys(t *testing.T) {
	summary := newBench(t, config()).server.summary()
	text := rttest.Must(json.Marshal(summary))(t)
	var keys map[string]any
	rttest.Do(t, json.Unmarshal(text, &keys))
	want := strings.Fields(`conditioning decode_ms device errors exit gc_by_hand gc_cycles gc_pause_max_ms inference_ms
		late log_lines_left_out log_lines_lost malformed memory path_mallocs queue_wait_ms refusals requests rss_mb
		server_id service service_ms sessions squeezed_pictures stale_pictures superseded unknown_session
		warned_pictures`)
	if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, want) {
		t.Errorf("summary has the keys %q, want %q", got, want)
	}
	summary.Requests, summary.Superseded = 123456, 77
	var table strings.Builder
	rttest.Do(t, summary.Print(&table))
	rttest.Contains(t, table.String(), "123456", "superseded 77", summary.Service, "inference", "p99")
}

// failingServer returns a server with a robot. From the first request on, each of the model's runs begins with a call
// of before, and fails with the error that before returns.
func failingServer(t *testing.T, before func(b *bench, run int) error) (*bench, *robot) {
	t.Helper()
	b := serve(t, config(), func(b *bench) { b.beforeRuns(func(run int) error { return before(b, run) }) })
	b.open(fakeOpen("arm"))
	return b, b.robot("arm")
}

// wantEnd expects that the robot is sent to another server, that the server ends with ErrDevice and this reason, and
// that the metrics count the expected number (failures) of failed runs of the kind how.
func wantEnd(t *testing.T, b *bench, r *robot, how failure, failures uint64, why string) {
	t.Helper()
	if got := r.wantEvent(wire.EventDraining, failedText); got.event.RetryAfterMs <= 0 {
		t.Errorf("the robot may ask again after %d ms", got.event.RetryAfterMs)
	}
	if ok, why := b.server.ready(); ok || why != "draining" {
		t.Errorf("Ready() = %v, %q, want draining", ok, why)
	}
	if ok, said := b.server.worker.healthy(); ok || !strings.Contains(said, why) {
		t.Errorf("healthy() = %v, %q, want %q", ok, said, why)
	}
	rttest.FailsAs(t, b.stop(), ErrDevice, why)
	rttest.Want(t, b.server.stats.failures[how].Load(), failures, "messages counted as %s", how)
}

// Goal: a device on which every run fails ends the server at the first request. The server's own runs fail, too, so it
// sends no robot a bad_observation, but sends all robots to other servers.
func TestAFailingDeviceEndsTheServer(t *testing.T) {
	b, r := failingServer(t, func(*bench, int) error { return fmt.Errorf("%w: CUDA failure 700", policy.ErrRun) })
	r.ask(1)
	wantEnd(t, b, r, failureRun, 3, "the server's own runs fail, too: policy: inference failed: CUDA failure 700")
	rttest.Want(t, b.server.stats.probes[probeFailed].Load(), failuresMax-1, "failed runs of the server's own")
}

// Goal: when every run of the device fails, all robots of a batch, and those whose requests wait, are sent to other
// servers.
func TestAFailingDeviceBlamesNoRobotOfABatch(t *testing.T) {
	b, robots := heldBatch(t, 2, func(b *bench) { b.beforeRuns(holding(b, policy.ErrRun)) }, nil)
	close(b.leave)
	for _, r := range robots {
		r.wantEvent(wire.EventDraining, failedText)
	}
	rttest.FailsAs(t, b.stop(), ErrDevice)
}

// Goal: requests that the policy cannot process, however many, do not end the server, because the server's own runs
// succeed.
func TestBadRequestsDoNotEndTheServer(t *testing.T) {
	b, r := failingServer(t, func(_ *bench, run int) error {
		if run%2 == 1 { // every second run is the server's own
			return policy.ErrRun
		}
		return nil
	})
	for seq := uint64(1); seq <= 6; seq++ {
		b.clock.Advance(eventInterval) // after this time the next event is allowed
		r.ask(seq)
		r.wantEvent(wire.EventBadObservation, "")
	}
	b.wantReady()
	if n, ok := b.server.stats.failures[failureRun].Load(), b.server.stats.probes[probeOK].Load(); n != 6 || ok != 6 {
		t.Errorf("%d failures counted and %d runs of the server's own, want 6 and 6", n, ok)
	}
	b.end()
}

// Goal: when one of the server's own runs succeeds, the device is not given up.
func TestOneOfTwoProbesIsEnough(t *testing.T) {
	b, r := failingServer(t, func(_ *bench, run int) error {
		if run < failuresMax {
			return policy.ErrRun
		}
		return nil
	})
	r.ask(1)
	r.wantEvent(wire.EventBadObservation, "")
	r.ask(2)
	r.wantChunk(2)
	rttest.Want(t, b.server.stats.probes[probeFailed].Load(), 1, "failed runs of the server's own")
}

// Goal: a device without memory is given up after one run of the server's own, because arenas do not shrink, so that
// no memory will be free in a moment. A device that has the memory for the server's own run is kept.
func TestShortMemoryEndsTheServer(t *testing.T) {
	short := fmt.Errorf("%w: %w: 9 MB", policy.ErrRun, policy.ErrMemory)
	b, r := failingServer(t, func(*bench, int) error { return short })
	r.ask(1)
	wantEnd(t, b, r, failureMemory, 2, "out of memory: 9 MB")

	b, r = failingServer(t, func(_ *bench, run int) error {
		if run == 1 {
			return short
		}
		return nil
	})
	r.ask(1)
	r.wantEvent(wire.EventBadObservation, "")
	b.wantReady()
}

// Goal: a device that computes values that are not finite is given up, too. An observation that
// causes them costs only its own robot a chunk.
func TestNotANumber(t *testing.T) {
	b, r := failingServer(t, func(*bench, int) error { return nil })
	r.ask(1)
	r.next()
	b.server.worker.engine.blankFinite = true // a warm-up, which failingServer leaves out, would set this
	b.model.NotFinite.Store(true)
	r.ask(2)
	wantEnd(t, b, r, failureNotFinite, 3, "not finite")

	b, robots := heldBatch(t, 4, func(b *bench) { b.hold(); b.model.Overflow = 2 }, nil)
	close(b.leave)
	wantOwnBut(robots, 1, "not finite")
	rttest.Want(t, b.server.stats.probes[probeOK].Load(), 1, "runs of the server's own")
	b.end()
}

// Goal: a server that is stopping checks its last run like any other. It sends no bad_observation
// before it has decided whether the device failed.
func TestTheLastRunIsLookedAt(t *testing.T) {
	b, robots := batching(t, 1, []string{"a"}, func(b *bench) {
		b.hold()
		b.model.Overflow = 2
	})
	robots[0].sendState(1, 2)
	<-b.entered
	go b.stop()
	robots[0].wantEvent(wire.EventDraining, "")
	rttest.Eventually(t, "the worker's end", func() bool { return !b.server.worker.alive.Load() })
	close(b.leave)
	b.end()
	if n := b.server.stats.outcomes[audit.NotFinite].Load(); n != 1 || len(robots[0].inbox) != 0 {
		t.Errorf("%d chunks were not finite, and the robot got %d more messages, want 1 and none", n,
			len(robots[0].inbox))
	}
}

// Goal: when decoding an observation panics, on whichever thread, only its robot loses a chunk, and the server does not
// end.
func TestAPanicInDecodingRefusesTheObservation(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"a", "b"}} { // decoded by the worker itself, and by another thread
		b, robots := batching(t, 2, names, func(b *bench) {
			b.hold()
			b.model.Filling = func(joint float32) {
				if joint == 7 {
					panic("index out of range")
				}
			}
		})
		last := robots[len(robots)-1]
		if len(robots) > 1 {
			robots[0].sendState(1, 1)
			<-b.entered
		}
		last.sendState(1, 7)
		close(b.leave)
		last.wantEvent(wire.EventBadObservation, "index out of range")
		last.sendState(2, 2)
		last.wantOwn(2, 2)
		b.end()
	}
}

// Goal: an idle server whose device has died detects this, reports it and ends. With a working device it does not end,
// and runs an inference of its own only once in probeInterval.
func TestAnIdleServerLooksAtItsDevice(t *testing.T) {
	b := newBench(t, config())
	w := b.server.worker
	w.engine.device.Start()
	probes := func() uint64 { return w.stats.probes[probeOK].Load() }
	if w.engine.worked = w.clock.Now(); w.probeIdle(w.engine.worked.Add(probeInterval-1)) ||
		w.alarm != w.engine.worked.Add(probeInterval) {
		t.Errorf("it infers too early, or will not be woken: alarm %v", w.alarm)
	}
	if !w.probeIdle(w.engine.worked.Add(probeInterval)) || probes() != 1 {
		t.Errorf("after %v it has inferred %d times, want once", probeInterval, probes())
	}
	w.engine.sizes.Learn(1, time.Second) // a run of the server's own would now delay robots by a second
	if w.engine.worked = w.clock.Now(); w.probeIdle(w.engine.worked.Add(probeShare*time.Second-1)) || probes() != 1 {
		t.Errorf("a slow policy infers for itself more than a hundredth of the time")
	}
	w.running = w.engine.buffers[0]
	if w.probeIdle(w.clock.Now().Add(time.Hour)) {
		t.Error("it infers for itself while a run is under way")
	}

	var dead atomic.Bool
	b, r := failingServer(t, func(*bench, int) error {
		if dead.Load() {
			return policy.ErrRun
		}
		return nil
	})
	dead.Store(true)
	b.clock.Advance(probeInterval)
	b.server.worker.work.Wake()
	wantEnd(t, b, r, failureRun, 3, "own runs fail")
}

// Goal: each run has its own time limit. So it does not count as a hang when the requests of a batch run again one by
// one, or when the server makes a slow run of its own.
func TestEachRunHasItsOwnTime(t *testing.T) {
	var longest time.Duration
	b, robots := heldBatch(t, 4, func(b *bench) {
		hold := holding(b, nil)
		b.beforeRuns(func(run int) error {
			err := hold(run)
			b.clock.Advance(stuckAfter / 2)
			longest = max(longest, b.clock.Now().Sub(rt.Instant(b.server.worker.engine.busySince.Load())))
			return err
		})
		b.model.Poison = 2
	}, nil)
	close(b.leave)
	for _, r := range robots {
		r.next()
	}
	b.end()
	if longest > stuckAfter {
		t.Errorf("busy for %v, as the health page sees it, want the time of one run, %v", longest, stuckAfter/2)
	}
}

// Goal: when a thread never ends decoding, so that no chunk could follow, the server reports the hang, sends its
// robots to other servers and ends.
func TestAStuckDecoderEndsTheServer(t *testing.T) {
	t.Parallel()
	stuck, leave := make(chan struct{}, 1), make(chan struct{})
	defer close(leave)
	b, robots := batching(t, 2, []string{"a"}, func(b *bench) {
		b.model.Filling = func(joint float32) {
			if joint == 7 {
				stuck <- struct{}{}
				<-leave
			}
		}
	})
	robots[0].sendState(1, 7)
	<-stuck
	if ok, why := b.server.healthy(); !ok {
		t.Errorf("unhealthy at once: %s", why)
	}
	b.clock.Advance(decodeTimes*stuckAfter + time.Second)
	if ok, why := b.server.worker.healthy(); ok || why != "observations of one batch are being decoded for 21 s" {
		t.Errorf("healthy() = %v, %q, want what is stuck", ok, why)
	}
	<-b.model.Terminated
	b.clock.Advance(terminateTimeout + time.Second)
	wantEnd(t, b, robots[0], failureHang, 1, "being decoded for 21 s")
}

// silent is a query without a sender.
type silent struct{ wire.Query }

func (silent) Finish() {}

// Goal: while housekeeping is stuck, and no session opens, the server is neither healthy nor ready, although the worker
// still answers. When housekeeping continues, the server is healthy again.
func TestStuckHousekeepingIsUnhealthy(t *testing.T) {
	b := serve(t, config())
	b.untilReady()
	stuck, leave := make(chan struct{}), make(chan struct{})
	b.server.queries.waiting <- query{silent{}, func(wire.Query) (string, []byte) {
		close(stuck)
		<-leave
		return "", nil
	}}
	<-stuck
	b.clock.Advance(housekeepingStuckAfter)
	if ok, why := b.server.healthy(); !ok {
		t.Errorf("unhealthy within the bound: %s", why)
	}
	b.clock.Advance(time.Second)
	const want = "housekeeping stuck for 11 s: no session opens here"
	if ok, why := b.server.healthy(); ok || why != want {
		t.Errorf("healthy() = %v, %q, want %q", ok, why, want)
	}
	if ok, why := b.server.ready(); ok || why != want {
		t.Errorf("Ready() = %v, %q, want %q", ok, why, want)
	}
	close(leave)
	rttest.Eventually(t, "health", func() bool { ok, _ := b.server.healthy(); return ok })
}

// Goal: a run that hangs is terminated, and the server ends in order. A run that does not end even then is abandoned.
// The server's error reports this, so that the caller does not close the model while the run uses it.
func TestHangEndsTheServer(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{true, false} {
		entered, leave := make(chan struct{}, 1), make(chan struct{})
		b, r := failingServer(t, func(b *bench, _ int) error {
			entered <- struct{}{}
			if ends {
				<-b.model.Terminated
			} else {
				<-leave
			}
			return fmt.Errorf("%w: exiting due to terminate flag", policy.ErrRun)
		})
		r.ask(1)
		<-entered
		b.clock.Advance(stuckAfter + time.Second)
		if !ends {
			<-b.model.Terminated
			b.clock.Advance(terminateTimeout + time.Second)
		}
		wantEnd(t, b, r, failureHang, 1, "worker busy with one request for 11 s")
		if err := b.stop(); errors.Is(err, errStillInferring) == ends {
			t.Errorf("the run ends %v: Serve = %v", ends, err)
		}
		rttest.Want(t, b.server.stats.failures[failureRun].Load(), 0, "failures beside the hang")
		close(leave)
	}
}

// Goal: a run of a policy that takes seconds may take five times as long beside other programs without counting as a
// hang. This holds when only the self-test has measured the policy, and for the first run of a larger batch.
func TestASlowPolicyIsNotAHang(t *testing.T) {
	for _, took := range []time.Duration{4 * time.Second, 12 * time.Second} {
		b := newBench(t, config(), func(d *Deps) { d.Tests = []policy.Test{{Rows: 1, Took: took}} })
		e := b.server.worker.engine
		if took < stuckAfter {
			e.tally.pace = pace{}
			e.sizes.Learn(1, took)
		}
		since := b.clock.Now()
		e.busySince.Store(int64(since))
		b.clock.Advance(stuckTimes*took - time.Second)
		if _, why := e.overdue(b.clock.Now()); why != "" {
			t.Errorf("a run of %v: %s, want nothing before five times as long", took, why)
		}
		b.clock.Advance(2 * time.Second)
		if got, _ := e.overdue(b.clock.Now()); got != since {
			t.Errorf("a run of %v is not overdue after five times as long", took)
		}
		e.sizes = batch.NewSizes([]int{1, 2, 4})
		if got, want := e.longestRun(), 4*12*time.Second; took > stuckAfter && got != want {
			t.Errorf("a run of four rows may take %v, want %v: each as long as one alone", got, want)
		}
	}
}

// Goal: a process that was stopped for a while does not give up its device, because the present run may still end
// before the next check.
func TestOneOverdueCheckIsNotAHang(t *testing.T) {
	b := newBench(t, config())
	e := b.server.worker.engine
	for _, later := range []time.Duration{time.Minute, 0} {
		e.busySince.Store(int64(b.clock.Now()))
		e.endHang(b.clock.Now())
		b.clock.Advance(stuckAfter + time.Second + later)
		e.endHang(b.clock.Now())
	}
	rttest.Do(t, e.failure())
	e.endHang(b.clock.Now())
	rttest.Fails(t, e.failure()) // given up after two checks of the same run
}
