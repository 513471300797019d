package bringup

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// calibration is a simulated arm in an operator's hands, and the command that calibrates it.
type calibration struct {
	bus  *servosim.Bus
	cfg  Config
	h    *led
	out  *screen
	keys *io.PipeWriter
	stop context.CancelFunc
	done chan error
}

// inHands returns a simulated arm whose joints all have the reading at, with noise of this number of counts. It starts
// no command.
func inHands(t *testing.T, name string, at, noise int) *calibration {
	t.Helper()
	k := &calibration{h: new(led)}
	k.h.All(at)
	k.bus, k.cfg, _ = simArm(t, named(t, name), servosim.Config{Plant: k.h, Noise: noise})
	return k
}

// start starts the command and waits until the screen shows the text.
func (k *calibration) start(t *testing.T, text string) {
	t.Helper()
	in, keys := io.Pipe()
	k.out = new(screen)
	k.keys = keys
	k.done = make(chan error, 1)
	cfg := k.cfg
	cfg.In, cfg.Out = in, k.out
	ctx, stop := context.WithCancel(t.Context())
	k.stop = stop
	go func() { k.done <- Calibrate(ctx, cfg) }()
	t.Cleanup(func() { stop(); keys.Close() })
	k.out.await(t, text)
}

// begin starts the command, and presses Enter when it asks for the middle pose.
func (k *calibration) begin(t *testing.T) {
	t.Helper()
	k.start(t, "middle of its range")
	k.enter()
	k.out.await(t, "move every joint")
}

// end presses Enter, waits for a success, and returns the calibration in the file.
func (k *calibration) end(t *testing.T) servo.Calibration {
	t.Helper()
	k.enter()
	if err := k.wait(t); err != nil {
		t.Fatalf("%v\n%s", err, k.out)
	}
	return loaded(t, k.cfg.Place)
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

// led are joints in an operator's hands. They count the readings, for which lead waits.
type led struct {
	servosimtest.Shafts
	reads [6]atomic.Int32
}

func (h *led) Present(now rt.Instant, joint int) int {
	h.reads[joint].Add(1)
	return h.Shafts.Present(now, joint)
}

// lead moves the joints from point to point in steps that a hand can make. The command reads each step several times.
func (k *calibration) lead(t *testing.T, points ...int) {
	t.Helper()
	const step, looks = 300, 8
	h := k.h
	at := int(h.Raw[0].Load())
	for _, to := range points {
		for at != to {
			at += min(max(to-at, -step), step)
			h.All(at)
			var before [6]int32
			for j := range before {
				before[j] = h.reads[j].Load()
			}
			rttest.Eventually(t, "readings of every joint", func() bool {
				for j, m := range k.cfg.Robot.Motors {
					if !m.FullTurn && h.reads[j].Load() < before[j]+looks {
						return false
					}
				}
				return true
			})
		}
	}
}

// registers writes some registers of a motor, as another program would, and then reads others.
func registers(t *testing.T, cfg Config, id uint8, write map[table.Register]int,
	read ...table.Register) (values []int) {
	t.Helper()
	port := rttest.Must(servo.OpenPort(cfg.Bus, cfg.Robot.Baud))(t)
	defer port.Close()
	b := servo.NewBus(port, cfg.Robot.Baud, cfg.Robot.Protocol(), rt.KernelClock())
	model := cfg.Robot.Motors[0].Model
	for r, v := range write {
		if err := b.WriteRegister(id, model.Row(r), v); err != nil && !errors.Is(err, servo.ErrNoReply) {
			t.Fatal(err)
		}
	}
	for _, r := range read {
		v, _, err := b.ReadRegister(id, model.Row(r))
		rttest.Do(t, err)
		values = append(values, v)
	}
	return values
}

// A joint whose reading crosses 4095 to 0 gets an offset with which its range is clear of the seam.
func TestCalibrateFollowsTheSeam(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"so101", "koch"} {
		k := inHands(t, name, 3000, 0)
		k.start(t, "middle of its range")
		k.h.All(3600) // the arm moves while a person puts it down
		k.enter()
		k.out.await(t, "move every joint")
		k.lead(t, 3100, 6100, 3600)
		c := k.end(t)
		for _, m := range k.cfg.Robot.Motors {
			e := c[m.Name]
			limits := registers(t, k.cfg, m.ID, nil, table.HomingOffset, table.MinPositionLimit, table.MaxPositionLimit)
			if want := []int{e.HomingOffset, e.RangeMin, e.RangeMax}; !slices.Equal(limits, want) {
				t.Errorf("%s %s: the motor has %v, the file %v", name, m.Name, limits, want)
			}
			if m.FullTurn {
				continue
			}
			bare := modulo(e.RangeMin - e.HomingOffset*m.Model.Offset)
			if e.RangeMax-e.RangeMin != 3000 || e.RangeMin < robot.SeamMargin || e.RangeMax > 4095-robot.SeamMargin ||
				bare != 3100 {
				t.Errorf("%s %s: %+v, whose low end is %d on the bare encoder, want 3000 counts from 3100 on, clear "+
					"of the seam", name, m.Name, e, bare)
			}
		}
		if !strings.Contains(k.out.String(), "elbow_flex: 1547 to 4547 is over or near the seam of its encoder") {
			t.Errorf("%s: it does not name the joint over the seam:\n%s", name, k.out)
		}
		if _, err := os.Stat(k.cfg.File() + progressSuffix); err == nil {
			t.Errorf("%s: the file of the progress is left", name)
		}
	}
}

