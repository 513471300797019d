package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// `lean-server check` by a person uses the variables that the unit sets for the service.
func TestTheEnvironmentBesideTheManifest(t *testing.T) {
	manifest, bundle := copiedBundle(t)
	for _, tt := range []struct {
		file       string
		env        []string
		args, says string
	}{
		{"# of the GPU\nEDGERT_ORT=/opt/none/lib\n", nil, "--manifest " + manifest, "/opt/none/lib"},
		{"EDGERT_ORT=\"/opt/a b/lib\"\n", nil, "--manifest=" + manifest, "/opt/a b/lib"},
		{"LEAN_SERVER_ORT=/opt/flag/lib", nil, "--manifest " + manifest, "/opt/flag/lib"},
		{"EDGERT_ORT=/opt/none/lib\n", []string{"EDGERT_ORT=/opt/mine"}, "--manifest " + manifest, "/opt/mine"},
		{"EDGERT_ORT=/opt/none/lib\n", []string{"LEAN_SERVER_MANIFEST=" + manifest}, "", "/opt/none/lib"},
		{"export HF_TOKEN=hf_secret\n", nil, "--manifest " + manifest, "environment:1: want NAME=VALUE"},
		{"\nX=\"a\n", nil, "--manifest " + manifest, "environment:2: X: the quote"},
	} {
		rttest.WriteFile(t, filepath.Dir(bundle), "environment", tt.file)
		code, stdout, stderr := leanServer(t, tt.env, append([]string{"check"}, strings.Fields(tt.args)...)...)
		if code != int(exit.Config) || !strings.Contains(stderr, tt.says) {
			t.Errorf("%q: code %d, want %d and %q\n%s%s", tt.file, code, exit.Config, tt.says, stdout, stderr)
		}
	}
}

// The server serves the manifest also if environment is a folder or does not exist.
func TestAFolderCalledEnvironmentIsNoFileOfVariables(t *testing.T) {
	dir := t.TempDir()
	rttest.Do(t, os.Mkdir(filepath.Join(dir, environmentFile), 0o755))
	var said strings.Builder
	if err := loadEnvironment([]string{"--manifest", filepath.Join(dir, "server.yaml")}, &said); err != nil ||
		said.Len() > 0 {
		t.Errorf("loadEnvironment: %v, it says %q", err, said.String())
	}
}

func FuzzVariable(f *testing.F) {
	for _, line := range []string{"A=b", "A=\"b c\"", "; x", "A='", "=", "A", " A = b "} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		name, value, err := variable(line)
		if err != nil && (name != "" || value != "") || strings.ContainsAny(name, " \t=\"'\n") &&
			!strings.Contains(name, "\n") {
			t.Errorf("variable(%q) = %q, %q, %v", line, name, value, err)
		}
	})
}
