package edge

import (
	"errors"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// Goal: an Open that fails has not touched the arm. Where the arm may be held, no exit code makes
// the unit take its torque.
func TestNotOpenedError(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		onExit     string
		end, aside error
		code       exit.Code
	}{
		{"hold", nil, nil, exit.Clean},
		{"hold", broken, nil, exit.Absent},
		{"hold", nil, broken, exit.Clean},
		{"hold", exit.With(exit.Config, broken), broken, exit.Config},
		{"hold", exit.With(exit.Fault, broken), nil, exit.Fault},
		{"park", broken, nil, exit.Failure},
		{"park", nil, broken, exit.Failure},
	} {
		err := NotOpenedError(tt.onExit, tt.end, tt.aside)
		if exit.Of(err) != tt.code || (err == nil) != (tt.end == nil && tt.aside == nil) {
			t.Errorf("NotOpenedError(%s, %v, %v) = %v (code %d), want code %d and all that is wrong", tt.onExit, tt.end,
				tt.aside, err, exit.Of(err), tt.code)
		}
	}
}