// A reading beyond one turn does not lead to an offset that is wrong by a turn after the next power-up.
func TestCalibrateModuloOneTurn(t *testing.T) {
	t.Parallel()
	k := inHands(t, "koch", 4000, 0)
	k.h.All(4196)
	k.begin(t)
	k.lead(t, 3000, 5500, 4196)
	if e := k.end(t)["elbow_flex"]; e.HomingOffset != 2047-100 || e.RangeMin != 2047-1196 || e.RangeMax != 2047+1304 {
		t.Errorf("%+v, want the offset of a motor that reads 100 after its next power-up, and the range around it", e)
	}
}

// Calibrate also works when other software has set motors to answer no writes, and one of them to count turns, or to
// obey the id of another one.
func TestCalibrateOfMotorsThatOtherSoftwareHasLeft(t *testing.T) {
	t.Parallel()
	for name, level := range map[string]int{"so101": 0, "koch": 1} {
		k := inHands(t, name, 1500, 0)
		registers(t, k.cfg, 3, map[table.Register]int{table.ResponseStatusLevel: level})
		phase := func() int { return registers(t, k.cfg, 5, nil, table.Phase)[0] }
		if name == "so101" {
			registers(t, k.cfg, 5, map[table.Register]int{table.Phase: phase() | table.PhaseMultiTurn})
		} else {
			registers(t, k.cfg, 2, map[table.Register]int{table.SecondaryID: 5})
			k.h.Raw[4].Store(2500) // its offset is not that of motor 2
		}
		k.begin(t)
		k.lead(t, 1000, 2200, 1500)
		opens(t, k.cfg, k.end(t))
		if !strings.Contains(k.out.String(), "answer now: elbow_flex") {
			t.Errorf("%s: %s", name, k.out)
		}
		if name == "so101" && phase()&table.PhaseMultiTurn != 0 {
			t.Errorf("Phase is %d, want it without its multi-turn bit", phase())
		}
	}
}

// Calibrate also works with motors of protocol 1 that answer only pings, whose answer has no model.
func TestCalibrateOfMutePotentiometers(t *testing.T) {
	t.Parallel()
	file := rttest.WriteFile(t, t.TempDir(), "arm.yaml", `{name: arm, calibration: [arm], baud: 1000000, motors: [
  {name: a, id: 1, model: ax-12a, norm: degrees, max_velocity: 100},
  {name: b, id: 2, model: ax-12a, norm: degrees, max_velocity: 100}]}`)
	k := inHands(t, file, 500, 0)
	mute(t, k.cfg, 0)
	k.begin(t)
	rttest.Contains(t, k.out.String(), "answer now: a, b")
}

