// Package bringup implements the commands that an operator uses besides a run. Some take an arm
// from its box to its first run; in the order of their use they are ports.go, scan.go, setup.go,
// calibrate.go, monitor.go, move.go and cameras.go, and each prints the next one. The others are
// torque.go and simbus.go.
//
// A command opens the bus itself and closes it on every way out. A command that switches torque on
// switches it off again.
package bringup

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Config holds the settings of all bring-up commands.
type Config struct {
	device.Place
	In   io.Reader // the operator's input
	Out  io.Writer // output for people
	JSON io.Writer // results for programs; nil: no such output

	Keyboard bool // In is a terminal: a command can ask a person again, and ignores lines typed before a question
	Screen   bool // Out is a terminal: Calibrate draws its table in place

	Clock rt.Clock // nil: the kernel's clock

	typed *typed // lines that the operator types; the commands of EachPart share them
}

// typed are the lines that the operator types; its zero value has not started to read them.
type typed struct {
	once  sync.Once
	lines chan typedLine // closed at the end of the input
}

// typedLine is a line with the time of its end.
type typedLine struct {
	text string
	at   rt.Instant
}

// session is one running command.
type session struct {
	Config
	bus      *servo.Bus
	port     servo.Port
	strange  int   // number of baud rates of the newest scan at which bytes came, but no servo with an id answered
	writeErr error // the first failed write to Out; nil: no failure
}

// maxLine is the longest line that an operator can type, in bytes.
const maxLine = 4096

func newSession(cfg Config) *session {
	if cfg.Clock == nil {
		cfg.Clock = rt.KernelClock()
	}
	if cfg.typed == nil {
		cfg.typed = new(typed)
	}
	return &session{Config: cfg}
}

// checkBus refuses a --bus that is not a port.
func (c *Config) checkBus() error {
	switch c.Bus {
	case "":
		return exit.Errorf(exit.Usage, "--bus is missing: give the arm's serial port; edge-rt ports finds it")
	case device.Sim:
		return exit.Errorf(exit.Usage, "--bus sim is the arm inside a run: start edge-rt sim-bus --link /tmp/arm, "+
			"and give this command --bus /tmp/arm")
	}
	return nil
}

// open starts a session: it opens the port at the robot's baud rate.
func open(cfg Config) (*session, error) {
	if err := cfg.checkBus(); err != nil {
		return nil, err
	}
	s := newSession(cfg)
	return s, s.openBus(cfg.Robot.Baud, cfg.Robot.Protocol())
}

// openBus opens the port. After its first call in a session, it does not wait long for a silent line.
func (s *session) openBus(baud int, p table.Protocol) error {
	again := s.port != nil
	s.close()
	port, err := servo.OpenPortAlone(s.Bus, baud, s.Clock, nil)
	if err != nil {
		return device.OpenError(err)
	}
	s.port, s.bus = port, servo.NewBus(port, baud, p, s.Clock)
	if again {
		s.bus.SetRetry(1, scanWait)
		defer s.bus.ResetRetry()
	}
	s.bus.DetectEcho(servo.MaxID) // an id that no arm uses
	return nil
}

func (s *session) close() {
	if s.port != nil {
		s.port.Close()
		s.port = nil
	}
}

func (s *session) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(s.Out, format+"\n", args...); err != nil {
		s.writeErr = err
	}
}

// report writes a command's result as JSON, one object a line, if --json is given.
func (s *session) report(found any) error {
	if s.JSON == nil {
		return nil
	}
	if err := json.NewEncoder(s.JSON).Encode(found); err != nil {
		return fmt.Errorf("--json: %w", err)
	}
	return nil
}

// errNoOperator ends a command whose question gets no answer.
var errNoOperator = exit.Errorf(exit.Usage,
	"no operator is at the keyboard: this command asks questions, run it in a terminal")

// listen starts to read the operator's lines in a goroutine, because a read of a terminal cannot be interrupted. It
// discards the lines that were typed at a terminal before, and later those that find the channel full: they answer no
// question.
func (s *session) listen() {
	s.typed.once.Do(func() {
		lines := make(chan typedLine, 1)
		s.typed.lines = lines
		if f, ok := s.In.(*os.File); ok && s.Keyboard {
			_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH)
		}
		go func() {
			defer close(lines)
			scanner := bufio.NewScanner(s.In)
			scanner.Buffer(make([]byte, 0, maxLine), maxLine)
			for scanner.Scan() {
				line := typedLine{strings.TrimSpace(scanner.Text()), s.Clock.Now()}
				if !s.Keyboard {
					lines <- line
					continue
				}
				select {
				case lines <- line:
				default:
				}
			}
		}()
	})
}

