package bringup

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// TestMain runs many tests at once: one after the other, the tests would take 250 s, mostly waiting for simulated
// motors, and need only 9 s of processor time.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

// screen is the output of a command so far.
type screen struct{ rttest.Output }

// await waits until the screen shows the text.
func (s *screen) await(t *testing.T, text string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("it said:\n%s", s)
		}
	}()
	rttest.Eventually(t, strconv.Quote(text), func() bool { return strings.Contains(s.String(), text) })
}

func named(t testing.TB, name string) robot.Robot {
	t.Helper()
	return rttest.Must(robot.ByName(name))(t)
}

// simArm returns a robot's bus, and the configuration of a command on it.
func simArm(t *testing.T, r robot.Robot, cfg servosim.Config) (*servosim.Bus, Config, *screen) {
	t.Helper()
	rttest.RealTime(t) // a simulated motor counts as missing while it has no processor
	if cfg.Servos == nil {
		cfg.Servos = device.SimBus(r, nil, nil).Servos
	}
	bus := servosimtest.Open(t, cfg)
	out := new(screen)
	place := device.Place{Bus: bus.Path(), Robot: r, ID: "black", Calibration: filepath.Join(t.TempDir(), "black.json")}
	return bus, Config{Place: place, In: strings.NewReader(""), Out: out}, out
}

func TestScan(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"so101", "koch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := named(t, name)
			bus, cfg, out := simArm(t, r, servosim.Config{})
			if err := scans(t, cfg); err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
			rttest.Contains(t, out.String(), r.Motors[0].Model.Name, "1000000", "ok", "All 6 motors of a "+name,
				"Next: edge-rt calibrate")
			bus.Mute(3, true)
			err := scans(t, cfg)
			if exit.Of(err) != exit.Absent || !strings.Contains(out.String(), "missing: motor 3 (elbow_flex)") ||
				!rttest.Says(err, "setup-motors") {
				t.Errorf("%s without motor 3: %v\n%s", name, err, out)
			}
		})
	}
}

func TestScanOfUnusualBuses(t *testing.T) {
	t.Parallel()
	file := rttest.WriteFile(t, t.TempDir(), "arm.yaml", "like: so101\nname: mine\n")
	script := rttest.Must(servosim.ParseScript([]byte("faults:\n  - {kind: drop, ids: [3], count: 4}\n")))(t)
	for _, tt := range []struct {
		name, simulated, robot string
		sim                    servosim.Config
		last                   uint8
		code                   exit.Code
		says                   string
	}{
		{"an arm on a base", "lekiwi", "so101", servosim.Config{Wheels: 3}, 9, exit.Clean,
			"A so101 has no motor 7 (sts3215), 8 (sts3215), 9 (sts3215); all together are the motors of lekiwi."},
		// the answer to the ping to all motors is lost, and the answers to both quick pings
		{"a motor whose first answers are lost", "so101", "so101", servosim.Config{Faults: script}, 7, exit.Clean,
			"All 6 motors"},
		{"another baud rate", "so101", "so101", servosim.Config{Baud: 115_200}, 7, exit.Absent,
			"motor 2 (shoulder_lift) runs at 115200 baud, want 1000000"},
		{"protocol 1", "so101", "", servosim.Config{Servos: []servosim.Servo{{ID: 4, Model: "ax-12a"}}}, 5, exit.Clean,
			"ax-12a"},
		{"a rate of an AX-12A", "so101", "", servosim.Config{Servos: []servosim.Servo{{ID: 4, Model: "ax-12a"}},
			Baud: 400_000}, 5, exit.Clean, "  400000 "},
		{"a high id", "so101", "", servosim.Config{Servos: []servosim.Servo{{ID: 40, Model: "sts3215"}}}, 5,
			exit.Absent, "do the servos have higher ids? More ids: --last 252"},
		{"the highest rate", "koch", "", servosim.Config{Servos: []servosim.Servo{{ID: 4, Model: "xl430-w250"}},
			Baud: 4_500_000}, 5, exit.Clean, " 4500000 "},
		{"the next command has the same flags", file, file, servosim.Config{}, 7, exit.Clean,
			" --robot " + file + " --id black --calibration mine.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, cfg, out := simArm(t, named(t, tt.simulated), tt.sim)
			cfg.Calibration = "mine.json"
			scan := ScanConfig{Config: cfg, Last: tt.last, Named: tt.robot != ""}
			if scan.Named {
				scan.Robot = named(t, tt.robot)
			}
			err := Scan(t.Context(), scan)
			if exit.Of(err) != tt.code || !strings.Contains(out.String(), tt.says) && !rttest.Says(err, tt.says) {
				t.Errorf("%v (code %d), want code %d and %q\n%s", err, exit.Of(err), tt.code, tt.says, out)
			}
		})
	}
}