// Calibrate writes nothing to the motors of another arm, nor to an arm with two motors of one id.
func TestCalibrateOfOtherMotors(t *testing.T) {
	t.Parallel()
	twins := slices.Repeat([]servosim.Servo{{ID: 2, Model: "xl430-w250"}}, 2)
	for _, tt := range []struct {
		servos []servosim.Servo
		says   string
	}{
		{nil, "motor 1 (shoulder_pan) on"}, // the motors of a koch_leader
		{append(twins, servosim.Servo{ID: 1, Model: "xl430-w250"}), "garbled replies from motor 2 (shoulder_lift) on"},
	} {
		_, cfg, out := simArm(t, named(t, "koch_leader"), servosim.Config{Servos: tt.servos})
		cfg.Robot, cfg.In = named(t, "koch"), strings.NewReader("\n\n")
		err := Calibrate(t.Context(), cfg)
		got := registers(t, cfg, 1, nil, table.HomingOffset, table.OperatingMode)
		if exit.Of(err) != exit.Absent || !rttest.Says(err, tt.says) ||
			!slices.Equal(got, []int{0, table.ModePosition}) {
			t.Errorf("%v, offset and mode %v, want %q and nothing written\n%s", err, got, tt.says, out)
		}
	}
}

// Calibrate does not drop an arm that is under torque: it first asks the operator to hold the arm.
func TestCalibrateOfAnArmUnderTorque(t *testing.T) {
	t.Parallel()
	k := inHands(t, "so101", 1500, 0)
	k.cfg.Keyboard = true
	registers(t, k.cfg, 3, map[table.Register]int{table.TorqueEnable: 1})
	k.start(t, "Hold it, then press Enter")
	if !k.bus.TorqueEnabled()[2] {
		t.Error("the torque is off before the operator has answered")
	}
	k.enter()
	k.out.await(t, "middle of its range")
	if k.bus.TorqueEnabled()[2] {
		t.Error("the torque is on in the middle pose")
	}
}

// Calibrate does not take one count of noise for a motion, and its error names the motors that it has written.
func TestCalibrateRefusesNoise(t *testing.T) {
	t.Parallel()
	k := inHands(t, "so101", 1500, 1)
	k.begin(t)
	k.lead(t, 1500, 1500)
	k.enter()
	err := k.wait(t)
	if exit.Of(err) != exit.Config {
		t.Fatalf("%v, want exit code %d\n%s", err, exit.Config, k.out)
	}
	rttest.Fails(t, err, "shoulder_pan: moved by 0.", "gripper: moved by 0.", "want at least 45",
		"run the same command again", progressSuffix)
	if rttest.Says(err, "wrist_roll") {
		t.Errorf("%v names a joint that is not moved", err)
	}
	if _, err := os.Stat(k.cfg.File()); err == nil {
		t.Error("a file was written")
	}
	k.cfg.In = strings.NewReader("")
	os.Remove(k.cfg.File() + progressSuffix)
	rttest.Ends(t, Calibrate(t.Context(), k.cfg), exit.Usage) // no operator is at the keyboard
}

// An operator at a terminal may continue to move the joints, even when one of them has turned too far. The operator may
// also accept a joint that was at its end during the middle pose.
func TestCalibrateAsksAgainAtATerminal(t *testing.T) {
	t.Parallel()
	k := inHands(t, "so101", 1500, 0)
	k.cfg.Keyboard = true
	k.begin(t)
	k.lead(t, 1500+4200)
	k.enter()
	k.out.await(t, "Not yet: shoulder_pan: moved by 369.2 degrees")
	k.lead(t, 1500+4096+1000)
	k.enter()
	k.out.await(t, "press Enter again to take it")
	k.end(t)
}

