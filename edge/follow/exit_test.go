package follow

import (
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestCheckExit(t *testing.T) {
	for mode := range ExitModes {
		if err := CheckExit(mode); err != nil {
			t.Error(err)
		}
	}
	rttest.Ends(t, CheckExit("stay"), exit.Usage) // --on-exit stay
}