const oneMotor = `
name: single
calibration: [single]
baud: 1000000
motors: [{name: base, id: 5, model: MODEL, norm: degrees, max_velocity: 100}]
`

// single returns the description of an arm with a single motor, of the given model.
func single(t *testing.T, model string) robot.Robot {
	t.Helper()
	return rttest.Must(robot.Parse("single", []byte(strings.Replace(oneMotor, "MODEL", model, 1))))(t)
}

// scans runs Scan over the ids of an arm, with --robot.
func scans(t *testing.T, cfg Config) error {
	t.Helper()
	return Scan(t.Context(), ScanConfig{Config: cfg, Last: 7, Named: true})
}

// SetupMotors gives an id to a motor that has another baud rate, or that other software has left silent.
func TestSetupMotors(t *testing.T) {
	t.Parallel()
	const untouched = -1
	for _, tt := range []struct {
		model       string
		baud, level int
	}{
		{"sts3215", 57_600, untouched}, {"xl330-m288", 57_600, untouched},
		{"xl330-m288", 1_000_000, 0}, {"xl330-m288", 1_000_000, 1}, {"sts3215", 1_000_000, 0},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			t.Parallel()
			_, cfg, out := simArm(t, single(t, tt.model), servosim.Config{
				Servos: []servosim.Servo{{ID: 1, Model: tt.model}},
				Baud:   tt.baud,
			})
			if tt.level != untouched {
				registers(t, cfg, 1, map[table.Register]int{table.ResponseStatusLevel: tt.level})
			}
			cfg.In = strings.NewReader("\n")
			if err := SetupMotors(t.Context(), cfg); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			rttest.Contains(t, out.String(), "base is motor 5 now")
			if err := scans(t, cfg); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A motor that is still connected keeps its id: an Enter that was typed at a terminal before the next question does not
// confirm it, and a later Enter leads to another question. Answers in a file are all there at the start.
func TestSetupMotorsOfTheSameMotorAgain(t *testing.T) {
	t.Parallel()
	two := strings.Replace(oneMotor, "}]", "}, {name: tip, id: 6, model: MODEL, norm: degrees, max_velocity: 100}]", 1)
	r := rttest.Must(robot.Parse("two", []byte(strings.ReplaceAll(two, "MODEL", "sts3215"))))(t)
	const again = "It has id 6, as the tip motor has"
	for _, tt := range []struct {
		keyboard    bool
		typed, says string
		id          uint8
	}{
		{true, "\n\n", "Connect the base motor", 6},
		{false, "\n\n\n", "Not yet: this is the tip motor", 6},
		{false, "\n\ny\n", "base is motor 5 now", 5},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			bus, cfg, out := simArm(t, r, servosim.Config{Servos: []servosim.Servo{{ID: 1, Model: "sts3215"}}})
			in, keys := io.Pipe()
			cfg.In, cfg.Keyboard = in, tt.keyboard
			done := rttest.Go(func() error { return SetupMotors(t.Context(), cfg) })
			out.await(t, "Connect the tip motor")
			io.WriteString(keys, tt.typed)
			out.await(t, tt.says)
			keys.Close()
			err, id := <-done, bus.States()[0].ID
			if errors.Is(err, errNoOperator) != (tt.id == 6) || id != tt.id ||
				strings.Contains(out.String(), again) == tt.keyboard {
				t.Errorf("%v, and the motor is %d\n%s", err, id, out)
			}
		})
	}
}

