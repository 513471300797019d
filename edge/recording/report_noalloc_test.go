//go:build !race

package recording

import (
	"io"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Reporting an event makes no garbage. (The race detector keeps the log call's attributes from
// staying on the stack.)
func TestReportNoAlloc(t *testing.T) {
	r := reporter(io.Discard)
	rttest.NoAllocs(t, "Report allocates %v times, want 0", 100, func() {
		for _, ev := range incidents {
			r.Report(ev)
		}
	})
}
