package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// The shipped manifest serves a bundle in its folder, and the server accepts every key that is in the manifest's
// comments.
func TestTheExampleManifestServes(t *testing.T) {
	stagetest.NeedsRuntime(t)
	text := rttest.ReadFile(t, "../../examples/server.yaml")
	path, bundle := copiedBundle(t)
	write := func(text string) { rttest.WriteFile(t, filepath.Dir(bundle), "server.yaml", text) }
	write(text)
	r, _ := checked(t, path)
	if len(r.Listen) != 1 || r.Listen[0] != "tcp/0.0.0.0:7447" || r.MaxSessions != 5 {
		t.Errorf("listens on %v for %d robots", r.Listen, r.MaxSessions)
	}
	head, body, _ := strings.Cut(text, "\nmodel:")
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