// Goal: the motors of a LeKiwi get their ids in LeRobot's order.
func TestSetupOrder(t *testing.T) {
	var ids []uint8
	for _, m := range setupOrder(named(t, "lekiwi").Motors) {
		ids = append(ids, m.ID)
	}
	rttest.Equal(t, ids, []uint8{6, 5, 4, 3, 2, 1, 9, 8, 7}, "order")
}

// SetupMotors refuses two motors at once, because both would take the id.
func TestSetupMotorsWantsThemAlone(t *testing.T) {
	t.Parallel()
	_, cfg, out := simArm(t, single(t, "sts3215"), servosim.Config{Servos: []servosim.Servo{{ID: 1, Model: "sts3215"},
		{ID: 2, Model: "sts3215"}}})
	cfg.In = strings.NewReader("\n")
	if err := SetupMotors(t.Context(), cfg); exit.Of(err) != exit.Usage ||
		!strings.Contains(out.String(), "more than one motor answers") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The flags of the next command name every robot but the default, whose name is a prefix of other
// names.
func TestFlagsNameTheRobot(t *testing.T) {
	for name, want := range map[string]string{
		"so101":        "--bus /dev/a --id x",
		"so101_leader": "--bus /dev/a --robot so101_leader --id x",
		"koch":         "--bus /dev/a --robot koch --id x",
	} {
		s := newSession(Config{Place: device.Place{Bus: "/dev/a", Robot: named(t, name), ID: "x"}})
		rttest.Want(t, s.flags(), want, "%s", name)
	}
}

// Calibrate does as LeRobot does: the middle pose reads 2047, the ends become the range, and the file has the servos'
// values.
func TestCalibrate(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"so101", "koch", "so101_leader"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := inHands(t, name, 1500, 0)
			k.begin(t)
			k.lead(t, 1000, 2200, 1500)
			c := k.end(t)
			sign := -1 // Feetech: present = actual - offset
			if name == "koch" {
				sign = 1
			}
			for _, m := range k.cfg.Robot.Motors {
				low, high := 1000-1500+2047, 2200-1500+2047
				if m.FullTurn {
					low, high = 0, 4095
				}
				want := servo.MotorCalibration{
					ID:           int(m.ID),
					HomingOffset: sign * (2047 - 1500),
					RangeMin:     low,
					RangeMax:     high,
				}
				rttest.Want(t, c[m.Name], want, "%s", m.Name)
			}
			if !k.cfg.Robot.Leader {
				opens(t, k.cfg, c)
			}
		})
	}
}

// An arm with its maker's calibration, and a base without an arm, have no joint that a person could move.
func TestCalibrateWithoutAPerson(t *testing.T) {
	t.Parallel()
	base := named(t, "lekiwi")
	base.Motors = base.Motors[6:]
	for _, tt := range []struct {
		robot  robot.Robot
		wheels int
		joint  string
		want   servo.MotorCalibration
	}{
		{named(t, "omx_leader"), 0, "gripper", servo.MotorCalibration{
			ID:           6,
			DriveMode:    1,
			HomingOffset: 100,
			RangeMax:     4095,
		}},
		{base, 3, "base_back_wheel", servo.MotorCalibration{ID: 8, RangeMax: 4095}},
	} {
		_, cfg, out := simArm(t, tt.robot, servosim.Config{Wheels: tt.wheels})
		if err := Calibrate(t.Context(), cfg); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		rttest.Want(t, loaded(t, cfg.Place)[tt.joint], tt.want, "calibration of %s", tt.joint)
	}
}

