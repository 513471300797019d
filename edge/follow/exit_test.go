package follow

import (
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
)

func TestCheckExit(t *testing.T) {
	for mode := range ExitModes {
		if err := CheckExit(mode); err != nil {
			t.Error(err)
		}
	}
	if err := CheckExit("stay"); exit.Of(err) != exit.Usage {
		t.Errorf("--on-exit stay: %v", err)
	}
}
