package manifest

import (
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := rttest.WriteFile(t, t.TempDir(), "server.yaml", text)
	return file
}

// Goal: every key of the manifest can be set on the command line. Its value is checked like one in the file, and the
// other keys do not change.
func TestOverrides(t *testing.T) {
	args := []string{"serve", "--model.device=cuda:1", "--max-sessions", "auto", "--listen", "tcp/0.0.0.0:1",
		"--clients", "a,b", "--debug.capture_dir", "kept", "--model.revision", "2", "--conditioning.sigma_d", "0.5",
		"--health-port", "1",
		"--", "--threads", "3"}
	rest, found, err := Overrides(args, func(flag string) bool { return flag == "health-port" })
	want := []string{"serve", "--listen", "tcp/0.0.0.0:1", "--health-port", "1", "--", "--threads", "3"}
	if err != nil || !slices.Equal(rest, want) {
		t.Fatalf("%q, %v; want %q", rest, err, want)
	}
	cfg := rttest.Must(Load(write(t, "model: {repo_or_path: here, id: own}\nmax_sessions: 3\nthreads: 2\n"),
		found...))(t)
	if cfg.Model.Device != "cuda:1" || cfg.MaxSessions != Auto || !slices.Equal(cfg.Clients, []string{"a", "b"}) ||
		cfg.Model.Revision != "2" || cfg.Conditioning.SigmaD != 0.5 || cfg.Model.ID != "own" || cfg.Threads != 2 ||
		!strings.HasSuffix(cfg.Model.RepoOrPath, "/here") || cfg.Conditioning.Mode != "auto" ||
		cfg.Debug.CaptureDir != "kept" {
		t.Errorf("%+v", cfg)
	}
	origins := map[string]string{"model.device": "--model.device", "model.id": "line 1",
		"max_sessions": "--max_sessions",
		"threads":      "line 3", "scheduler": "default", "clients": "--clients"}
	for _, s := range cfg.Settings() {
		if from, ok := origins[s.Key]; ok && s.From != from {
			t.Errorf("%s is from %q, want %q", s.Key, s.From, from)
		}
		delete(origins, s.Key)
	}
	if len(origins) > 0 {
		t.Errorf("not listed: %v", origins)
	}
}

func TestBadOverrides(t *testing.T) {
	file := write(t, "model: {repo_or_path: here}\n")
	for _, tt := range []struct{ args, want string }{
		{"--model.devise cuda", `--model.devise is "cuda": unknown key "model.devise", did you mean "model.device"?`},
		{"--threads many", `--threads is "many": threads must be a whole number, got the string "many"`},
		{"--threads 0", "--threads: threads must be 1..256"},
		{"--model.api_key " + strings.Repeat("s", 9000), `--model.api_key is "(hidden)": `},
		{"--threads {a:1}", `threads must be a whole number`},
		{"--pin_task 3", "pin_task must be true or false"},
		{"--model cuda", "model must be a mapping"},
		{"--model.device toaster", "--model.device: "},
		{"--model.inputs.state_names a,b", "--model.inputs.state_names: model.inputs.state_names is not read beside"},
		{"--model.inputs.fps 30", "--model.inputs.fps: model.inputs.fps is not read beside"},
		{"--fronts.openpi.prompt_key task", "--fronts.openpi.prompt_key: fronts.openpi has no listen"},
		{"--rollout.robots a", "--rollout.robots: rollout names no model"},
		{"--max_sessions=", "max_sessions must be"},
	} {
		rest, found, err := Overrides(strings.Fields(tt.args), func(string) bool { return false })
		if err != nil || tt.args == "--model cuda" {
			if len(rest) == 0 {
				t.Errorf("%s: %v", tt.args, err)
			}
			continue
		}
		rttest.Fails(t, rttest.Err(Load(file, found...)), tt.want)
	}
	if _, _, err := Overrides([]string{"--model.device"}, func(string) bool { return false }); err == nil {
		t.Error("an override without a value is accepted")
	}
}
