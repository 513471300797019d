package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// calibrator is an edge-rt calibrate without a terminal, together with its operator.
type calibrator struct {
	*stagetest.Program
	keys io.WriteCloser
}

func startCalibrate(t *testing.T, args ...string) *calibrator {
	t.Helper()
	c := &calibrator{Program: stagetest.Command(t, binary, append([]string{"calibrate"}, args...)...)}
	c.keys = rttest.Must(c.StdinPipe())(t)
	c.Start()
	return c
}

// awaitRest waits until the hand has moved every joint through its whole range, so that no range changes any more.
// On a busy machine, a range may begin anew before that; the hand's next round then completes the range.
func (c *calibrator) awaitRest(t *testing.T, joints int) {
	t.Helper()
	const same = 5 // equal lines in a row that count as rest; calibrate writes one every half second
	enough := fmt.Sprintf("%d of %[1]d have moved enough", joints)
	rests := func() bool {
		lines := strings.Split(strings.TrimSpace(c.Log.String()), "\n")
		newest := lines[max(0, len(lines)-same):]
		last := newest[len(newest)-1]
		return len(newest) == same && strings.HasSuffix(last, enough) &&
			!slices.ContainsFunc(newest, func(line string) bool { return line != last })
	}
	// processes have real time
	for end := time.Now().Add(2 * time.Minute); !rests(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the ranges do not stay:\n%s", c.Log)
		}
	}
}

// A person sets up a new arm, here an arm in a simulated hand: the test kills calibrate in the middle, runs it again,
// and then moves one joint by the new calibration.
func TestCalibrateInAHand(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	for _, tt := range []struct {
		arm, seed string
		first     string // joint to move before the kill
		joints    int    // joints that the hand moves
	}{
		{"so101", "3", "shoulder_pan", 5}, // the horns of its servos may be mounted at any angle
		{"koch", "1", "shoulder_lift", 4},
	} {
		t.Run(tt.arm, func(t *testing.T) {
			t.Parallel()
			link, file := simBusProcess(t, tt.arm, "--hand", "--seed", tt.seed), filepath.Join(t.TempDir(), "c.json")
			flags := []string{"--bus", link, "--robot", tt.arm, "--calibration", file}
			c := startCalibrate(t, flags...)
			c.Await("middle of its range")
			fmt.Fprintln(c.keys)
			c.Await(fmt.Sprintf("2 of %d have moved enough", tt.joints))
			c.End(syscall.SIGKILL)

			c = startCalibrate(t, flags...)
			c.Await("A calibration was interrupted after the middle pose")
			c.CheckSays(tt.first)
			fmt.Fprintln(c.keys)
			for n := 3; n <= tt.joints; n++ { // one wait for each joint, because each takes the hand a while
				c.Await(fmt.Sprintf("%d of %d have moved enough", n, tt.joints))
			}
			c.awaitRest(t, tt.joints)
			fmt.Fprintln(c.keys)
			c.EndsWith(0)
			checkHandsRanges(t, file, tt.joints)
			if code, stdout, stderr := edgeRT(t, append([]string{"move", "elbow_flex", "10"}, flags...)...); code != 0 {
				t.Errorf("move: code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

// checkHandsRanges compares the calibration in a file with the stops of the joints, which docs/simulator.md lists.
func checkHandsRanges(t *testing.T, file string, joints int) {
	t.Helper()
	c := rttest.Must(servo.LoadCalibration(file))(t)
	stops := map[string]float64{"shoulder_pan": 220, "shoulder_lift": 195, "elbow_flex": 192, "wrist_flex": 190,
		"gripper": 105}
	for name, degrees := range stops {
		m := c[name]
		switch got := float64(m.RangeMax-m.RangeMin) * 360 / 4095; {
		case name == "shoulder_pan" && joints == 4: // a Koch's shoulder_pan has no stops
		case math.Abs(got-degrees) > 12:
			t.Errorf("%s: %+v is %.1f degrees, want about %v", name, m, got, degrees)
		}
	}
}
