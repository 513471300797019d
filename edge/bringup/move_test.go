package bringup

import (
	"strings"
	"testing"

	"edgert/rt/rttest"
	"edgert/servo"
	"edgert/servo/servosim"
	"edgert/servo/table"
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

// Goal: a move names the joints that it walks into their range before, which may not be the one
// that it is asked for.
func TestMoveNamesTheJointsThatItWalksIn(t *testing.T) {
	rttest.RealTime(t)
	r := named(t, "so101")
	_, cfg, out := simArm(t, r, servosim.Config{})
	c := servo.Calibration{}
	for _, m := range r.Motors {
		c[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMax: m.Model.MaxRaw()}
	}
	at := registers(t, cfg, r.Motors[5].ID, nil, table.PresentPosition)[0]
	c[r.Motors[5].Name] = servo.MotorCalibration{ID: int(r.Motors[5].ID), RangeMin: at + 40, RangeMax: at + 1000}
	if err := c.Save(cfg.File()); err != nil {
		t.Fatal(err)
	}
	if err := Move(t.Context(), MoveConfig{Config: cfg, Joint: "elbow_flex", To: 0, Speed: 0.5}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out.String(), "are walked in slowly: gripper.") {
		t.Errorf("it says\n%s", out)
	}
}
