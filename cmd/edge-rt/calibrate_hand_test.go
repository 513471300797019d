package main

import (
	"fmt"
	"io"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
)

// calibrator is an edge-rt calibrate without a terminal, together with its operator.
type calibrator struct {
	cmd  *exec.Cmd
	keys io.WriteCloser
	out  *rttest.Output
}

func startCalibrate(t *testing.T, args ...string) *calibrator {
	t.Helper()
	c := &calibrator{cmd: exec.Command(binary, append([]string{"calibrate"}, args...)...), out: new(rttest.Output)}
	keys, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.keys = keys
	c.cmd.Stdout = c.out
	c.cmd.Stderr = c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			c.cmd.Process.Kill()
			c.cmd.Wait()
		}
	})
	return c
}

func (c *calibrator) await(t *testing.T, text string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("it said:\n%s", c.out)
		}
	}()
	rttest.Eventually(t, text, func() bool { return strings.Contains(c.out.String(), text) })
}

// awaitRest waits until no range changes any more: the hand has moved every joint through its whole
// range. On a busy machine a range may begin anew meanwhile; the hand's next round fills it again.
func (c *calibrator) awaitRest(t *testing.T, joints int) {
	t.Helper()
	const same = 5 // lines, one every half second
	enough := fmt.Sprintf("%d of %[1]d have moved enough", joints)
	rests := func() bool {
		lines := strings.Split(strings.TrimSpace(c.out.String()), "\n")
		newest := lines[max(0, len(lines)-same):]
		last := newest[len(newest)-1]
		return len(newest) == same && strings.HasSuffix(last, enough) &&
			!slices.ContainsFunc(newest, func(line string) bool { return line != last })
	}
	// processes have real time
	for end := time.Now().Add(2 * time.Minute); !rests(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the ranges do not stay:\n%s", c.out)
		}
	}
}

// A person sets up a new arm, here an arm in a simulated hand: calibrate is killed in the middle
// and run again, and afterwards one joint is moved by the new calibration.
func TestCalibrateInAHand(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	for _, tt := range []struct {
		arm, seed string
		first     string // joint to move before the kill
		joints    int    // joints that the hand moves
	}{
		{"so101", "3", "shoulder_pan", 5}, // its horns are mounted at any angle
		{"koch", "1", "shoulder_lift", 4},
	} {
		t.Run(tt.arm, func(t *testing.T) {
			t.Parallel()
			link, file := simBusProcess(t, tt.arm, "--hand", "--seed", tt.seed), filepath.Join(t.TempDir(), "c.json")
			flags := []string{"--bus", link, "--robot", tt.arm, "--calibration", file}
			c := startCalibrate(t, flags...)
			c.await(t, "middle of its range")
			fmt.Fprintln(c.keys)
			c.await(t, fmt.Sprintf("2 of %d have moved enough", tt.joints))
			c.cmd.Process.Kill()
			c.cmd.Wait()

			c = startCalibrate(t, flags...)
			c.await(t, "A calibration was interrupted after the middle pose")
			if !strings.Contains(c.out.String(), tt.first) {
				t.Errorf("it does not say what was moved:\n%s", c.out)
			}
			fmt.Fprintln(c.keys)
			for n := 3; n <= tt.joints; n++ { // each joint takes a while
				c.await(t, fmt.Sprintf("%d of %d have moved enough", n, tt.joints))
			}
			c.awaitRest(t, tt.joints)
			fmt.Fprintln(c.keys)
			if err := c.cmd.Wait(); err != nil {
				t.Fatalf("calibrate: %v\n%s", err, c.out)
			}
			checkHandsRanges(t, file, tt.joints)
			if code, stdout, stderr := edgeRT(t, append([]string{"move", "elbow_flex", "10"}, flags...)...); code != 0 {
				t.Errorf("move: code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

// checkHandsRanges compares a calibration with the joints' stops, docs/simulator.md.
func checkHandsRanges(t *testing.T, file string, joints int) {
	t.Helper()
	c, err := servo.LoadCalibration(file)
	if err != nil {
		t.Fatal(err)
	}
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
