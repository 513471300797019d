// Package device opens the devices of a run and of other commands: an arm's description,
// calibration and port, with the exit code of each failure, and a simulated world.
package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Sim is the --bus of the simulated arm inside a run.
const Sim = "sim"

// Values of --leader that name no port.
const (
	FarLeader = "zenoh:" // beginning of the name of a leader on another machine
	JogLeader = "jog"    // keys and the page's buttons
)

// LeaderPort reports whether a value of --leader is the port of a leader arm.
func LeaderPort(bus string) bool { return bus != JogLeader && !strings.HasPrefix(bus, FarLeader) }

// Robot returns a built-in arm, or the arm that a file describes.
func Robot(name string) (robot.Robot, error) {
	r, err := robot.ByName(userfile.Expand(name))
	if errors.Is(err, robot.ErrInvalid) {
		return r, exit.With(exit.Config, err)
	}
	return r, exit.With(exit.Usage, err)
}

// Leader returns the description of a follower's leader. An empty name means the default leader: the one that the
// follower's description names, or the follower's name with _leader. Its joints must be the follower's, without a
// base's wheels, in the same units.
func Leader(name string, follower robot.Robot) (robot.Robot, error) {
	if name == "" {
		name = follower.DefaultLeader()
	}
	l, err := Robot(name)
	if err != nil {
		return l, fmt.Errorf("--leader-robot: %w", err)
	}
	joints := len(follower.Motors) - follower.Wheels().Len()
	if len(l.Motors) != joints {
		return l, exit.Errorf(exit.Config, "a %s has %d joints and a %s %d: they do not fit", l.Name, len(l.Motors),
			follower.Name, joints)
	}
	for i, o := range l.Motors {
		// LeRobot calls the joints of an arm on a base arm_shoulder_pan and so on.
		if m := follower.Motors[i]; o.Norm != m.Norm || m.Name != o.Name &&
			(follower.Base == nil || strings.Replace(m.Name, "arm_", "", 1) != o.Name) {
			return l, exit.Errorf(exit.Config, "joint %d is %s in %s on a %s and %s in %s on a %s: they do not fit",
				i+1, o.Name, o.Norm, l.Name, m.Name, m.Norm, follower.Name)
		}
	}
	return l, nil
}

// CheckUnused refuses settings of a leader in a run without a leader arm. robot is --leader-robot.
func (p *Place) CheckUnused(robot string) error {
	for _, f := range []struct{ flag, value string }{
		{"--leader-robot", robot}, {"--leader-id", p.ID}, {"--leader-calibration", p.Calibration},
	} {
		if f.value != "" {
			return exit.Errorf(exit.Usage, "%s is %q, and there is no leader arm: give its serial port as --leader",
				f.flag, f.value)
		}
	}
	return nil
}

// CheckPorts refuses a leader and a follower at the same port. Two links to one port count as one
// port.
func CheckPorts(leader, follower string) error {
	switch {
	case leader == Sim:
		return exit.Errorf(exit.Usage, "--leader sim: the simulated arm inside a run is a follower: start edge-rt "+
			"sim-bus --robot so101_leader --link /tmp/leader, and give its link")
	case RealPath(leader) == RealPath(follower):
		return exit.Errorf(exit.Usage, "leader and follower are both on %s: each arm has its own adapter", leader)
	}
	return nil
}

// RealPath returns the device file to which the links of a port lead, or port unchanged if the file
// is absent.
func RealPath(port string) string {
	if path, err := filepath.EvalSymlinks(port); err == nil {
		return path
	}
	return port
}

// Place is the port of one arm, with the name of its calibration.
type Place struct {
	Part        string // name of the part in a robot of several parts
	Bus         string // serial port
	Robot       robot.Robot
	ID          string // name of the calibration file
	Calibration string // path of the file; empty: LeRobot's path
	Flags       string // prefix of the names of the place's flags: "leader-", or ""
	Taken       string // after Open: the chosen file, with the reason; empty when the flags name a file
}

// File returns the path of the arm's calibration, which may not exist yet.
func (p *Place) File() string {
	if p.Calibration != "" {
		return p.Calibration
	}
	return servo.CalibrationPath(p.Robot, p.ID)
}

// Prefix returns the beginning of the joints' names of the place's part, such as left_.
func (p *Place) Prefix() string { return robot.Part{Name: p.Part}.Prefix() }

// Command returns the arm's flags for a command that a person types. A leader's flags have no
// prefix there.
func (p *Place) Command() string {
	text := "--bus " + Quote(p.Bus)
	if flag := p.Robot.Flag(); flag != "" {
		text += " --robot " + Quote(flag)
	}
	if p.ID != "" {
		text += " --id " + Quote(p.ID)
	}
	if p.Calibration != "" {
		text += " --calibration " + Quote(p.Calibration)
	}
	return text
}