// typedAhead reports whether the operator has typed a line before a question, which the line must not answer. Lines
// that do not come from a terminal may all be there at the start.
func (s *session) typedAhead(line typedLine, asked rt.Instant) bool {
	return s.Keyboard && line.at < asked
}

// ask prints a question and waits for a line.
func (s *session) ask(ctx context.Context, format string, args ...any) (string, error) {
	s.listen()
	asked := s.Clock.Now()
	fmt.Fprintf(s.Out, format+" ", args...)
	for {
		select {
		case line, ok := <-s.typed.lines:
			if !ok {
				fmt.Fprintln(s.Out)
				return "", errNoOperator
			}
			if !s.typedAhead(line, asked) {
				return line.text, nil
			}
		case <-ctx.Done():
			fmt.Fprintln(s.Out)
			return "", exit.Errorf(exit.Failure, "interrupted: the changes so far stay; run the command again, to its "+
				"end")
		}
	}
}

// pingAll pings every motor of the robot. Its error names the silent ones, and those whose answers are garbled.
func (s *session) pingAll() error {
	var silent, garbled []string
	for _, m := range s.servos() {
		name := fmt.Sprintf("%d (%s)", m.ID, m.Name)
		switch err := s.bus.Ping(m.ID); {
		case errors.Is(err, servo.ErrPortLost):
			return exit.With(exit.Absent, err)
		case errors.Is(err, servo.ErrGarbled):
			garbled = append(garbled, name)
		case err != nil:
			silent = append(silent, name)
		}
	}
	switch {
	case len(garbled) > 0:
		return exit.Errorf(exit.Absent, "garbled replies from motor %s on %s: two motors may have the same id, or a "+
			"plug is loose; edge-rt setup-motors %s gives each motor its own id", strings.Join(garbled, ", "), s.Bus,
			s.flags())
	case len(silent) == 0:
		return nil
	}
	return exit.Errorf(exit.Absent, "no reply from motor %s at %d baud on %s: check power and cables; edge-rt scan "+
		"--bus %s tries every baud rate and kind of motor, edge-rt setup-motors %s numbers new motors",
		strings.Join(silent, ", "), s.Robot.Baud, s.Bus, device.Quote(s.Bus), s.flags())
}

// checkModels fails when a motor has another model than the robot's: the arm is another one, and its motors must not
// get this robot's values.
func (s *session) checkModels() error {
	for _, m := range s.servos() {
		number := s.bus.PingModel(m.ID) // a Dynamixel may answer only pings
		if number == 0 {
			var err error
			number, err = s.read(m, table.ModelNumber)
			if errors.Is(err, servo.ErrNoReply) && m.Model.Protocol == table.Dynamixel1 {
				continue // it may answer only pings, too, until EnableReplies
			}
			if err != nil {
				return err
			}
		}
		if number != m.Model.Number {
			is := found{number: number, model: table.ByNumber(number, m.Model.Protocol)}
			return exit.Errorf(exit.Absent, "%w: motor %d (%s) on %s is a %s, want a %s; nothing was written: edge-rt "+
				"scan --bus %s names the arm of any motors", servo.ErrWrongModel, m.ID, m.Name, s.Bus, is.name(),
				m.Model.Name, device.Quote(s.Bus))
		}
	}
	return nil
}

// read returns a register of a motor.
func (s *session) read(m robot.Motor, r table.Register) (int, error) {
	v, _, err := s.bus.ReadRegister(m.ID, m.Model.Row(r))
	if err != nil {
		return 0, exit.Errorf(exit.Absent, "motor %d (%s): %w", m.ID, m.Name, err)
	}
	return v, nil
}

// torqueOff makes every motor limp. At a terminal it first asks the operator to hold an arm that is under torque, as
// after --on-exit hold; other input has no line for that question.
func (s *session) torqueOff(ctx context.Context) error {
	held := slices.ContainsFunc(s.Robot.Motors, func(m robot.Motor) bool {
		on, err := s.read(m, table.TorqueEnable)
		return err == nil && on != 0
	})
	if held && s.Keyboard {
		if _, err := s.ask(ctx, "The arm is under torque. Hold it, then press Enter: it goes limp."); err != nil {
			return err
		}
	}
	return exit.With(exit.Absent, servo.Release(s.bus, s.Robot))
}

// flags returns the flags with which the operator called the command, for the next command that it
// prints.
func (s *session) flags() string {
	p := s.Place
	if p.Robot.Flag() == device.DefaultRobot {
		p.Robot = robot.Robot{} // the default needs no flag
	}
	return p.Command()
}
