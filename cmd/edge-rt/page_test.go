package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/jpeg"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// get fetches one path of a page as soon as the page answers.
func get(t *testing.T, url string) (text []byte, head http.Header) {
	t.Helper()
	client := http.Client{Timeout: patience}
	rttest.Eventually(t, url, func() bool {
		r, err := client.Get(url)
		if err != nil {
			return false
		}
		defer r.Body.Close()
		text, err = io.ReadAll(r.Body)
		head = r.Header
		return err == nil && r.StatusCode == http.StatusOK
	})
	return text, head
}

// The page of the real program shows the state, the joints' positions and the camera pictures. The run sends the first
// camera's pictures to the server as JPEG, and the second camera's pictures raw.
func TestThePageOfARun(t *testing.T) {
	t.Parallel()
	for _, quality := range []string{"90", "0"} {
		t.Run("quality "+quality, func(t *testing.T) {
			t.Parallel()
			s := newHoldServer(t)
			_, port := stagetest.FreeEndpoint(t)
			_, metrics := stagetest.FreeEndpoint(t)
			r := edgeCommand(t, []string{"--fps", "10", "--bus", "sim", "--jpeg-quality", quality, "--id", "arm",
				"--connect", s.Endpoint, "--http", port, "--metrics", metrics}, "--quiet", "--camera", "front=sim",
				"--camera",
				"wrist=pattern:320x240")
			r.Start()
			url := "http://127.0.0.1:" + port
			var live edge.Live
			rttest.Eventually(t, "streaming", func() bool {
				text, head := get(t, url+"/status.json")
				if err := json.Unmarshal(text, &live); err != nil ||
					!strings.HasPrefix(head.Get("Content-Type"), "application/json") {
					t.Fatalf("status: %v, %s", err, text)
				}
				return live.Ticks >= 10 && live.State == "STREAMING" && live.Actions > 0
			})
			if live.ID != "arm" || live.Robot != "so101" || len(live.Joints) != 6 ||
				live.Joints[0].Name != "shoulder_pan.pos" || live.Bus.Cycles == 0 ||
				live.Tick.ActionAgeMS == nil || live.Frames["front"].Captured == 0 || live.Server == nil ||
				live.Server.Model != "test/still" || !live.Simulated {
				t.Errorf("status: %+v", live)
			}
			for name, size := range map[string][2]int{"front": {640, 480}, "wrist": {320, 240}} {
				text, head := get(t, url+"/camera/"+name)
				m, err := jpeg.Decode(bytes.NewReader(text))
				if err != nil || m.Bounds().Dx() != size[0] || m.Bounds().Dy() != size[1] ||
					head.Get("Content-Type") != "image/jpeg" || head.Get("X-Frame-Age-Ms") == "" {
					t.Errorf("camera %s: %v, %v; want a JPEG of %v with its age", name, err, head, size)
				}
			}
			if text, _ := get(t, url+"/"); !bytes.Contains(text, []byte("<title>edge-rt</title>")) {
				t.Errorf("the page: %s", text)
			}
			if text, _ := get(t, url+"/healthz"); string(text) != "ok\n" {
				t.Errorf("health: %q", text)
			}
			for _, at := range []string{metrics, port} {
				checkMetrics(t, "http://127.0.0.1:"+at+"/metrics")
			}
			if answer, err := http.Get("http://127.0.0.1:" + metrics + "/status.json"); err != nil ||
				answer.StatusCode != http.StatusNotFound {
				t.Errorf("the port of --metrics has the page, too: %v, %v", answer, err)
			}
			checkLive(t, url)
			code := r.End(syscall.SIGTERM)
			if p := r.summary().Page; code != 0 || p == nil || p.Pictures < 2 || p.Requests < 5 {
				t.Errorf("it ends with %d, %+v", code, p)
			}
			if _, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
				t.Error("somebody listens still")
			}
		})
	}
}

