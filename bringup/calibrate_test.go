package bringup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// calibration is a running Calibrate, with the keyboard of its operator.
type calibration struct {
	cfg  Config
	out  *screen
	keys *io.PipeWriter
	stop context.CancelFunc
	done chan error
}

func startCalibrate(t *testing.T, cfg Config) *calibration {
	t.Helper()
	in, keys := io.Pipe()
	out := new(screen)
	cfg.In, cfg.Out = in, out
	ctx, stop := context.WithCancel(t.Context())
	k := &calibration{cfg: cfg, out: out, keys: keys, stop: stop, done: make(chan error, 1)}
	go func() { k.done <- Calibrate(ctx, cfg) }()
	t.Cleanup(func() { stop(); keys.Close() })
	return k
}

func (k *calibration) enter() { io.WriteString(k.keys, "\n") }

func (k *calibration) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-k.done:
		return err
	case <-time.After(rttest.Patience):
		t.Fatalf("calibrate does not end:\n%s", k.out)
		return nil
	}
}

// led are joints in hands that wait until each position was read.
type led struct {
	hands
	reads [6]atomic.Int32
}

func (h *led) Present(now rt.Instant, joint int) int {
	h.reads[joint].Add(1)
	return h.hands.Present(now, joint)
}

// lead moves the joints in steps that a hand can do, each of which is read several times.
func (k *calibration) lead(t *testing.T, h *led, points ...int) {
	t.Helper()
	const step, looks = 300, 8
	at := int(h.raw[0].Load())
	for _, to := range points {
		for at != to {
			at += min(max(to-at, -step), step)
			h.all(at)
			var before [6]int32
			for j := range before {
				before[j] = h.reads[j].Load()
			}
			rttest.Eventually(t, "readings of every joint", func() bool {
				for j := range before {
					if fixed := k.cfg.Robot.Motors[j].FullTurn; !fixed && h.reads[j].Load() < before[j]+looks {
						return false
					}
				}
				return true
			})
		}
	}
}

// registers reads a motor's registers as another program does; write sets some of them first.
func registers(t *testing.T, cfg Config, id uint8, write map[table.Register]int,
	read ...table.Register) (values []int) {
	t.Helper()
	port, err := servo.OpenPort(cfg.Bus, cfg.Robot.Baud)
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	b := servo.NewBus(port, cfg.Robot.Baud, cfg.Robot.Protocol(), rt.KernelClock())
	model := cfg.Robot.Motors[0].Model
	for r, v := range write {
		if _, err := b.WriteRegister(id, model.Row(r), v); err != nil && !errors.Is(err, servo.ErrNoReply) {
			t.Fatal(err)
		}
	}
	for _, r := range read {
		v, _, err := b.ReadRegister(id, model.Row(r))
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, v)
	}
	return values
}

// A joint whose reading crosses 4095 to 0 gets an offset with which its range is clear of the seam.
func TestCalibrateFollowsTheSeam(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"so101", "koch"} {
		r, h := named(t, name), new(led)
		h.all(3000)
		_, cfg, _ := simArm(t, r, servosim.Config{Plant: h})
		k := startCalibrate(t, cfg)
		k.out.await(t, "middle of its range")
		h.all(3600) // the arm moves while a person puts it down
		k.enter()
		k.out.await(t, "move every joint")
		k.lead(t, h, 3100, 6100, 3600)
		k.enter()
		if err := k.wait(t); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, k.out)
		}
		c, err := servo.LoadCalibration(cfg.File())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range r.Motors {
			e := c[m.Name]
			limits := registers(t, cfg, m.ID, nil, table.HomingOffset, table.MinPositionLimit, table.MaxPositionLimit)
			if want := []int{e.HomingOffset, e.RangeMin, e.RangeMax}; fmt.Sprint(limits) != fmt.Sprint(want) {
				t.Errorf("%s %s: the motor has %v, the file %v", name, m.Name, limits, want)
			}
			if m.FullTurn {
				continue
			}
			bare := modulo(e.RangeMin - e.HomingOffset*m.Model.Offset)
			if e.RangeMax-e.RangeMin != 3000 || e.RangeMin < seamMargin || e.RangeMax > 4095-seamMargin ||
				bare != 3100 {
				t.Errorf("%s %s: %+v, whose low end is %d on the bare encoder, want 3000 counts from 3100 on, clear "+
					"of the seam", name, m.Name, e, bare)
			}
		}
		if !strings.Contains(k.out.String(), "elbow_flex: 1547 to 4547 is over or near the seam of its encoder") {
			t.Errorf("%s: it does not name the joint over the seam:\n%s", name, k.out)
		}
		if _, err := os.Stat(cfg.File() + progressSuffix); err == nil {
			t.Errorf("%s: the file of the progress is left", name)
		}
	}
}