func TestMonitor(t *testing.T) {
	t.Parallel()
	r := named(t, "koch")
	bus, cfg, out := simArm(t, r, servosim.Config{})
	bus.SetFault(2, 1)
	rttest.Do(t, Monitor(t.Context(), MonitorConfig{Config: cfg, Count: 2, Every: 10 * time.Millisecond}))
	rttest.Contains(t, out.String(), "Next: edge-rt calibrate", "shoulder_pan", "2048", "limp", "gripper")
	if strings.Count(out.String(), "JOINT") != 2 {
		t.Errorf("want two tables:\n%s", out)
	}
}

// whole writes a calibration, in which each motor's range is a whole turn, to LeRobot's path.
func whole(t *testing.T, cfg Config) {
	t.Helper()
	c := servo.Calibration{}
	for _, m := range cfg.Robot.Motors {
		c[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMax: m.Model.MaxRaw()}
	}
	rttest.Do(t, c.Save(cfg.File()))
}

// wholeArm is simArm for an SO-101, with a calibration by whole.
func wholeArm(t *testing.T) (*servosim.Bus, Config, *screen) {
	t.Helper()
	bus, cfg, out := simArm(t, named(t, "so101"), servosim.Config{})
	whole(t, cfg)
	return bus, cfg, out
}

// moves runs Move for a joint, at a share of the joint's velocity limit.
func moves(t *testing.T, cfg Config, joint string, to, speed float64) error {
	t.Helper()
	return Move(t.Context(), MoveConfig{
		Config: cfg,
		Joint:  joint,
		To:     to,
		Speed:  speed,
	})
}

func TestMove(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"so101", "koch"} {
		bus, cfg, out := simArm(t, named(t, name), servosim.Config{})
		rttest.Ends(t, moves(t, cfg, "elbow_flex", 20, 0.3), exit.Config, "edge-rt calibrate") // no calibration
		whole(t, cfg)
		if err := moves(t, cfg, "elbow_flex", 20, 0.3); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		if !strings.Contains(out.String(), "elbow_flex is at ") {
			t.Errorf("%s: %s", name, out)
		}
		if on := bus.TorqueEnabled(); slices.Contains(on, true) {
			t.Errorf("%s: torque %v after move", name, on)
		}
		rttest.Ends(t, moves(t, cfg, "elbow_flex", 500, 0.3), exit.Usage, "its range is")
		rttest.Ends(t, moves(t, cfg, "tail", 5, 0.3), exit.Usage, "wrist_roll") // no joint
	}
}

// A move has the requested speed, even if this exceeds the speed of a slow start. Regression: the slow start limited
// the move to 75 degrees per second, so Move gave up before the joint reached its goal.
func TestMoveHasItsSpeed(t *testing.T) {
	t.Parallel()
	_, cfg, out := wholeArm(t)
	for _, to := range []float64{-170, 170} {
		if err := moves(t, cfg, "elbow_flex", to, 1); err != nil {
			t.Fatalf("to %v: %v\n%s", to, err, out)
		}
	}
}

// An interrupted move leaves the arm limp.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	bus, cfg, out := wholeArm(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := rttest.Go(func() error {
		return Move(ctx, MoveConfig{Config: cfg, Joint: "elbow_flex", To: 90, Speed: 0.02})
	})
	out.await(t, "Torque is on")
	cancel()
	rttest.Ends(t, <-done, exit.Failure, "torque goes off")
	if on := bus.TorqueEnabled(); slices.Contains(on, true) {
		t.Errorf("torque %v after an interrupted move", on)
	}
}

