package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"edgert/bench"
	"edgert/internal/exit"
)

// An edge that finds no motors, as on a host that is too busy, is started again
// a few times; one that fails otherwise is not.
func TestLivePlaysAgain(t *testing.T) {
	for _, tt := range []struct {
		name            string
		code, failures  int
		again           int64
		wantCode        exit.Code
		wantReached, in int
	}{
		{"twice no motors", 4, 2, 2, exit.Clean, 5, 3},
		{"never any", 4, 99, liveTries - 1, exit.Absent, 0, liveTries},
		{"a bad configuration", 3, 99, 0, exit.Config, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			// $1 and on are edge-rt's flags; the summary's name follows --json.
			script := fmt.Sprintf("#!/bin/sh\necho run >> %s/runs\n[ $(wc -l < %[1]s/runs) -gt %d ] || exit %d\n"+
				"while [ \"$1\" != --json ]; do shift; done\necho '{\"targets_reached\": 5}' > $2\n", dir, tt.failures, tt.code)
			if err := os.WriteFile(filepath.Join(dir, "edge-rt"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			server, err := bench.Start(exec.Command("sleep", "60"))
			if err != nil {
				t.Fatal(err)
			}
			defer server.Kill()
			cfg := config(t)
			var log bytes.Buffer
			cfg.Bin, cfg.Log = dir, &log
			var again atomic.Int64
			p, err := newLivePlayer(context.Background(), &cfg, filepath.Join(dir, "0"), &again)
			if err != nil {
				t.Fatal(err)
			}
			p.server = &liveServer{child: server}
			o, _, err := p.play(job{})
			runs, _ := os.ReadFile(filepath.Join(dir, "runs"))
			if exit.Of(err) != tt.wantCode || o.Both().Reached != tt.wantReached || strings.Count(string(runs), "run") != tt.in {
				t.Errorf("%d runs end in %d reached, %v, want %d, %d reached, code %d", strings.Count(string(runs), "run"), o.Both().Reached, err, tt.in, tt.wantReached, tt.wantCode)
			}
			if again.Load() != tt.again || strings.Count(log.String(), "played again") != int(tt.again) {
				t.Errorf("%d tries again, log %q, want %d", again.Load(), log.String(), tt.again)
			}
		})
	}
}

func TestReportSaysHowItWasPlayed(t *testing.T) {
	live := &Report{Again: 3}
	if got := live.how(); !strings.Contains(got, "real time") || !strings.Contains(got, "3 tries again") || strings.Contains(got, "ms") {
		t.Errorf("real time: %q", got)
	}
	virtual := &Report{Virtual: true, NetworkMs: 4, ComputeMs: 20}
	if got := virtual.how(); got != "virtual time, 4 ms of network each way, 20 ms for the policy" {
		t.Errorf("virtual: %q", got)
	}
}
