package bringup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
)

// lineOf opens a pseudo-terminal and returns its path. It calls answer with the bytes that came, and answer writes the
// reply to line.
func lineOf(t *testing.T, answer func(line *os.File, came []byte)) (path string) {
	t.Helper()
	line, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(line.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(line.Fd()), unix.TIOCSPTLCK, 0)
	}
	rttest.Do(t, err)
	path = fmt.Sprintf("/dev/pts/%d", n)
	// this descriptor keeps the line open after its first client
	open, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY, 0)
	rttest.Do(t, err)
	t.Cleanup(func() { line.Close(); unix.Close(open) })
	go func() {
		for buf := make([]byte, 256); ; {
			n, err := line.Read(buf)
			if err != nil {
				return
			}
			answer(line, buf[:n])
		}
	}()
	return path
}

// pingOnly opens a line at 1 Mbaud whose Feetech servos 1 and 2 answer only pings, as over a cable
// that transmits only short frames.
func pingOnly(t *testing.T) (path string) {
	var heard []byte
	return lineOf(t, func(line *os.File, came []byte) {
		mode, err := unix.IoctlGetTermios(int(line.Fd()), unix.TCGETS2)
		if err != nil || mode.Ospeed != 1_000_000 {
			return
		}
		heard = append(heard, came...)
		for _, id := range []byte{1, 2, servo.Broadcast} {
			ping := []byte{0xFF, 0xFF, id, 2, 1, ^(id + 3)}
			if before, after, ok := bytes.Cut(heard, ping); ok {
				heard = append(before, after...)
				id = min(id, 2)
				line.Write([]byte{0xFF, 0xFF, id, 2, 0, ^(id + 2)})
			}
		}
		heard = heard[max(0, len(heard)-16):]
	})
}

// Scan does not take the answers of a modem for the answers of servos without a supply.
func TestScanOfAModem(t *testing.T) {
	t.Parallel()
	modem := lineOf(t, func(line *os.File, _ []byte) { line.WriteString("ERROR\r\n") })
	cfg := Config{Place: device.Place{Bus: modem, Robot: named(t, "so101")}, Out: io.Discard}
	err := Scan(t.Context(), ScanConfig{Config: cfg, Last: 1, Named: true})
	rttest.Ends(t, err, exit.Absent, "none are a servo's: another device")
}

// Motors that answer a ping but not the read of their model, as over a bad cable, are not reported
// as another model.
func TestScanOfABadCable(t *testing.T) {
	t.Parallel()
	out := new(screen)
	cfg := Config{Place: device.Place{Bus: pingOnly(t), Robot: named(t, "so101"), ID: "black"},
		In: strings.NewReader(""), Out: out}
	err := Scan(t.Context(), ScanConfig{Config: cfg, Last: servo.ID(7), Named: true})
	if exit.Of(err) != exit.Absent || strings.Contains(out.String(), "number 0") ||
		!strings.Contains(out.String(), "motor 1 (shoulder_pan): its model could not be read") ||
		strings.Count(out.String(), "not every question") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}

// The advice names the arm with these motors, not always so101.
func TestScanNamesTheArmThatIsThere(t *testing.T) {
	t.Parallel()
	motors := func(name string) (all []found) {
		for _, m := range named(t, name).Motors {
			all = append(all, found{id: m.ID, model: m.Model})
		}
		return all
	}
	for _, tt := range []struct {
		name string
		all  []found
		want string
	}{
		{"so101", motors("so101"), "They are the motors of so101 or so100 or so100_leader or so101_leader or " +
			"generic. Next: edge-rt scan --bus /dev/a --robot so101\n"},
		{"koch", motors("koch"), "They are the motors of koch. Next: edge-rt scan --bus /dev/a --robot koch\n"},
		{"a Koch's leader", motors("koch_leader"),
			"They are the motors of koch_leader. Next: edge-rt scan --bus /dev/a --robot koch_leader\n"},
		{"a Koch without its last motor", motors("koch")[:5], "--robot NAME, which is one of koch, omx"},
		{"a motor of no arm", []found{{id: 1}}, "no arm that is built in has such motors"},
	} {
		out := new(screen)
		newSession(Config{Place: device.Place{Bus: "/dev/a"}, Out: out}).adviseRobot(tt.all)
		rttest.Contains(t, out.String(), tt.want)
	}
	s := newSession(Config{Place: device.Place{Bus: "/dev/a b", Robot: named(t, "so101")}, Out: new(screen)})
	err := s.advise(ScanConfig{Named: true}, &ScanReport{Missing: []string{"motor 1"}}, motors("koch"))
	// a Koch for an SO-101
	rttest.Ends(t, err, exit.Absent,
		"these are not the motors of a so101 but those of koch: edge-rt scan --bus '/dev/a b' --robot koch")
}

// Scan counts the second motor of a joint as a motor of the arm.
func TestScanOfASecondMotor(t *testing.T) {
	t.Parallel()
	out := new(screen)
	s := newSession(Config{Place: device.Place{Bus: "/dev/a", Robot: named(t, "viperx")}, Out: out})
	var all []found
	for _, id := range s.Robot.IDs() {
		all = append(all, found{id: id, model: s.Robot.ServosOf(id)[0].Model, baud: s.Robot.Baud})
	}
	if s.adviseRobot(all); !strings.Contains(out.String(), "They are the motors of viperx.") {
		t.Errorf("all of them: %s", out)
	}
	all = slices.DeleteFunc(all, func(f found) bool { return f.id == 3 })
	missing, wrong := s.compare(all)
	if !slices.Equal(missing, []string{"motor 3 (shoulder_shadow)"}) || len(wrong) > 0 {
		t.Errorf("without the shoulder's second motor: missing %q, wrong %q", missing, wrong)
	}
}

// Scan does not report a whole arm where two servos have one id.
func TestScanOfADoubledID(t *testing.T) {
	s := newSession(Config{Place: device.Place{Bus: "/dev/a", Robot: named(t, "so101")}, Out: new(screen)})
	all := ordered([]found{{id: 1, baud: 1_000_000}, {id: 2}, {id: 1, baud: 57_600}})    // one of these servos is new
	rttest.Ends(t, s.advise(ScanConfig{Named: true}, new(ScanReport), all), exit.Absent) // compared with --robot
	rttest.Do(t, s.advise(ScanConfig{}, new(ScanReport), all))                           // a list of servos
}

// Scan refuses a file that is no serial port, instead of finding no servos on it.
func TestScanOfNoPort(t *testing.T) {
	cfg := Config{Place: device.Place{Bus: "/dev/null", Robot: named(t, "so101")}, Out: io.Discard}
	if err := scans(t, cfg); exit.Of(err) != exit.Config || !errors.Is(err, servo.ErrPort) {
		t.Errorf("%v, want %v", err, servo.ErrPort)
	}
}
