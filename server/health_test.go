package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"edgert/rt/rttest"
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
	h, err := listenHealth("127.0.0.1:0")
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
	h, err := listenHealth("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	if _, err := listenHealth(h.listen.String()); err == nil || !strings.Contains(err.Error(), h.listen.String()) || !strings.Contains(err.Error(), "health_port") {
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
		"service", "server_id", "requests", "errors", "superseded", "late", "unknown_session", "malformed", "stale_pictures", "warned_pictures", "sessions",
		"conditioning", "queue_wait_ms", "decode_ms", "inference_ms", "service_ms", "path_mallocs", "gc_cycles", "gc_by_hand", "rss_mb", "exit",
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
