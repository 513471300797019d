package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// fullPipe returns a pipe that is full: a write blocks until the test reads from the pipe.
func fullPipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	rttest.Do(t, err)
	t.Cleanup(func() { reader.Close(); writer.Close() })
	fd := int(writer.Fd()) // Fd makes the descriptor blocking
	rttest.Do(t, syscall.SetNonblock(fd, true))
	for block := make([]byte, 4096); ; {
		if _, err := syscall.Write(fd, block); err == syscall.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	rttest.Do(t, syscall.SetNonblock(fd, false))
	return reader, writer
}

// unreadLimit is the longest time in which a program may end after SIGTERM: stopLimit, and the time that the
// program waits for a reader of its last lines.
const unreadLimit = stopLimit + time.Second

// startUnread starts the program with outputs of which at least one has no reader.
func startUnread(t *testing.T, stdout, stderr *os.File, args ...string) *running {
	t.Helper()
	r := command(t, args...)
	if stdout != nil {
		r.Stdout = stdout
	}
	if stderr != nil {
		r.Stderr = stderr
	}
	r.Start()
	r.awaitReady()
	return r
}

// Goal: a log without a reader, as after a dead ssh or a stopped pager, delays neither the start nor the end, and no
// session, chunk, refusal or page. /metrics and the summary have the number of lost lines.
func TestServesWhileNobodyReadsItsLog(t *testing.T) {
	rttest.RealTime(t)
	reader, stderr := fullPipe(t)
	r := startUnread(t, nil, stderr)
	network, prefix := r.dial()
	const lines = 1200 // more than the log's buffer holds, and more than the limit of similar lines
	for range lines {
		if ack := openSession(t, network, prefix, demoOpen(t, "again")); !ack.Accepted {
			t.Fatalf("ack = %+v", ack)
		}
	}
	arm := newArm(t, network)
	for range 20 {
		arm.ask()
	}
	arm.Observation.State = nil // the worker refuses such an observation and logs the refusal
	arm.send()
	select {
	case e := <-arm.Events:
		rttest.Want(t, e.Code, wire.EventBadObservation, "event %+v: code", e)
	case <-time.After(patience):
		t.Fatal("no answer to a bad observation")
	}
	arm.Observation.State = committed.Data[:6]
	arm.send()
	if _, ok := arm.Await(t.Context(), patience); !ok {
		t.Error("no answer to a good observation after it")
	}
	for _, page := range []string{"/healthz", "/readyz"} {
		rttest.Want(t, r.get(page), http.StatusOK, "status of %s", page)
	}
	if lost := r.metrics()["lean_server_log_lines_lost_total"]; lost == 0 || lost > lines+100 {
		t.Errorf("%v lines are counted as lost, want most of %d", lost, lines)
	}
	if leftOut := r.metrics()["lean_server_log_lines_left_out_total"]; leftOut == 0 || leftOut > lines {
		t.Errorf("%v lines are counted as left out, want some of %d", leftOut, lines)
	}
	if took := r.end(syscall.SIGTERM); took > unreadLimit {
		t.Errorf("ended after %v, want %v at most", took, unreadLimit)
	}
	if s := r.summary(); s.Requests != 21 || s.LogLinesLost == 0 || s.LogLinesLeftOut == 0 {
		t.Errorf("summary: %d requests, %d lines lost, %d left out, want 21 and some", s.Requests, s.LogLinesLost,
			s.LogLinesLeftOut)
	}
	stderr.Close()
	if said, err := io.ReadAll(reader); err != nil || len(said) == 0 {
		t.Errorf("the pipe: %d bytes, %v", len(said), err)
	}
}

// Goal: a late reader of the log finds the number of missing lines in it.
func TestALateReaderIsToldWhatIsMissing(t *testing.T) {
	reader, stderr := fullPipe(t)
	r := startUnread(t, nil, stderr)
	network, prefix := r.dial()
	wrong := demoOpen(t, "wrong")
	wrong.StateDim = 7
	openSession(t, network, prefix, wrong)
	for range 1200 {
		openSession(t, network, prefix, demoOpen(t, "again"))
	}
	all := make(chan string, 1)
	go func() { text, _ := io.ReadAll(reader); all <- string(text) }()
	if r.stop(syscall.SIGTERM).Exit.Code != 0 {
		t.Error("the server did not end with code 0")
	}
	stderr.Close()
	if text := <-all; !strings.Contains(text, "lines were dropped while") ||
		!strings.Contains(text, "state dim mismatch") {
		t.Errorf("the log does not say that lines are missing: %d bytes, the last %q", len(text),
			text[max(0, len(text)-300):])
	}
}

// Goal: the program also ends if its table or its audit lines have no reader. It then reports that, and ends
// with code 1.
func TestEndsWhileNobodyTakesItsOutput(t *testing.T) {
	rttest.RealTime(t)
	for what, args := range map[string][]string{"standard output": nil, "audit": {"--audit", "-"}} {
		_, stdout := fullPipe(t)
		r := startUnread(t, stdout, nil, args...)
		if args != nil {
			network, _ := r.dial()
			newArm(t, network).ask()
		}
		code, took := r.leave(syscall.SIGTERM)
		if said := r.Log.String(); code != 1 || took > unreadLimit ||
			!strings.Contains(said, what+": nothing was taken for 1s") {
			t.Errorf("%s: ended with %d after %v, want 1 within %v and why:\n%s", what, code, took, unreadLimit, said)
		}
	}
}

// Goal: a server that receives a signal while it warms up does not finish the warm-up.
func TestStopsWhileWarmingUp(t *testing.T) {
	rttest.RealTime(t)
	r := start(t, "--manifest", writeManifest(t, demoBundle(t)+"warmup_inferences: 1000\n"))
	rttest.Eventually(t, "the warm-up", func() bool {
		_, text := r.page("/readyz")
		return strings.Contains(text, "warming up")
	})
	const limit = 800 * time.Millisecond // the warm-up takes 2 s and more
	if took := r.end(syscall.SIGTERM); took > limit {
		t.Errorf("ended after %v, want %v at most", took, limit)
	}
}

// Goal: a server that is full, or gets session requests of a wrong robot, does not fill its log. It counts all
// refusals, and logs only the first ones with their reasons.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	r, network, prefix := serve(t)
	wrong := demoOpen(t, "wrong")
	wrong.StateDim = 7
	const opens = 300
	for range opens {
		if ack := openSession(t, network, prefix, wrong); ack.Accepted {
			t.Fatalf("ack = %+v", ack)
		}
	}
	s := r.stop(syscall.SIGTERM)
	said := strings.Count(r.Log.String(), "state dim mismatch")
	if said < 20 || said > 100 || s.LogLinesLeftOut != opens-uint64(said) || s.Refusals["state"] != opens {
		t.Errorf("%d refusals, %d of them in the log, %d left out; want %d, some, the rest", s.Refusals["state"], said,
			s.LogLinesLeftOut, opens)
	}
}