// A reading beyond one turn yields no offset that is wrong by a turn after a power-up.
func TestCalibrateModuloOneTurn(t *testing.T) {
	t.Parallel()
	r, h := named(t, "koch"), new(led)
	h.all(4000)
	_, cfg, _ := simArm(t, r, servosim.Config{Plant: h})
	h.all(4196)
	k := startCalibrate(t, cfg)
	k.out.await(t, "middle of its range")
	k.enter()
	k.out.await(t, "move every joint")
	k.lead(t, h, 3000, 5500, 4196)
	k.enter()
	if err := k.wait(t); err != nil {
		t.Fatalf("%v\n%s", err, k.out)
	}
	c, err := servo.LoadCalibration(cfg.File())
	if err != nil {
		t.Fatal(err)
	}
	if e := c["elbow_flex"]; e.HomingOffset != 2047-100 || e.RangeMin != 2047-1196 || e.RangeMax != 2047+1304 {
		t.Errorf("%+v, want the offset of a motor that reads 100 after its next power-up, and the range around it", e)
	}
}

// Other software has left the motors silent after writes, and one of them counting turns.
func TestCalibrateOfMotorsThatOtherSoftwareHasLeft(t *testing.T) {
	t.Parallel()
	for name, level := range map[string]int{"so101": 0, "koch": 1} {
		r, h := named(t, name), new(led)
		h.all(1500)
		_, cfg, _ := simArm(t, r, servosim.Config{Plant: h})
		registers(t, cfg, 3, map[table.Register]int{table.ResponseStatusLevel: level})
		if name == "so101" {
			phase := registers(t, cfg, 5, nil, table.Phase)[0]
			registers(t, cfg, 5, map[table.Register]int{table.Phase: phase | table.PhaseMultiTurn})
		}
		k := startCalibrate(t, cfg)
		k.out.await(t, "middle of its range")
		k.enter()
		k.out.await(t, "move every joint")
		k.lead(t, h, 1000, 2200, 1500)
		k.enter()
		if err := k.wait(t); err != nil || !strings.Contains(k.out.String(), "answer now: elbow_flex") {
			t.Errorf("%s: %v\n%s", name, err, k.out)
		}
		if name == "so101" {
			if phase := registers(t, cfg, 5, nil, table.Phase)[0]; phase&table.PhaseMultiTurn != 0 {
				t.Errorf("Phase is %d, want it without its multi-turn bit", phase)
			}
		}
	}
}

// One count of noise is no motion, and the error names the motors that were written.
func TestCalibrateRefusesNoise(t *testing.T) {
	t.Parallel()
	h := new(led)
	h.all(1500)
	_, cfg, _ := simArm(t, named(t, "so101"), servosim.Config{Plant: h, Noise: 1})
	k := startCalibrate(t, cfg)
	k.out.await(t, "middle of its range")
	k.enter()
	k.out.await(t, "move every joint")
	k.lead(t, h, 1500, 1500)
	k.enter()
	err := k.wait(t)
	if exit.Of(err) != exit.Config {
		t.Fatalf("%v, want exit code %d\n%s", err, exit.Config, k.out)
	}
	for _, want := range []string{"shoulder_pan: moved by 0.", "gripper: moved by 0.", "want at least 45",
		"run the same command again", progressSuffix} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := os.Stat(cfg.File()); err == nil {
		t.Error("a file was written")
	}
}

// An operator at a terminal may continue to move the joints, and may accept a joint that was at its
// end at the middle pose.
func TestCalibrateAsksAgainAtATerminal(t *testing.T) {
	t.Parallel()
	h := new(led)
	h.all(1500)
	_, cfg, _ := simArm(t, named(t, "so101"), servosim.Config{Plant: h})
	cfg.Keyboard = true
	k := startCalibrate(t, cfg)
	k.out.await(t, "middle of its range")
	k.enter()
	k.out.await(t, "move every joint")
	k.enter()
	k.out.await(t, "Not yet: shoulder_pan: moved by 0.0 degrees")
	k.lead(t, h, 2500)
	k.enter()
	k.out.await(t, "press Enter again to take it")
	k.enter()
	if err := k.wait(t); err != nil {
		t.Errorf("%v\n%s", err, k.out)
	}
}

