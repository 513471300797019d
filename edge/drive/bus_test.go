package drive

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Goal: of two possible causes, the log of a slow simulated bus names the true one.
func TestSlowSimulatedBus(t *testing.T) {
	lossy := errors.New("motor 2 loses replies")
	for _, tt := range []struct {
		unfit error
		want  string
	}{
		{nil, "cycle_p99=12.35ms want=10ms"},
		{lossy, `why="motor 2 loses replies"`},
	} {
		var out strings.Builder
		slog.New(slog.NewTextHandler(&out, nil)).Warn("slow", slowness(12346*time.Microsecond, 10*time.Millisecond,
			tt.unfit)...)
		if !strings.HasSuffix(out.String(), " msg=slow "+tt.want+"\n") {
			t.Errorf("%v: %s", tt.unfit, out.String())
		}
	}
}
