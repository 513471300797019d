package proc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tools/test.sh gives a package that failed another try, for a host that took the
// machine's cores away. What no host can cause is not tried away.
func TestOnlyWhatTheHostCanCauseIsRunAgain(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		runs       int
	}{
		{"passed", "ok  \tedgert/rt\t1.0s", 1},
		{"too late", "--- FAIL: TestX (1.0s)\n    x_test.go:3: late\nFAIL\nFAIL\tedgert/rt\t1.0s", 4},
		{"a race", "WARNING: DATA RACE\nRead at 0x00 by goroutine 8:\nFAIL\tedgert/rt\t1.0s", 1},
		{"a panic", "panic: runtime error: index out of range [1] with length 1\n\nFAIL\tedgert/rt\t1.0s", 1},
		{"a dead runtime", "fatal error: all goroutines are asleep - deadlock!\nFAIL\tedgert/rt\t1.0s", 1},
		{"it does not build", "FAIL\tedgert/rt [build failed]", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			ok := strings.HasPrefix(tt.says, "ok")
			// A go command that only says so, and counts.
			script := "#!/bin/sh\n[ \"$1\" = test ] || exit 0\necho >>" + dir + "/runs\ncat <<'END'\n" + tt.says + "\nEND\n"
			if !ok {
				script += "exit 1\n"
			}
			if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("../test.sh", "./...")
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Skip(err)
			}
			runs, err := os.ReadFile(filepath.Join(dir, "runs"))
			if err != nil || len(runs) != tt.runs || cmd.ProcessState.Success() != ok || !strings.Contains(string(out), "edgert/rt") {
				t.Errorf("%d runs, %v; want %d, and success %v\n%s", len(runs), cmd.ProcessState, tt.runs, ok, out)
			}
		})
	}
}