// A calibration that was interrupted, or whose adapter was unplugged, continues at its last step.
func TestCalibrateGoesOn(t *testing.T) {
	t.Parallel()
	k := inHands(t, "so101", 1500, 0)
	k.begin(t)
	k.lead(t, 1000)
	k.stop()
	if err := k.wait(t); exit.Of(err) != exit.Failure || !rttest.Says(err, "goes on from here") {
		t.Fatalf("interrupted: %v", err)
	}
	k.start(t, "was interrupted after the middle pose")
	k.enter()
	k.out.await(t, "move every joint")
	k.lead(t, 2200, 1500)
	want := servo.MotorCalibration{ID: 3, HomingOffset: 1500 - 2047, RangeMin: 1000 + 547, RangeMax: 2200 + 547}
	if got := k.end(t)["elbow_flex"]; got != want {
		t.Errorf("%+v, want %+v: both halves of the range", got, want)
	}
}

// Unplugging the adapter ends the recording, and the recorded ranges stay.
func TestCalibrateUnplugged(t *testing.T) {
	t.Parallel()
	k := inHands(t, "so101", 1500, 0)
	k.begin(t)
	k.lead(t, 1000)
	k.bus.Close()
	err := k.wait(t)
	rttest.Ends(t, err, exit.Absent, "has gone", "goes on from here")
	p, err := loadProgress(k.cfg.File() + progressSuffix)
	if j := p.Joints["elbow_flex"]; err != nil || j.Low != 1547 || j.Offset != -547 {
		t.Errorf("%+v (%v), want the range down to 1547 and the offset -547", j, err)
	}
}

// On a terminal the table is drawn over the last one, with a mark for each joint that has moved
// enough.
func TestCalibrateDrawsATable(t *testing.T) {
	t.Parallel()
	k := inHands(t, "so101", 1500, 0)
	k.cfg.Screen = true
	k.start(t, "The middle pose, seen from the side")
	k.out.await(t, "middle of its range")
	k.enter()
	k.out.await(t, " [ ] elbow_flex")
	k.lead(t, 1000)
	k.out.await(t, "one side only so far")
	k.lead(t, 2200, 1500)
	k.out.await(t, "\x1b[7A") // header, five joints, foot
	k.out.await(t, oneLine+
		" [x] elbow_flex             -8.8 degrees       -44.0 .. 61.5      deg     1547 ..  2047 ..  2747  "+lineEnd)
	k.out.await(t, "Every joint has moved enough: press Enter")
	k.end(t)
}

// A calibration does not continue after other software has changed the motors.
func TestCalibrateDoesNotGoOnWithOtherMotors(t *testing.T) {
	t.Parallel()
	k := inHands(t, "so101", 1500, 0)
	k.begin(t)
	k.stop()
	if err := k.wait(t); err == nil {
		t.Fatal("an interrupted calibration ends without an error")
	}
	registers(t, k.cfg, 3, map[table.Register]int{table.Lock: 0})
	registers(t, k.cfg, 3, map[table.Register]int{table.HomingOffset: 77})
	k.start(t, "cannot go on: motor 3 (elbow_flex) has Homing_Offset 77 by now, want -547")
	k.out.await(t, "middle of its range")
	k.stop()
	k.wait(t)
	p := rttest.Must(loadProgress(k.cfg.File() + progressSuffix))(t)
	p.Step, p.Result = stepWriting, servo.Calibration{}
	for _, m := range k.cfg.Robot.Motors {
		p.Result[m.Name] = servo.MotorCalibration{ID: int(m.ID), HomingOffset: -547, RangeMin: 900, RangeMax: 3100}
	}
	text, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(k.cfg.File()+progressSuffix, text, 0o600)
	}
	rttest.Do(t, err)
	k.start(t, "cannot go on: motor 3 (elbow_flex) has Homing_Offset 77 by now, want -547")
}

// When a motor fails during the writes, the error names the written motors and the way to continue. When one fails
// before them, nothing is written. The calibration continues when the motor is back.
func TestCalibrateHalfWritten(t *testing.T) {
	t.Parallel()
	k := inHands(t, "so101", 1500, 0)
	failsAt := func(text string, id uint8, want string) {
		t.Helper()
		k.start(t, text)
		k.bus.Mute(id, true)
		k.enter()
		rttest.Ends(t, k.wait(t), exit.Absent, want)
		k.bus.Mute(id, false)
	}
	failsAt("middle of its range", 3, "written so far: shoulder_pan, shoulder_lift; perhaps in part: elbow_flex")
	whole(t, k.cfg) // a complete calibration: now switching torque off fails
	failsAt("There is a calibration", 5, "torque not confirmed: motor 5 (wrist_roll)")
	k.start(t, "There is a calibration")
	opens(t, k.cfg, k.end(t))
}