// A calibration that was interrupted, or whose adapter was unplugged, continues at its last step.
func TestCalibrateGoesOn(t *testing.T) {
	t.Parallel()
	r, h := named(t, "so101"), new(led)
	h.all(1500)
	_, cfg, _ := simArm(t, r, servosim.Config{Plant: h})
	k := startCalibrate(t, cfg)
	k.out.await(t, "middle of its range")
	k.enter()
	k.out.await(t, "move every joint")
	k.lead(t, h, 1000)
	k.stop()
	if err := k.wait(t); exit.Of(err) != exit.Failure || !strings.Contains(err.Error(), "goes on from here") {
		t.Fatalf("interrupted: %v", err)
	}
	again := startCalibrate(t, cfg)
	again.out.await(t, "was interrupted after the middle pose")
	again.enter()
	again.out.await(t, "move every joint")
	again.lead(t, h, 2200, 1500)
	again.enter()
	if err := again.wait(t); err != nil {
		t.Fatalf("%v\n%s", err, again.out)
	}
	c, err := servo.LoadCalibration(cfg.File())
	want := servo.MotorCalibration{ID: 3, HomingOffset: 1500 - 2047, RangeMin: 1000 + 547, RangeMax: 2200 + 547}
	if err != nil || c["elbow_flex"] != want {
		t.Errorf("%+v (%v), want %+v: both halves of the range", c["elbow_flex"], err, want)
	}
}

// Unplugging the adapter ends the recording, and the recorded ranges stay.
func TestCalibrateUnplugged(t *testing.T) {
	t.Parallel()
	h := new(led)
	h.all(1500)
	bus, cfg, _ := simArm(t, named(t, "so101"), servosim.Config{Plant: h})
	k := startCalibrate(t, cfg)
	k.out.await(t, "middle of its range")
	k.enter()
	k.out.await(t, "move every joint")
	k.lead(t, h, 1000)
	bus.Close()
	err := k.wait(t)
	if exit.Of(err) != exit.Absent || !strings.Contains(err.Error(), "has gone") ||
		!strings.Contains(err.Error(), "goes on from here") {
		t.Errorf("unplugged: %v", err)
	}
	p, err := loadProgress(cfg.File() + progressSuffix)
	if j := p.Joints["elbow_flex"]; err != nil || j.Low != 1547 || j.Offset != -547 {
		t.Errorf("%+v (%v), want the range down to 1547 and the offset -547", j, err)
	}
}

// On a terminal the table is drawn over the last one, with a mark for each joint that has moved
// enough.
func TestCalibrateDrawsATable(t *testing.T) {
	t.Parallel()
	h := new(led)
	h.all(1500)
	_, cfg, _ := simArm(t, named(t, "so101"), servosim.Config{Plant: h})
	cfg.Screen = true
	k := startCalibrate(t, cfg)
	k.out.await(t, "The middle pose, seen from the side")
	k.out.await(t, "middle of its range")
	k.enter()
	k.out.await(t, " [ ] elbow_flex")
	k.lead(t, h, 1000)
	k.out.await(t, "one side only so far")
	k.lead(t, h, 2200, 1500)
	k.out.await(t, "\x1b[7A") // header, five joints, foot
	k.out.await(t, " [x] elbow_flex             -8.8 degrees       -44.0 .. 61.5      deg     1547 ..  2047 ..  2747")
	k.out.await(t, "Every joint has moved enough: press Enter")
	k.enter()
	if err := k.wait(t); err != nil {
		t.Errorf("%v\n%s", err, k.out)
	}
}

// A calibration does not continue after other software has changed the motors.
func TestCalibrateDoesNotGoOnWithOtherMotors(t *testing.T) {
	t.Parallel()
	h := new(led)
	h.all(1500)
	_, cfg, _ := simArm(t, named(t, "so101"), servosim.Config{Plant: h})
	k := startCalibrate(t, cfg)
	k.out.await(t, "middle of its range")
	k.enter()
	k.out.await(t, "move every joint")
	k.stop()
	if err := k.wait(t); err == nil {
		t.Fatal("an interrupted calibration ends without an error")
	}
	registers(t, cfg, 3, map[table.Register]int{table.Lock: 0})
	registers(t, cfg, 3, map[table.Register]int{table.HomingOffset: 77})
	again := startCalibrate(t, cfg)
	again.out.await(t, "cannot go on: motor 3 (elbow_flex) has Homing_Offset 77 by now, want -547")
	again.out.await(t, "middle of its range")
}

// When a motor fails during the writes, the error names the written motors and the way to continue.
// The calibration continues when the motor is back.
func TestCalibrateHalfWritten(t *testing.T) {
	t.Parallel()
	r, h := named(t, "so101"), new(led)
	h.all(1500)
	bus, cfg, _ := simArm(t, r, servosim.Config{Plant: h})
	k := startCalibrate(t, cfg)
	k.out.await(t, "middle of its range")
	bus.Mute(3, true)
	k.enter()
	err := k.wait(t)
	if exit.Of(err) != exit.Absent || !strings.Contains(err.Error(),
		"written so far: shoulder_pan, shoulder_lift; perhaps in part: elbow_flex") {
		t.Errorf("at the middle pose: %v", err)
	}
	bus.Mute(3, false)
	// The same at the end, with a complete calibration.
	whole(t, cfg)
	c, err := servo.LoadCalibration(cfg.File())
	if err != nil {
		t.Fatal(err)
	}
	k = startCalibrate(t, cfg)
	k.out.await(t, "There is a calibration")
	bus.Mute(5, true)
	k.enter()
	err = k.wait(t)
	if err == nil || !strings.Contains(err.Error(), "wrist_roll") {
		t.Errorf("at the end: %v", err)
	}
	bus.Mute(5, false)
	k = startCalibrate(t, cfg)
	k.out.await(t, "There is a calibration")
	k.enter()
	if err := k.wait(t); err != nil {
		t.Fatalf("again: %v\n%s", err, k.out)
	}
	arm, err := servo.OpenArm(servo.ArmConfig{Path: cfg.Bus, Robot: r, Calibration: c})
	if err != nil {
		t.Fatal(err)
	}
	arm.Close()
}

