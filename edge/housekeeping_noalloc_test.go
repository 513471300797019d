//go:build !race

package edge

import (
	"io"
	"log/slog"
	"testing"

	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Reporting an event makes no garbage. (The race detector keeps the log call's attributes from
// staying on the stack.)
func TestReportNoAlloc(t *testing.T) {
	e := &Edge{log: slog.New(terminal.NewLines(io.Discard, slog.LevelInfo)),
		robot: robot.Robot{Motors: []robot.Motor{{Name: "pan"}, {Name: "lift"}}}}
	e.joints = jointLists(e.robot)
	if n := testing.AllocsPerRun(100, func() {
		for _, ev := range incidents {
			e.report(ev)
		}
	}); n != 0 {
		t.Errorf("report allocates %v times, want 0", n)
	}
}