// opens fails the test if the arm does not open with the calibration c.
func opens(t *testing.T, cfg Config, c servo.Calibration) {
	t.Helper()
	arm, err := servo.OpenArm(servo.ArmConfig{Path: cfg.Bus, Robot: cfg.Robot, Calibration: c})
	if err != nil {
		t.Fatalf("the arm refuses what calibrate has written: %v", err)
	}
	arm.Close()
}

// Calibrate takes over calibrations of other programs. A range that exceeds the registers is only in the file, and the
// next command accepts the values that calibrate has written. Calibrate refuses a range of more than a turn before any
// write.
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
		c := loaded(t, cfg.Place)
		c["shoulder_lift"] = servo.MotorCalibration{ID: 2, HomingOffset: tt.offset, RangeMin: tt.low, RangeMax: tt.high}
		rttest.Do(t, c.Save(cfg.File()))
		cfg.In = strings.NewReader("\n")
		err := Calibrate(t.Context(), cfg)
		if tt.refused == "" && err != nil || tt.refused != "" &&
			(exit.Of(err) != exit.Config || !rttest.Says(err, tt.refused)) {
			t.Errorf("%d to %d: %v, want %q\n%s", tt.low, tt.high, err, tt.refused, out)
		}
		rttest.Equal(t, registers(t, cfg, 2, nil, table.HomingOffset, table.MinPositionLimit,
			table.MaxPositionLimit), tt.limits, "%d to %d: the motor has", tt.low, tt.high)
		if tt.refused == "" {
			opens(t, cfg, c)
		}
	}
}

// Calibrate refuses a path that cannot be written before the operator has done anything.
func TestCalibrateWantsAPlaceForTheFile(t *testing.T) {
	t.Parallel()
	_, cfg, out := simArm(t, named(t, "so101"), servosim.Config{})
	file := rttest.WriteFile(t, t.TempDir(), "a file", "")
	cfg.Calibration, cfg.In = filepath.Join(file, "black.json"), strings.NewReader("\n\n")
	if err := Calibrate(t.Context(), cfg); exit.Of(err) != exit.Config || !rttest.Says(err, file) ||
		out.String() != "" {
		t.Errorf("%v, want exit code %d before anything is asked\n%s", err, exit.Config, out)
	}
}

