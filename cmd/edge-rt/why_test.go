package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// When edge-rt why cannot answer, it names the input that it needs, with the exit code of the one
// table.
func TestWhyRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stranger := filepath.Join(dir, "x.mcap")
	if err := os.WriteFile(stranger, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--record-dir", dir}, 4, "there are no records in " + dir},
		{[]string{"--record-dir", dir, "--id", "black"}, 4, "robot black"},
		{[]string{"--record-dir", dir, "--at", "noon"}, 4, "there are no records"},
		{[]string{stranger}, 3, "want a record that edge-rt has written"},
		{[]string{stranger, "--at", "noon"}, 2, "want a time of day such as 14:03:20"},
		{[]string{stranger, "--at", "14:03", "--last"}, 2, "want one of them"},
		{[]string{filepath.Join(dir, "away.mcap")}, 2, "no such file"},
		{[]string{dir}, 3, "holds no records of edge-rt"},
		{[]string{"--bus", "sim"}, 2, "--bus"},
	} {
		code, stdout, stderr := edgeRT(t, append([]string{"why"}, tt.args...)...)
		if code != tt.code || !strings.Contains(stderr, tt.says) || stdout != "" {
			t.Errorf("why %v: code %d, want %d and %q\n%s%s", tt.args, code, tt.code, tt.says, stdout, stderr)
		}
	}
}
