package stage

import (
	"runtime"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestWhenTheMachineIsCalm(t *testing.T) {
	if h := ReadHost(); h.at == 0 || h.Idle < StatTick {
		t.Errorf("ReadHost = %+v, want the time and how long the cores were idle", h)
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