// Property: a progress file that passes the check has no empty or endless range.
func FuzzProgress(f *testing.F) {
	f.Add([]byte(`{"robot": "so101", "step": "moving", "joints": {"gripper": {"id": 6, "low": -1, "high": 4096}}}`))
	f.Add([]byte(`{"robot": "so101", "step": "writing", "result": {"gripper": {"ID": 6}}}`))
	r := named(f, "so101")
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

// Enter alone does not write a calibration into the motors of another arm, whose file is in one of LeRobot's folders.
// Nor does it begin to calibrate them as a new arm.
func TestCalibrateOfAnotherArm(t *testing.T) {
	t.Setenv("HF_LEROBOT_CALIBRATION", t.TempDir())
	_, cfg, out := simArm(t, named(t, "so101"), servosim.Config{})
	cfg.Calibration = ""
	whole(t, cfg)
	white, leader := cfg, cfg
	white.ID, leader.Robot = "white", named(t, "so101_leader")
	c := loaded(t, cfg.Place)
	for name, m := range c {
		m.HomingOffset = 300
		c[name] = m
	}
	rttest.Do(t, c.Save(white.File()))
	for _, tt := range []struct {
		cfg         Config
		keys, shows string
		code        exit.Code
		offset      int // homing offset of the motors at the end
	}{
		{white, "\n", "which the motors do not have", exit.Clean, 300},
		{white, "\n", "and the motors have it", exit.Clean, 300},
		{cfg, "\n", "the motors have that of another arm, " + white.File(), exit.Config, 300},
		{leader, "\n", "The motors have the calibration of another arm, " + white.File(), exit.Config, 300},
		{leader, "c\n", "middle of its range", exit.Usage, 300},
		{cfg, "w\n", "Press w", exit.Clean, 0},
	} {
		tt.cfg.In = strings.NewReader(tt.keys)
		err := Calibrate(t.Context(), tt.cfg)
		offset := registers(t, cfg, 3, nil, table.HomingOffset)[0]
		if exit.Of(err) != tt.code || offset != tt.offset || !strings.Contains(out.String(), tt.shows) ||
			rttest.Says(err, "answer w") {
			t.Errorf("%s, %q: %v with offset %d, want code %d, %d and %q\n%s", tt.cfg.File(), tt.keys, err, offset,
				tt.code, tt.offset, tt.shows, out)
		}
	}
}

// A shell can run the next command that the calibration of a leader prints.
func TestTheNextCommandIsQuoted(t *testing.T) {
	out := new(screen)
	s := newSession(Config{Out: out, Place: device.Place{
		Bus:         "/dev/my arm",
		Robot:       named(t, "so101_leader"),
		ID:          "my white",
		Calibration: "a b.json",
	}})
	s.sayNext()
	const want = "Next: edge-rt teleop --leader '/dev/my arm' --leader-robot so101_leader --leader-id 'my white' " +
		"--leader-calibration 'a b.json' --bus FOLLOWER\n"
	if out.String() != want {
		t.Errorf("it says %q, want %q", out, want)
	}
}

// facing is a joint with two motors that face each other, in an operator's hands.
type facing struct{ led }

func (f *facing) Present(now rt.Instant, motor int) int { return (1 - 2*motor) * f.led.Present(now, 0) }

// The two motors of a joint face each other. After a calibration, and after an existing one was written, both read the
// same position, whatever directions they had before.
func TestCalibrateOfTwoMotorsOfAJoint(t *testing.T) {
	t.Parallel()
	file := rttest.WriteFile(t, t.TempDir(), "arm.yaml", `{name: arm, calibration: [arm], baud: 1000000, motors: [
  {name: a, id: 1, shadow: 2, model: xl430-w250, norm: degrees, max_velocity: 100}]}`)
	f := new(facing)
	f.All(3000)
	k := &calibration{h: &f.led}
	servos := []servosim.Servo{{ID: 1, Model: "xl430-w250"}, {ID: 2, Model: "xl430-w250"}}
	k.bus, k.cfg, _ = simArm(t, named(t, file), servosim.Config{Plant: f, Servos: servos})
	equal := func(mode int) {
		t.Helper()
		one := registers(t, k.cfg, 1, nil, table.PresentPosition, table.DriveMode)
		two := registers(t, k.cfg, 2, nil, table.PresentPosition, table.DriveMode)
		if off := one[0] - two[0]; off > readSlack || off < -readSlack || one[1] != mode || two[1] != 1-mode {
			t.Errorf("position and Drive_Mode of the first motor are %v, of the second %v", one, two)
		}
	}
	registers(t, k.cfg, 1, map[table.Register]int{table.DriveMode: 1})
	k.begin(t)
	k.lead(t, 2500, 5500, 3600) // over the seam, so the offset of the first motor changes at the end
	c := k.end(t)
	equal(0)
	c["a"] = servo.MotorCalibration{ID: 1, DriveMode: 1, HomingOffset: 4000, RangeMin: 500, RangeMax: 3000}
	rttest.Do(t, c.Save(k.cfg.File()))
	k.start(t, "There is a calibration")
	k.end(t)
	equal(1)
}

// The second motor of a joint faces the first one, unless a robot file gives a Drive_Mode, which is for both.
func TestTheSecondMotorsDirection(t *testing.T) {
	m := robot.Motor{ID: 2, Shadow: 3, DriveMode: 1}
	rttest.Want(t, shadowOf(m).DriveMode, 0, "Drive_Mode of a motor that faces the first")
	m.Settings = []robot.Setting{{Register: table.DriveMode, Value: 1}}
	rttest.Want(t, shadowOf(m).DriveMode, 1, "Drive_Mode that a file gives")
}
