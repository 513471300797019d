package bringup

import (
	"testing"

	"edgert/rt/rttest"
	"edgert/servo/servosim"
)

// Goal: a long way is given its time, however fast it was asked for.
func TestMoveAtFullSpeed(t *testing.T) {
	rttest.RealTime(t) // the motors keep their own time, and a move gives up by the clock
	_, cfg, out := simArm(t, named(t, "so101"), servosim.Config{})
	whole(t, cfg)
	for _, to := range []float64{170, -170} {
		if err := Move(t.Context(), MoveConfig{Config: cfg, Joint: "elbow_flex", To: to, Speed: 1}); err != nil {
			t.Fatalf("to %v: %v\n%s", to, err, out)
		}
	}
}