// DefaultRobot is the default of --robot.
const DefaultRobot = "so101"

// plainWord matches a word that a shell does not change.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./~-]+$`)

// Quote quotes a word of a command line for a shell.
func Quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// TorqueOff returns the command that makes an arm limp.
func TorqueOff(bus string, r robot.Robot) string {
	p := Place{Bus: bus, Robot: r}
	return "edge-rt torque off " + p.Command()
}

// Load reads the arm's calibration. Its errors have the code exit.Config. It returns nil when
// neither --id nor --calibration is given and LeRobot's folder has files: Open then chooses the
// file that matches the motors.
func (p *Place) Load() (servo.Calibration, error) {
	if p.ID == "" && p.Calibration == "" {
		files, err := servo.CalibrationFiles(p.Robot)
		switch {
		case err != nil:
			return nil, exit.With(exit.Config, err)
		case len(files) == 0:
			return nil, exit.Errorf(exit.Config, "no calibration for %s in %s: calibrate the arm (edge-rt calibrate "+
				"--bus %s --robot %s --id NAME), or give its file with --%scalibration FILE%s",
				p.Robot.Name, filepath.Dir(p.File()), Quote(p.Bus), Quote(p.Robot.Flag()), p.Flags, p.twin())
		}
		return nil, nil
	}
	c, err := servo.LoadCalibration(p.File())
	if err == nil {
		if err = c.Check(p.Robot); err != nil {
			err = fmt.Errorf("%s: %w", p.File(), err)
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("no calibration for %s at %s: give the --%sid under which it was calibrated, or "+
			"--%[3]scalibration FILE, or run edge-rt calibrate %s%s",
			p.Robot.Name, p.File(), p.Flags, p.Command(), p.twin())
	}
	return c, exit.With(exit.Config, err)
}

// Config returns the configuration that opens the arm at a port, with the calibration of Load. A simulated arm, whose
// port is not Bus, has its own calibration without a file. The errors are those of Load.
func (p *Place) Config(port string, clock rt.Clock) (cfg servo.ArmConfig, err error) {
	cfg = servo.ArmConfig{Path: port, Robot: p.Robot, Clock: clock}
	if port != p.Bus && p.Calibration == "" {
		cfg.Calibration = SimCalibration(p.Robot)
		return cfg, nil
	}
	cfg.Calibration, err = p.Load()
	cfg.File = p.File()
	return cfg, err
}

// Find returns the calibration of Load, or, if Load returns nil, the calibration that matches the
// motors. It also returns the path of the calibration's file.
func (p *Place) Find(cfg *servo.ArmConfig) (c servo.Calibration, file string, err error) {
	if c, err = p.Load(); c != nil || err != nil {
		return c, p.File(), err
	}
	return p.choose(*cfg)
}

// Open opens the arm with cfg.Calibration. When that is nil, Open sets it to the only calibration
// of LeRobot's folder that matches the motors. Its errors have the codes of OpenArm.
func (p *Place) Open(cfg *servo.ArmConfig) (*servo.Arm, error) {
	if cfg.Calibration == nil {
		c, file, err := p.choose(*cfg)
		if err != nil {
			return nil, err
		}
		cfg.Calibration, cfg.File = c, file
	}
	return OpenArm(*cfg)
}

// OpenArm is servo.OpenArm with exit codes, except for servo.ErrCanceled.
func OpenArm(cfg servo.ArmConfig) (*servo.Arm, error) {
	arm, err := servo.OpenArm(cfg)
	return arm, OpenError(err)
}

// OpenError adds the exit code to an error of opening an arm or its port. It leaves servo.ErrCanceled as it is.
func OpenError(err error) error {
	switch {
	case err == nil, errors.Is(err, servo.ErrCanceled):
		return err
	case errors.Is(err, servo.ErrCalibration), errors.Is(err, servo.ErrSetting), errors.Is(err, servo.ErrPort):
		return exit.With(exit.Config, err)
	case errors.Is(err, servo.ErrTorqueOn), errors.Is(err, servo.ErrLatched), errors.Is(err, servo.ErrTurn):
		return exit.With(exit.Fault, err)
	}
	return exit.With(exit.Absent, err)
}

// Absent adds the code exit.Absent to an error that has no exit code.
func Absent(err error) error {
	if exit.Of(err) != exit.Failure {
		return err
	}
	return exit.With(exit.Absent, err)
}
