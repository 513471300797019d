//go:build !race

package recording

import (
	"io"
	"testing"
)

// Reporting an event makes no garbage. (The race detector keeps the log call's attributes from
// staying on the stack.)
func TestReportNoAlloc(t *testing.T) {
	r := reporter(io.Discard)
	if n := testing.AllocsPerRun(100, func() {
		for _, ev := range incidents {
			r.Report(ev)
		}
	}); n != 0 {
		t.Errorf("Report allocates %v times, want 0", n)
	}
}
