package edge

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"edgert/internal/logline"
	"edgert/rt"
)

// What went wrong is said in a line each, and saying it makes no garbage.
func TestReportSaysAndAllocatesNothing(t *testing.T) {
	var b strings.Builder
	e := &Edge{log: slog.New(logline.New(&b, slog.LevelInfo))}
	events := []rt.Event{
		{Code: rt.StateChanged, A: int64(Streaming), B: int64(Stalled)},
		{Code: rt.BusLost, A: 1 << 40},
		{Code: rt.Overrun, A: int64(21 * time.Millisecond), B: int64(time.Millisecond)},
		{Code: rt.TorqueOn},
		{Code: rt.Starved}, // counted, not told
	}
	for _, ev := range events {
		e.report(ev)
	}
	for _, want := range []string{"from=STREAMING to=STALLED", "silent_joints=1099511627776", "computed=21ms bus=1ms host_steal="} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("log lacks %q:\n%s", want, &b)
		}
	}
	if n := strings.Count(b.String(), "\n"); n != len(events)-1 {
		t.Errorf("%d lines, want %d:\n%s", n, len(events)-1, &b)
	}
	e.log = slog.New(logline.New(discard{}, slog.LevelInfo))
	if n := testing.AllocsPerRun(100, func() {
		for _, ev := range events {
			e.report(ev)
		}
	}); n != 0 {
		t.Errorf("report allocates %v times, want 0", n)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
