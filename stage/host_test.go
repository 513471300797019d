package stage

import (
	"runtime"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestWhenTheMachineIsCalm(t *testing.T) {
	stolen, idle := parseHost([]byte("cpu  100 5 30 700 20 0 1 42 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"))
	if stolen != 420*time.Millisecond || idle != 7200*time.Millisecond {
		t.Errorf("parseHost = %v stolen, %v idle, want 420ms, 7.2s", stolen, idle)
	}
	for _, text := range []string{"", "cpu", "intr 1 2 3 4 5 6 7 8 9", "cpu 1 2 3"} {
		if stolen, idle := parseHost([]byte(text)); stolen != 0 || idle != 0 {
			t.Errorf("parseHost(%q) = %v, %v, want nothing", text, stolen, idle)
		}
	}
	cores := time.Duration(runtime.NumCPU())
	from := Host{at: 1, Stolen: time.Second, Idle: time.Second}
	for _, tt := range []struct {
		name         string
		stolen, idle time.Duration
		want         bool
	}{
		{"idle", 0, cores * time.Second, true},
		{"stolen from", StatTick, cores * time.Second, false},
		{"busy", 0, cores * 100 * time.Millisecond, false},
	} {
		to := Host{at: from.at.Add(time.Second), Stolen: from.Stolen + tt.stolen, Idle: from.Idle + tt.idle}
		rttest.Want(t, to.CalmSince(from), tt.want, "%s: CalmSince", tt.name)
	}
	if (Host{}).CalmSince(Host{}) {
		t.Error("a machine that says nothing counts as calm")
	}
}
