package timeline

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/foxglove"
)

func TestRelayRefusesOtherPages(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for page, want := range map[string]exit.Code{
		"robot.lan:8080": exit.Usage, "https://robot.lan": exit.Usage, "http://127.0.0.1:1": exit.Absent,
		other.URL: exit.Absent,
	} {
		err := Relay(t.Context(), RelayConfig{Page: page, Listen: "127.0.0.1:0", Out: io.Discard})
		rttest.Ends(t, err, want)
	}
	err := Relay(t.Context(), RelayConfig{Page: other.URL, Listen: "8765", Out: io.Discard})
	rttest.Ends(t, err, exit.Usage) // a port without a host
}

// A page that goes away is reported once, however many requests fail.
func TestALostPageIsReportedOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out strings.Builder
	r := &relay{page: &url.URL{Scheme: "http", Host: "arm"}, out: &out}
	calls := 0
	r.every(ctx, 0, func(context.Context) error {
		if calls++; calls == 3 {
			cancel()
		}
		return errors.New("refused")
	})
	if n := strings.Count(out.String(), "refused"); n != 1 {
		t.Errorf("%d reports of %d failures: %s", n, calls, &out)
	}
}

// published takes the messages of a relay.
type published []string

func (p *published) Publish(_ uint32, _ time.Time, message []byte) { *p = append(*p, string(message)) }

// A camera's name may have characters that mean something in a URL.
func TestNamesOfCamerasInURLs(t *testing.T) {
	const name = "left? #1 50%:b"
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/camera/"+name || r.URL.RawQuery != "" {
			http.Error(w, r.URL.String(), http.StatusNotFound)
		}
	}))
	defer page.Close()
	var to published
	r := &relay{page: rttest.Must(url.Parse(page.URL))(t), to: &to}
	if rttest.Do(t, r.picture(t.Context(), 1, name)); len(to) != 1 || !strings.Contains(to[0], name) {
		t.Errorf("published %q, want a picture of %s", to, name)
	}
}

// Property: an answer of any page is refused, or its messages are valid JSON.
func FuzzLines(f *testing.F) {
	t := New(Config{
		Width:   LiveWidth,
		Columns: 3,
		Joints:  []string{"a.pos", "x.vel"},
		Units:   []string{"degrees", "m/s"},
	})
	t.at(1).runway = float32(math.Inf(1))
	t.at(rt.Instant(LiveWidth)).measured = true
	f.Add([]byte(`{"instance": "a", "lines": ` + string(t.AppendJSON(nil, Since{}, 5, 0)) + `}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines, err := parseLines(text)
		if err != nil {
			return
		}
		r := &relay{joints: lines.Lines.Joints, instance: lines.Instance}
		channels := relayChannels(r.joints, nil)
		r.to = foxglove.New("", channels)
		rttest.Do(t, r.publish(&lines))
		for _, c := range channels {
			if !json.Valid([]byte(c.Schema)) {
				t.Fatalf("%s: %s", c.Topic, c.Schema)
			}
		}
		for _, row := range lines.Lines.Rows {
			if row != nil && !(json.Valid(timingMessage(row)) && json.Valid(jointsMessage(r.joints, row))) {
				t.Fatalf("%s, %s", timingMessage(row), jointsMessage(r.joints, row))
			}
		}
	})
}

// pageOfARun returns the address of a page that has one joint and no camera.
func pageOfARun(t *testing.T) string {
	lines := New(Config{Width: LiveWidth, Columns: 3, Joints: []string{"a.pos"}, Units: []string{"degrees"}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := []byte(`{"id": "arm", "frames": {}}`)
		if r.URL.Path == "/timeline.json" {
			text = append(lines.AppendJSON([]byte(`{"instance": "a", "lines": `), Since{}, 5, 0), '}')
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Without Rerun's SDK, without a viewer, and after a process that ends without a message, the error names the cause and
// the advice.
func TestRerunFailures(t *testing.T) {
	page := pageOfARun(t)
	for _, tt := range []struct {
		script, viewer string
		code           exit.Code
		says           string
	}{
		{`exec python3 -I -S "$@"`, "", exit.Usage, "-m pip install --upgrade rerun-sdk"},
		{"exit 3", "", exit.Failure, "exit status 3"},
		{"echo ready; exit 0", "", exit.Failure, "exit status 0"},
		{"exit 0", "127.0.0.1:9876", exit.Usage, "want rerun+http://HOST:PORT/proxy"},
		{"exit 0", "rerun+http://127.0.0.1:9876", exit.Usage, "want rerun+http://HOST:PORT/proxy"},
		{"exit 0", "rerun+http://127.0.0.1:1/proxy", exit.Absent, "connection refused; start rerun there"},
	} {
		python := rttest.WriteFile(t, t.TempDir(), "python", "#!/bin/sh\n"+tt.script+"\n")
		cfg := RelayConfig{Page: page, Python: python, Viewer: tt.viewer, Out: io.Discard}
		if err := Relay(t.Context(), cfg); exit.Of(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s, %q: %v (code %d), want code %d and %q", tt.script, tt.viewer, err, exit.Of(err), tt.code,
				tt.says)
		}
	}
	// the script runs until its stdin ends
	waiting := rttest.WriteFile(t, t.TempDir(), "python", "#!/bin/sh\nread x; exit 8\n")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	rttest.Do(t, Relay(ctx, RelayConfig{Page: page, Python: waiting, Out: io.Discard}))
	cfg := RelayConfig{Page: page, Python: "/none/python", Out: io.Discard}
	if err := Relay(t.Context(), cfg); exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "--python") {
		t.Errorf("no interpreter: %v", err)
	}
}
