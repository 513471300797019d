package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// otherBundle makes a copy of the demo's bundle with another digest, in the folder name below dir.
func otherBundle(t *testing.T, dir, name string) (bundle, digest string) {
	t.Helper()
	bundle = filepath.Join(dir, name)
	rttest.Do(t, os.CopyFS(bundle, os.DirFS(demo+"/bundle")))
	text := rttest.ReadFile(t, filepath.Join(bundle, "bundle.json"))
	changed := strings.Replace(text, `"exporter": "edgert-train 1"`, fmt.Sprintf(`"exporter": %q`, name), 1)
	if changed == text {
		t.Fatal("bundle.json has no exporter")
	}
	rttest.WriteFile(t, bundle, "bundle.json", changed)
	return bundle, rttest.Must(policy.LoadBundle(bundle))(t).SHA256
}

// rollout runs lean-server rollout and returns its JSON.
func (r *running) rollout(manifest string, args ...string) (shown rolledOut) {
	r.t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(r.health, "http://"), ":")
	code, stdout, stderr := leanServer(r.t, nil,
		append([]string{"rollout", "--manifest", manifest, "--health-port", port,
			"--json", "-"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &shown); code != 0 || err != nil || shown.Server == nil {
		r.t.Fatalf("rollout %q = %d, %v: %s%s", args, code, err, stdout, stderr)
	}
	return shown
}

// awaitRollout waits until the function ok returns true for the server's roll-out.
func (r *running) awaitRollout(manifest, what string, ok func(*server.LiveRollout) bool) *server.LiveRollout {
	r.t.Helper()
	var live server.Live
	rttest.Eventually(r.t, what, func() bool {
		time.Sleep(100 * time.Millisecond) // the page's pace
		_, text := r.page("/status.json")
		live = server.Live{}
		return json.Unmarshal([]byte(text), &live) == nil && live.Rollout != nil && ok(live.Rollout)
	})
	return live.Rollout
}

// firstChunk is the largest number of ticks that an episode waits for its first chunk on a busy machine.
const firstChunk = 5

// Goal: with real programs, robots with episodes change to a new model between two episodes, and back again (moves).
// Robots without --model-change episode keep their model to their end (keeps). Robots of a third kind, which stream
// without episodes, never run out of actions meanwhile. No episode waits long for its first chunk, not even the first
// episode with a new model. EDGERT_ROLLOUT_ROBOTS=N runs N robots of each kind, EDGERT_ROLLOUT_TIMES=N runs N
// roll-outs.
func TestRollOutAndBack(t *testing.T) {
	rttest.RealTime(t)
	count := func(name string) int { n, _ := strconv.Atoi(os.Getenv(name)); return max(n, 1) }
	robots, times := count("EDGERT_ROLLOUT_ROBOTS"), count("EDGERT_ROLLOUT_TIMES")
	dir := t.TempDir()
	bin := rttest.Must(rttest.Programs(dir, "edge-rt"))(t)
	bundle, fresh := otherBundle(t, dir, "fresh")
	old := rttest.Must(policy.LoadBundle(demo + "/bundle"))(t).SHA256
	file := rttest.WriteFile(t, dir, "server.yaml", demoBundle(t)+
		"service: demo\ndefault_task: around the post # the demo's\nmax_sessions: 100\nsessions_per_host: 100\n")
	audit := filepath.Join(dir, "audit.jsonl")
	s := start(t, "--manifest", file, "--audit", audit)
	s.awaitReady()
	edges := map[string]*stagetest.Program{}
	run := func(id string, flags ...string) {
		args := stage.SimArm(s.endpoint, "--id", id, "--json", filepath.Join(dir, id+".json"))
		p := stagetest.Command(t, filepath.Join(bin, "edge-rt"), append(args, flags...)...)
		p.Env = append(p.Env, "XDG_STATE_HOME="+filepath.Join(dir, id))
		edges[id] = p.Start()
	}
	for i := range robots {
		for kind, flag := range map[string]string{"moves": "episode", "keeps": "refuse"} {
			run(fmt.Sprint(kind, "-", i), "--model-change", flag, "--episodes", "10000", "--episode-time", "1500ms",
				"--reset-time", "200ms", "--record-dir", filepath.Join(dir, fmt.Sprint("record-", kind, i)),
				"--record-size", "1GiB")
		}
		run(fmt.Sprint("streams-", i))
	}
	s.awaitAnswers(3*robots, 3)
	for range times {
		set := s.rollout(file, "set", "--bundle", bundle, "--share", "1")
		if set.Manifest.Share != 1 || set.Server.Share != 1 {
			t.Errorf("set: %+v", set)
		}
		s.awaitRollout(file, "the robots with episodes move", func(r *server.LiveRollout) bool {
			return r.State == "serving" && r.SHA256 == fresh && r.New == robots && r.Moving == 2*robots
		})
		s.awaitAnswers(3*robots, 3)
		s.rollout(file, "back")
		s.awaitRollout(file, "and move back", func(r *server.LiveRollout) bool {
			return r.State == "leaving" && r.New == 0 && r.Old == 3*robots
		})
		s.awaitAnswers(3*robots, 3)
	}
	for id, p := range edges {
		var summary struct {
			Starved  int      `json:"starved_ticks"`
			Bus      int      `json:"starved_by_bus"` // on a busy machine the simulated bus loses replies
			Start    int      `json:"starved_at_start"`
			Ticks    int      `json:"ticks"`
			Models   []string `json:"models"`
			Episodes struct{ Number int }
		}
		code := p.End(syscall.SIGINT)
		rttest.ReadJSON(t, filepath.Join(dir, id+".json"), &summary)
		want := []string(nil)
		if strings.HasPrefix(id, "moves") {
			for want = []string{old}; len(want) < 1+2*times; {
				want = append(want, fresh, old)
			}
		}
		starved := summary.Starved - summary.Bus - summary.Start
		t.Logf("%s: %d of %d ticks starved, %d at the start of %d episodes, with %d changes of the model", id, starved,
			summary.Ticks, summary.Start, summary.Episodes.Number, max(0, len(summary.Models)-1))
		if code != 0 || starved > 0 || summary.Start > firstChunk*summary.Episodes.Number ||
			!slices.Equal(summary.Models, want) {
			t.Errorf("%s: code %d, %d starved ticks, %d before first chunks, models %.12s; want 0, 0, at most %d for "+
				"each of %d episodes, and %.12s\n%s", id, code, starved, summary.Start, summary.Models, firstChunk,
				summary.Episodes.Number, want, p.Log)
		}
	}
	s.end(syscall.SIGTERM)
	lines := rttest.Must(stage.ReadAudit[struct {
		Client string `json:"client_uuid"`
		Model  string `json:"model_sha256"`
	}](audit, false))(t)
	by := map[string]map[string]bool{}
	for _, l := range lines {
		kind, _, _ := strings.Cut(l.Client, "-")
		if by[kind] == nil {
			by[kind] = map[string]bool{}
		}
		by[kind][l.Model] = true
	}
	if len(by["keeps"]) != 1 || !by["keeps"][old] || len(by["moves"]) != 2 || !by["moves"][old] || !by["moves"][fresh] {
		t.Errorf("the audit's models: %v", by)
	}
}

// awaitAnswers waits until each of the given number of robots has got n more chunks.
func (r *running) awaitAnswers(robots int, n uint64) {
	r.t.Helper()
	before := map[string]uint64{}
	read := func() (sessions []server.LiveSession) {
		var live server.Live
		_, text := r.page("/status.json?rows=1000")
		_ = json.Unmarshal([]byte(text), &live)
		return live.Sessions.Rows
	}
	for _, s := range read() {
		before[s.Name+s.Model] = s.Answered
	}
	rttest.Eventually(r.t, "chunks", func() bool {
		time.Sleep(100 * time.Millisecond) // the page's pace
		sessions := read()
		return len(sessions) == robots && !slices.ContainsFunc(sessions, func(s server.LiveSession) bool {
			return s.Answered < before[s.Name+s.Model]+n
		})
	})
}

// The command rollout refuses wrong arguments and then does not change the manifest.
func TestRolloutCommand(t *testing.T) {
	file := writeManifest(t, demoBundle(t)+"health_port: 1\n")
	before := rttest.ReadFile(t, file)
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"", 4, "no server of this manifest answers"},
		{"set --share 0.1", 2, "the manifest has no roll-out yet: give --bundle DIR"},
		{"set", 2, "give --share, --bundle or both"},
		{"set --bundle /nowhere", 3, "/nowhere is not a bundle directory"},
		{"set --share 3 --bundle " + demo + "/bundle", 2, "--share"},
		{"set --sha256 0000 --bundle " + demo + "/bundle", 3, "want one that begins with 0000"},
		{"back --share 0.1", 2, "belong to rollout set"},
		{"pin", 2, "name the robots by their ids"},
		{"pin arm-1", 3, "rollout names no model"},
		{"away", 2, "status"},
	} {
		code, _, stderr := leanServer(t, nil, append([]string{"rollout", "--manifest", file},
			strings.Fields(tt.args)...)...)
		if code != tt.code || !strings.Contains(stderr, tt.says) {
			t.Errorf("rollout %s = %d, %s; want %d and %q", tt.args, code, stderr, tt.code, tt.says)
		}
	}
	rttest.Want(t, rttest.ReadFile(t, file), before, "the manifest")
	for _, tt := range []struct{ args, says string }{
		{"set --share 0.1 --bundle " + demo + "/bundle", "share   0.1 of the robots; always none; never none"},
		{"set --bundle " + demo + "/bundle", "share   0.1 of"},
		{"pin a b", "always a, b; never none"}, {"pin a --to old", "always b; never a"},
		{"pin b --to none", "always none; never a"}, {"back", "share   0 of"},
	} {
		code, stdout, stderr := leanServer(t, nil, append([]string{"rollout", "--manifest", file},
			strings.Fields(tt.args)...)...)
		if code != 0 || !strings.Contains(stdout, tt.says) || !strings.Contains(stdout, "server    unknown") {
			t.Errorf("rollout %s = %d, %s%s; want %q", tt.args, code, stdout, stderr, tt.says)
		}
	}
	next, _ := otherBundle(t, t.TempDir(), "next")
	leanServer(t, nil, "rollout", "--manifest", file, "set", "--share", "1")
	code, _, stderr := leanServer(t, nil, "rollout", "--manifest", file, "set", "--bundle", next)
	if code != 2 || !strings.Contains(stderr, "give --share, too") {
		t.Errorf("another bundle with the share 1 of the present one: %d, %s", code, stderr)
	}
	// a server of a version without roll-outs never reads the rollout block of the manifest
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"server": {"version": "v0"}, "sessions": {"open": 3}}`)
	}))
	defer old.Close()
	port := old.URL[strings.LastIndex(old.URL, ":")+1:]
	_, stdout, _ := leanServer(t, nil, "rollout", "--manifest", file, "--health-port", port)
	rttest.Contains(t, stdout, "the server (v0) has not read the roll-out: restart it", "3 with the first model")
	loading := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"state": "loading the policy"}`)
	}))
	defer loading.Close()
	port = loading.URL[strings.LastIndex(loading.URL, ":")+1:]
	_, stdout, _ = leanServer(t, nil, "rollout", "--manifest", file, "--health-port", port)
	rttest.Contains(t, stdout, "why     the server is not ready: loading the policy")
}

