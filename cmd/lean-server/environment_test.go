package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// A check by hand sees the variables that the unit gives the service.
func TestTheEnvironmentBesideTheManifest(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(demo, "server.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "bundle"), os.DirFS(filepath.Join(demo, "bundle"))); err != nil {
		t.Fatal(err)
	}
	manifest, environment := filepath.Join(dir, "server.yaml"), filepath.Join(dir, "environment")
	if err := os.WriteFile(manifest, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file string
		env, args  []string
		says       string
	}{
		{"the library", "# of the GPU\nEDGERT_ORT=/opt/none/lib\n", nil, []string{"--manifest", manifest},
			"/opt/none/lib"},
		{"quoted", "EDGERT_ORT=\"/opt/a b/lib\"\n", nil, []string{"--manifest=" + manifest}, "/opt/a b/lib"},
		{"a flag", "LEAN_SERVER_ORT=/opt/flag/lib", nil, []string{"--manifest", manifest}, "/opt/flag/lib"},
		{"what is set wins", "EDGERT_ORT=/opt/none/lib\n", []string{"EDGERT_ORT=/opt/mine"},
			[]string{"--manifest", manifest}, "/opt/mine"},
		{"the variable's manifest", "EDGERT_ORT=/opt/none/lib\n", []string{"LEAN_SERVER_MANIFEST=" + manifest}, nil,
			"/opt/none/lib"},
		{"no variable", "EDGERT_ORT\n", nil, []string{"--manifest", manifest},
			"environment:1: got \"EDGERT_ORT\", want NAME=VALUE"},
		{"an open quote", "\nX=\"a\n", nil, []string{"--manifest", manifest}, "environment:2: X: the quote"},
	} {
		if err := os.WriteFile(environment, []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := leanServer(t, tt.env, append([]string{"check"}, tt.args...)...)
		if code != int(exit.Config) || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: code %d, want %d and %q\n%s%s", tt.name, code, exit.Config, tt.says, stdout, stderr)
		}
	}
}

// A folder called environment, or a missing file, does not keep the manifest from being served.
func TestAFolderCalledEnvironmentIsNoFileOfVariables(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, environmentFile), 0o755); err != nil {
		t.Fatal(err)
	}
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