// checkLive reads the stream that a run sends to edge-rt view --live, until every topic has sent a message.
func checkLive(t *testing.T, url string) {
	t.Helper()
	_, port := stagetest.FreeEndpoint(t)
	view := stagetest.Command(t, binary, "view", "--live", url, "--listen", "127.0.0.1:"+port).Start()
	var conn *websocket.Conn
	rttest.Eventually(t, "a viewer connects", func() (ok bool) {
		var err error
		conn, _, err = websocket.Dial(t.Context(), "ws://127.0.0.1:"+port,
			&websocket.DialOptions{Subprotocols: []string{"foxglove.websocket.v1"}})
		return err == nil
	})
	defer conn.CloseNow()
	conn.SetReadLimit(8 << 20)
	wait, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	topics, last := map[uint32]string{}, map[string]map[string]any{}
	for last["/joints"] == nil || last["/timing"] == nil || last["/status"] == nil || last["/camera/front"] == nil ||
		last["/camera/wrist"] == nil {
		kind, b, err := conn.Read(wait)
		if err != nil {
			t.Fatalf("%v, after messages of %v", err, slices.Collect(maps.Keys(last)))
		}
		if kind == websocket.MessageBinary {
			var m map[string]any
			rttest.Do(t, json.Unmarshal(b[13:], &m))
			last[topics[uint32(b[1])]] = m
			continue
		}
		var m struct {
			Channels []struct {
				ID    uint32
				Topic string
			}
		}
		rttest.Do(t, json.Unmarshal(b, &m))
		for _, c := range m.Channels {
			topics[c.ID+100] = c.Topic
			text := fmt.Sprintf(`{"op": "subscribe", "subscriptions": [{"id": %d, "channelId": %d}]}`, c.ID+100, c.ID)
			rttest.Do(t, conn.Write(wait, websocket.MessageText, []byte(text)))
		}
	}
	joint, _ := last["/joints"]["shoulder_pan"].(map[string]any)
	picture, _ := base64.StdEncoding.DecodeString(last["/camera/wrist"]["data"].(string))
	m, err := jpeg.Decode(bytes.NewReader(picture))
	if err != nil || m.Bounds().Dx() != 320 || joint["present"] == nil || joint["goal"] == nil ||
		last["/timing"]["runway_ms"] == nil || last["/status"]["id"] != "arm" {
		t.Errorf("%v, %v, %v, %v, %v", err, m.Bounds(), joint, last["/timing"], last["/status"]["id"])
	}
	view.EndsWith(0, syscall.SIGINT)
}

// checkMetrics compares the names of a run's metrics with the lists in docs/page.md, and checks some values.
func checkMetrics(t *testing.T, url string) {
	t.Helper()
	text, _ := get(t, url)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	page := rttest.Must(os.ReadFile("../../docs/page.md"))(t)
	documented := map[string]string{} // kind by name
	lists := regexp.MustCompile(`(?m)^- (counter|gauge|histogram): (.*\n(  .*\n)*)`)
	for _, list := range lists.FindAllSubmatch(page, -1) {
		for _, name := range regexp.MustCompile(`edge_rt_[a-z_]+`).FindAll(list[2], -1) {
			documented[string(name)] = string(list[1])
		}
	}
	for name, f := range families {
		kind := strings.ToLower(f.GetType().String())
		if strings.HasPrefix(name, "edge_rt_") && documented[name] != kind {
			t.Errorf("docs/page.md has %s as %q, want %s", name, documented[name], kind)
		}
	}
	for name := range documented {
		if families[name] == nil && name != "edge_rt_chunks_dropped_total" &&
			name != "edge_rt_certificate_end_timestamp_seconds" {
			t.Errorf("docs/page.md has %s, and the run has not", name)
		}
	}
	value := func(name string) float64 {
		m := families["edge_rt_"+name].GetMetric()[0]
		return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	for _, name := range []string{"ticks_total", "actions_total", "session_open", "bus_cycles_total", "rate_hertz",
		"frames_total", "tick_lateness_seconds", "bus_cycle_seconds", "round_trip_seconds"} {
		if value(name) == 0 {
			t.Errorf("%s is 0", name)
		}
	}
}

// A run that cannot serve its page ends before it opens the arm.
func TestAPageThatCannotBe(t *testing.T) {
	taken := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	refuses(t, strings.ReplaceAll(`
		--http TAKEN => 1 --http: |address already in use
		// an address reserved for documentation, RFC 5737
		--http 192.0.2.1:8080 => 1 --http: |192.0.2.1:8080
		--http 0 => 2 --http: |want 1 to 65535
		--http localhost => 2 --http: |such as 127.0.0.1:8080
	`, "TAKEN", taken.Addr().String()), "--quiet", "--bus", "/dev/ttyNONE", "--connect", unreachable)
}