// The server refuses a bundle that does not reproduce its golden set; the page, the rollout command and a counter
// show the refusal. lean-server check refuses the bundle before the roll-out.
func TestARolloutOfABrokenBundle(t *testing.T) {
	broken := brokenBundle(t, "golden/b1_mode0.safetensors", func(data []byte, _ map[string]any) []byte {
		return falsified(t, data, "out/chunk_robot")
	})
	file := writeManifest(t, demoBundle(t)+"# the next model\nrollout: {model: \""+filepath.Dir(broken)+
		"/bundle\", share: 0.5}\n")
	if code, _, stderr := leanServer(t, nil, "check", "--manifest", file); code != 3 ||
		!strings.Contains(stderr, "golden") {
		t.Errorf("check = %d, %s", code, stderr)
	}
	s := start(t, "--manifest", file)
	s.awaitReady()
	got := s.awaitRollout(file, "refused", func(r *server.LiveRollout) bool { return r.State == "failed" })
	if !strings.Contains(got.Why, "golden") {
		t.Errorf("why: %s", got.Why)
	}
	if shown := s.rollout(file); shown.Server.State != "failed" || s.get("/readyz") != 200 ||
		s.metrics()[`lean_server_rollout_refused_total{of="model"}`] != 1 {
		t.Errorf("shown %+v, ready %d", shown.Server, s.get("/readyz"))
	}
	s.end(syscall.SIGTERM)
}
