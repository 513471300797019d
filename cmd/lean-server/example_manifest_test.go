package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/server/manifest"
)

// The shipped manifest serves a bundle beside it, and the server accepts every key that it shows as
// a comment.
func TestTheExampleManifestServes(t *testing.T) {
	needRuntime(t)
	text, err := os.ReadFile("../../examples/server.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "bundle"), os.DirFS(filepath.Join(demo, "bundle"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "server.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(string(text))
	code, stdout, stderr := leanServer(t, nil, "check", "--manifest", path, "--json", "-")
	var r server.Report
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil {
		t.Fatalf("check = %d, %v, %s%s", code, err, stdout, stderr)
	}
	if len(r.Listen) != 1 || r.Listen[0] != "tcp/0.0.0.0:7447" || r.MaxSessions != 5 {
		t.Errorf("listens on %v for %d robots", r.Listen, r.MaxSessions)
	}
	head, body, _ := strings.Cut(string(text), "\nmodel:")
	if !strings.Contains(head, "lean-server --manifest server.yaml") {
		t.Error("the head does not show the command")
	}
	shown := regexp.MustCompile(`(?m)^( *)# ( *[a-z_]+:( .*)?)$`)
	if n := len(shown.FindAllString(body, -1)); n < 10 {
		t.Fatalf("%d keys are shown as comments, want all of them", n)
	}
	write(head + "\nmodel:" + shown.ReplaceAllString(body, "$1$2"))
	cfg, err := manifest.Load(path)
	if err != nil || len(cfg.Clients) != 2 || cfg.Debug.CaptureDir == "" || cfg.Zenoh.TLS.ListenCertificate == "" {
		t.Errorf("with all that it shows: %+v, %v", cfg, err)
	}
}