// An interrupt ends Move before it has pinged all silent motors.
func TestMoveInterruptedBeforeTheArmIsThere(t *testing.T) {
	t.Parallel()
	bus, cfg, _ := wholeArm(t)
	for id := range byte(6) {
		bus.Mute(id+1, true)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := Move(ctx, MoveConfig{Config: cfg, Joint: "elbow_flex", To: 20, Speed: 0.3})
	rttest.Ends(t, err, exit.Failure, "interrupted before the arm was open")
}

func TestPorts(t *testing.T) {
	dev, sys := t.TempDir(), t.TempDir()
	out := new(screen)
	cfg := PortsConfig{Config: Config{In: strings.NewReader("\n"), Out: out}, Dev: dev, Sys: sys}
	rttest.Ends(t, Ports(t.Context(), cfg), exit.Absent) // there is no port yet
	node, other := filepath.Join(dev, "ttyACM0"), filepath.Join(dev, "ttyUSB0")
	for _, path := range []string{node, other} {
		rttest.Do(t, os.WriteFile(path, nil, 0o600))
	}
	byID := filepath.Join(dev, "serial", "by-id")
	os.MkdirAll(byID, 0o755)
	link := filepath.Join(byID, "usb-1a86_USB_Single_Serial_58FA-if00")
	rttest.Do(t, os.Symlink(node, link))
	device := filepath.Join(sys, "devices", "usb1", "1-1", "1-1:1.0")
	os.MkdirAll(device, 0o755)
	os.WriteFile(filepath.Join(sys, "devices", "usb1", "1-1", "product"), []byte("USB Single Serial\n"), 0o600)
	os.MkdirAll(filepath.Join(sys, "class", "tty", "ttyACM0"), 0o755)
	os.Symlink(device, filepath.Join(sys, "class", "tty", "ttyACM0", "device"))
	if err := Ports(t.Context(), cfg); err != nil || !strings.Contains(out.String(), link+" (USB Single Serial)") ||
		!strings.Contains(out.String(), other) {
		t.Errorf("%v\n%s", err, out)
	}
	cfg.Unplug = true
	in, type_ := io.Pipe()
	cfg.In = in
	done := rttest.Go(func() error { return Ports(t.Context(), cfg) })
	out.await(t, "Unplug the arm")
	os.Remove(node)
	os.Remove(link)
	io.WriteString(type_, "\n")
	if err := <-done; err != nil || !strings.Contains(out.String(), "The arm is "+link) ||
		!strings.Contains(out.String(), "Next: edge-rt scan --bus "+link) {
		t.Errorf("%v\n%s", err, out)
	}
}

// An adapter with two ports is one cable; two adapters are two.
func TestPortsOfOneAdapter(t *testing.T) {
	for _, same := range []bool{true, false} {
		dev, sys := t.TempDir(), t.TempDir()
		var nodes []string
		for i, adapter := range []string{"1-1", "1-2"} {
			if same {
				adapter = "1-1"
			}
			name := fmt.Sprintf("ttyACM%d", i)
			usb := filepath.Join(sys, "devices", "usb1", adapter)
			class := filepath.Join(sys, "class", "tty", name)
			node := filepath.Join(dev, name)
			port := filepath.Join(usb, fmt.Sprintf("%s:1.%d", adapter, 2*i))
			rttest.Do(t, errors.Join(os.MkdirAll(port, 0o755), os.MkdirAll(class, 0o755),
				os.WriteFile(node, nil, 0o600), os.WriteFile(filepath.Join(usb, "product"), []byte("Dual"), 0o600),
				os.Symlink(port, filepath.Join(class, "device"))))
			nodes = append(nodes, node)
		}
		out, report := new(screen), new(bytes.Buffer)
		in, keys := io.Pipe()
		cfg := PortsConfig{Config: Config{In: in, Out: out, JSON: report}, Unplug: true, Dev: dev, Sys: sys}
		done := rttest.Go(func() error { return Ports(t.Context(), cfg) })
		out.await(t, "Unplug the arm")
		rttest.Do(t, errors.Join(os.Remove(nodes[0]), os.Remove(nodes[1])))
		io.WriteString(keys, "\n")
		err := <-done
		if !same {
			rttest.Ends(t, err, exit.Absent, "2 ports have gone: pull one cable only")
			continue
		}
		rttest.Do(t, err)
		rttest.Contains(t, out.String(), "The arm's adapter (Dual) has 2 ports.",
			"edge-rt scan --bus "+nodes[0], "edge-rt scan --bus "+nodes[1])
		rttest.Want(t, strings.Count(report.String(), `"node":`), 2, "ports in %s", report)
	}
}
