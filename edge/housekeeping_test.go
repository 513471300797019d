package edge

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// incidents are logged events, and at the end an event that is only counted.
var incidents = []event.Event{
	{Code: event.StateChanged, A: int64(stateStreaming), B: int64(stateStalled)},
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
	{Code: event.None},
}

// Goal: each incident has one log line.
func TestReport(t *testing.T) {
	var b strings.Builder
	e := &Edge{log: slog.New(terminal.NewLines(&b, slog.LevelInfo)), resume: "edge-rt ctl resume",
		robot: robot.Robot{Motors: []robot.Motor{{Name: "pan"}, {Name: "lift"}}}}
	e.joints = jointLists(e.robot)
	for _, ev := range incidents {
		e.report(ev)
	}
	for _, want := range []string{"from=STREAMING to=STALLED", "silent_joints=1099511627776", "took=21ms host_took=1ms",
		"joint=lift joint_bits=2 hottest_celsius=66 lowest_volts=6.3", "arms it at its present pose",
		"next=\"edge-rt ctl resume\"", "its joint gets no goal\" joint=pan", "motor complains\" joint=\"pan, lift\"",
		"motor complains\" joint=pan joint_bits=1 complaint=supply volts=12.4",
		"nothing moves\" joint=\"pan, lift\" joint_bits=3 complaint=heat celsius=71",
		"ctl resume\" joint=\"pan, lift\""} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("log lacks %q:\n%s", want, &b)
		}
	}
	if n := strings.Count(b.String(), "\n"); n != len(incidents)-1 {
		t.Errorf("%d lines, want %d:\n%s", n, len(incidents)-1, &b)
	}
}

// Goal: a tick that hangs is reported while it hangs; the time for which the process itself was
// stopped is left out.
func TestAHungTickIsRecorded(t *testing.T) {
	clock := rttest.NewClock(1)
	e := &Edge{cfg: Config{FPS: 60}, clock: clock}
	var w tickWatch
	now := rt.Instant(time.Second)
	for _, tt := range []struct {
		looks int
		every time.Duration
		told  time.Duration
	}{{1, 0, 0}, {1, 10 * time.Second, 0}, {20, drive.Housekeeping, 0}, {5, drive.Housekeeping, tickMissing},
		{30, drive.Housekeeping, 2 * tickMissing}} {
		for range tt.looks {
			now = now.Add(tt.every)
			w.look(e, now, 1)
		}
		if w.told < tt.told || w.told >= tt.told+tickMissing {
			t.Errorf("after %d looks %v apart: told of %v, want %v", tt.looks, tt.every, w.told, tt.told)
		}
	}
}
