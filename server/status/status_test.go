package status

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func listenAnywhere(t *testing.T, clock rt.Clock, log io.Writer) *Server {
	t.Helper()
	p := rttest.Must(Listen("127.0.0.1:0", Config{
		Names: []string{"policy-box.lan"}, Clock: clock, Log: slog.New(slog.NewTextHandler(log, nil)),
		Metrics: func(*atomic.Uint64) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "lean_server_x 1")
			})
		},
		Healthy: func() (bool, string) { return true, "" }, Ready: func() (bool, string) { return false, "draining" },
		Status: func(q Query) any {
			if q.Find == "panic" {
				panic("a bug")
			}
			return map[string]any{"sort": q.Sort}
		},
	}))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

// get requests path with host as the machine's name; "" means the server's address.
func get(t *testing.T, p *Server, path, host string, more ...string) (code int, body string) {
	t.Helper()
	r := rttest.Must(http.NewRequest("GET", "http://"+p.Addr().String()+path, nil))(t)
	r.Host = host
	for i := 0; i+1 < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	a := rttest.Must(http.DefaultClient.Do(r))(t)
	defer a.Body.Close()
	text := rttest.Must(io.ReadAll(a.Body))(t)
	if people := path == "/" || strings.HasPrefix(path, "/status"); people &&
		(!strings.HasPrefix(a.Header.Get("Content-Security-Policy"), "default-src 'none'") ||
			a.Header.Get("Cache-Control") != "no-store") {
		t.Errorf("%s has the headers %v, want those of every page", path, a.Header)
	}
	return a.StatusCode, string(text)
}

// Goal: people reach the page by this machine's names only, so that no web site can read it. A
// supervisor may use any name.
func TestWhoMayLook(t *testing.T) {
	p := listenAnywhere(t, rt.KernelClock(), io.Discard)
	for _, c := range []struct {
		path, host string
		code       int
		says       string
	}{
		{"/", "", 200, "<title>lean-server</title>"}, {"/status.json", "", 200, `"sort":"runway"`},
		{"/status.json?sort=name", "localhost:9100", 200, `"sort":"name"`}, {"/", "policy-box.lan:9100", 200, ""},
		{"/", "10.0.0.7", 200, ""},
		{"/", "evil.example", 421, "listen_endpoints"}, {"/status.json", "evil.example:9100", 421, "evil.example"},
		{"/healthz", "lean-server.default.svc", 200, "ok"}, {"/readyz", "anything", 503, "draining"},
		{"/metrics", "lean-server.default.svc:9100", 200, "lean_server_x 1"},
		{"/nothing", "", 404, "not found"}, {"/status.json?sort=luck", "", 400, "want runway"},
	} {
		if code, text := get(t, p, c.path, c.host); code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s for %q: %d %.200q, want %d with %q", c.path, c.host, code, text, c.code, c.says)
		}
	}
	if code, _ := get(t, p, "/status.json", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest",
		"empty"); code != 403 {
		t.Errorf("another site's page gets %d, want 403", code)
	}
	a := rttest.Must(http.Post("http://"+p.Addr().String()+"/status.json", "text/plain", strings.NewReader("x")))(t)
	a.Body.Close()
	rttest.Want(t, a.StatusCode, http.StatusRequestEntityTooLarge, "the answer to a body")
}

// Goal: the rates of people's requests and of scrapes are limited. The rate of a supervisor's requests is not limited.
func TestRates(t *testing.T) {
	p := listenAnywhere(t, rt.KernelClock(), io.Discard)
	for _, tt := range []struct {
		path     string
		burst    int
		interval time.Duration
	}{{"/status.json", burst, requestInterval}, {"/metrics", connectionsMax, scrapeInterval}} {
		began := time.Now()
		for range tt.burst + 8 {
			get(t, p, tt.path, "")
		}
		if took := time.Since(began); took < 7*tt.interval {
			t.Errorf("%d requests of %s in %v, want %v at least", tt.burst+8, tt.path, took, 7*tt.interval)
		}
	}
	before := p.guard.Requests.Load()
	for range burst {
		get(t, p, "/healthz", "")
	}
	rttest.Want(t, p.guard.Requests.Load()-before, 0, "requests of a supervisor counted as people's")
}

// Goal: requests of clients that are gone do not wait for ever, and do not delay later ones.
func TestRequestsOfClientsThatAreGone(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Hour))
	p := listenAnywhere(t, clock, io.Discard)
	const asked = 10 * burst
	for range asked {
		c := rttest.Must(net.Dial("tcp", p.Addr().String()))(t)
		io.WriteString(c, "GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
		c.Close()
	}
	if code, _ := get(t, p, "/healthz", ""); code != http.StatusOK {
		t.Errorf("/healthz = %d, want 200", code)
	}
	// A connection that makes room for a newer one may be closed before its request is read.
	rttest.Eventually(t, "the last request, counted or dropped", func() bool {
		return p.guard.Requests.Load()+p.dropped.Load() >= asked
	})
	// While the clock does not move, burst requests are due and burst requests wait.
	rttest.Eventually(t, "the refusal of each counted request that does not wait", func() bool {
		return p.guard.Requests.Load()-p.guard.Refused.Load() <= 2*burst
	})
	clock.Advance(2 * burst * requestInterval)
	code, _ := get(t, p, "/status.json", "")
	rttest.Want(t, code, http.StatusOK, "the answer to a later request")
}

// Goal: a request that panics is logged, and the next is answered.
func TestAPanicIsOneRequest(t *testing.T) {
	var log bytes.Buffer
	p := listenAnywhere(t, rt.KernelClock(), &log)
	rttest.Fails(t, rttest.Err(http.Get("http://"+p.Addr().String()+"/status.json?find=panic")))
	if code, _ := get(t, p, "/status.json", ""); code != 200 {
		t.Errorf("the next gets %d", code)
	}
	p.Close()
	rttest.Contains(t, log.String(), "a bug")
}

// The page loads nothing from other servers, and inserts no text of a robot as HTML.
func TestThePageIsWhole(t *testing.T) {
	for _, word := range []string{"http://", "https://", "src=\"", "@import", "innerHTML", "base.css */",
		"base.js */"} {
		if bytes.Contains(index, []byte(word)) {
			t.Errorf("index.html holds %s", word)
		}
	}
	for _, sort := range sorts {
		if !bytes.Contains(index, []byte(`<option value="`+sort+`">`)) {
			t.Errorf("index.html does not offer the order %s", sort)
		}
	}
}

// Goal: a thousand silent connections neither stay open nor block a probe. The connections that were closed to make
// room are counted and logged. A single silent connection is closed after idleTimeout.
func TestIdleConnectionsToTheHealthPort(t *testing.T) {
	var log strings.Builder
	h := listenAnywhere(t, rt.KernelClock(), &log)
	const extra = 200
	var idle []net.Conn
	for range connectionsMax + extra {
		c := rttest.Must(net.Dial("tcp", h.Addr().String()))(t)
		defer c.Close()
		idle = append(idle, c)
	}
	if code, _ := get(t, h, "/healthz", ""); code != http.StatusOK {
		t.Errorf("/healthz = %d beside idle connections, want 200", code)
	}
	rttest.Want(t, h.dropped.Load(), extra+1, "connections gave way")
	newest := idle[len(idle)-1]
	newest.SetReadDeadline(time.Now().Add(3 * readTimeout))
	if _, err := newest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that says nothing: %v, want it closed within %v", err, readTimeout)
	}
	rttest.Do(t, h.Close())
	rttest.Want(t, strings.Count(log.String(), "too many connections"), 1, "lines about too many connections")
}
