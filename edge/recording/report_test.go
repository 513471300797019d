package recording

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// incidents are events that are logged, except for the last one.
var incidents = []event.Event{
	{Code: event.StateChanged, A: int64(2), B: int64(4)},
	{Code: event.BusLost, A: 1 << 40},
	{Code: event.TickOverrun, A: int64(21 * time.Millisecond), B: int64(time.Millisecond)},
	{Code: event.TorqueOn},
	{Code: event.JointWarned, A: 2, B: 66<<16 | 63},
	{Code: event.BusBack, A: int64(hotplug.Unplugged)},
	{Code: event.BusBack, A: int64(hotplug.Restarted), B: 0b111},
	{Code: event.JointFrozen, A: 1},
	{Code: event.JointHeld, A: 3},
	{Code: event.JointHeld, A: 1, B: event.Complaint(event.ComplainsOfSupply, 124)},
	{Code: event.ArmHeld, A: 3, B: event.Complaint(event.ComplainsOfHeat, 71)},
	{Code: event.JointStalled, A: 2},
	{Code: event.JointJumped, A: 2, B: event.Way(-40.26, 48)},
	{Code: event.None},
}

func reporter(out io.Writer) *Reporter {
	r := &Reporter{
		Log:    slog.New(terminal.NewLines(out, slog.LevelInfo)),
		Next:   "the next chunk arms it",
		Resume: "edge-rt ctl resume",
	}
	r.Names(robot.Robot{Motors: []robot.Motor{{Name: "pan"}, {Name: "lift"}}})
	return r
}

// Goal: each incident has one log line.
func TestReport(t *testing.T) {
	var b strings.Builder
	r := reporter(&b)
	for _, ev := range incidents {
		r.Report(ev)
	}
	rttest.Contains(t, b.String(),
		"from=STREAMING to=STALLED", "silent_joints=1099511627776", "took=21ms host_took=1ms",
		"joint=lift joint_bits=2 hottest_celsius=66 lowest_volts=6.3", "next=\"the next chunk arms it\"",
		"next=\"edge-rt ctl resume\"", "its joint gets no goal\" joint=pan", "motor complains\" joint=\"pan, lift\"",
		"motor complains\" joint=pan joint_bits=1 complaint=supply volts=12.4",
		"nothing moves\" joint=\"pan, lift\" joint_bits=3 complaint=heat celsius=71",
		"ctl resume\" joint=\"pan, lift\"", "joint=lift joint_bits=2 from=-40.3 to=48")
	if n := strings.Count(b.String(), "\n"); n != len(incidents)-1 {
		t.Errorf("%d lines, want %d:\n%s", n, len(incidents)-1, &b)
	}
}