// Calibrations of other programs: a range that leaves the registers is only in the file, and the
// next command accepts the values that calibrate has written; a range of more than a turn is
// refused before any write.
func TestCalibrateWritesNeitherLimit(t *testing.T) {
	t.Parallel()
	r := named(t, "koch")
	for _, tt := range []struct {
		low, high, offset int
		limits            []int // limits of the motor afterwards
		refused           string
	}{
		{-306, 2419, 509, []int{509, 0, 4095}, ""},
		{1200, 4400, -300, []int{-300, 0, 4095}, ""},
		{900, 3100, 100, []int{100, 900, 3100}, ""},
		{-200, 4200, 0, []int{0, 0, 4095},
			"shoulder_lift: its range -200 to 4200 is 386.8 degrees (4400 counts), more than one turn"},
		{2000, 2100, 0, []int{0, 0, 4095},
			"shoulder_lift: its range 2000 to 2100 is 8.8 degrees (100 counts), want at least 45"},
	} {
		_, cfg, out := simArm(t, r, servosim.Config{})
		whole(t, cfg)
		c, err := servo.LoadCalibration(cfg.File())
		if err != nil {
			t.Fatal(err)
		}
		c["shoulder_lift"] = servo.MotorCalibration{ID: 2, HomingOffset: tt.offset, RangeMin: tt.low, RangeMax: tt.high}
		if err := c.Save(cfg.File()); err != nil {
			t.Fatal(err)
		}
		cfg.In = strings.NewReader("\n")
		err = Calibrate(t.Context(), cfg)
		if tt.refused == "" && err != nil || tt.refused != "" &&
			(exit.Of(err) != exit.Config || !strings.Contains(err.Error(), tt.refused)) {
			t.Errorf("%d to %d: %v, want %q\n%s", tt.low, tt.high, err, tt.refused, out)
		}
		if got := registers(t, cfg, 2, nil, table.HomingOffset, table.MinPositionLimit,
			table.MaxPositionLimit); fmt.Sprint(got) != fmt.Sprint(tt.limits) {
			t.Errorf("%d to %d: the motor has %v, want %v", tt.low, tt.high, got, tt.limits)
		}
		if tt.refused != "" {
			continue
		}
		arm, err := servo.OpenArm(servo.ArmConfig{Path: cfg.Bus, Robot: r, Calibration: c})
		if err != nil {
			t.Fatalf("%d to %d: the arm refuses what calibrate has written: %v", tt.low, tt.high, err)
		}
		arm.Close()
	}
}

// A path that cannot be written is refused before the operator has done anything.
func TestCalibrateWantsAPlaceForTheFile(t *testing.T) {
	t.Parallel()
	_, cfg, out := simArm(t, named(t, "so101"), servosim.Config{})
	file := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Calibration, cfg.In = filepath.Join(file, "black.json"), strings.NewReader("\n\n")
	if err := Calibrate(t.Context(), cfg); exit.Of(err) != exit.Config || !strings.Contains(err.Error(), file) ||
		out.String() != "" {
		t.Errorf("%v, want exit code %d before anything is asked\n%s", err, exit.Config, out)
	}
}

// Property: the calibration of any file that passes the check can be written.
func FuzzProgress(f *testing.F) {
	f.Add([]byte(`{"robot": "so101", "step": "moving", "joints": {"gripper": {"id": 6, "low": -1, "high": 4096}}}`))
	f.Add([]byte(`{"robot": "so101", "step": "writing", "result": {"gripper": {"ID": 6}}}`))
	r, err := robot.ByName("so101")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parseProgress(data)
		if err != nil || p.check(r) != nil {
			return
		}
		for _, m := range r.Motors {
			j, c := p.Joints[m.Name], p.Result[m.Name]
			if p.Step == stepMoving && (j.Low > j.High || j.High-j.Low > 2*maxTurns*4096) || p.Step == stepWriting &&
				c.RangeMin >= c.RangeMax {
				t.Errorf("%s passes with %s %+v %+v", data, m.Name, j, c)
			}
		}
	})
}
