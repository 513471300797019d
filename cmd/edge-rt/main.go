// Edge-rt drives a robot arm from a policy on another machine.
//
//	edge-rt --bus /dev/ttyACM0 --camera top=/dev/video0 --connect tcp/gpu-box:7447
//
// It ends with one of the codes of internal/exit. Files: main.go (the program), run.go, schedule.go
// and record.go (the flags of a run), commands.go (the operator's commands beside a run).
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/wire/network"
)

const description = `Runs a robot arm from a policy that lives on another machine.

A real-time thread reads the arm, takes the next action from the schedule, limits it and writes it back, 30 to 60 times a second. Everything else, cameras and network, happens beside it.

Examples:
  edge-rt --bus sim --camera top=sim                        the simulated arm against a server on this machine
  edge-rt --bus /dev/ttyACM0 --connect tcp/gpu:7447         a real SO-101, at the rate of its policy
  edge-rt --bus sim --connect tls/gpu:7447 --tls-ca ca.pem --tls-cert robot.pem --tls-key robot.key
                                                            encrypted, both sides with certificates
  edge-rt --bus sim --camera top=sim --duration 20s --json -  twenty seconds, summary as JSON
  edge-rt cameras                                           which cameras are here, and how to name them
  edge-rt ctl status                                        how the running edge goes
  edge-rt why --at 14:03:20                                 why the arm stuttered then
  edge-rt --bus sim --camera top=sim --http 8080            the same and its cameras in a browser, at http://127.0.0.1:8080/
  edge-rt replay FILE.mcap --bus /dev/ttyACM0               the same movement again, slowly to its start first
  edge-rt view FILE.mcap                                    what a run left on record, in Rerun or as a page
  edge-rt sim-bus --link /tmp/so101                         a simulated SO-101 for any other program
  edge-rt sim-bus --robot koch --link /tmp/koch --faults f.yaml  a Koch whose bus goes wrong as f.yaml says
  edge-rt torque off --bus /dev/ttyACM0                     make the arm limp after a program was killed

A new arm, step by step:
  edge-rt ports --unplug                                    which port is the arm?
  edge-rt scan --bus /dev/ttyACM0 --robot so101             are all motors there?
  edge-rt setup-motors --bus /dev/ttyACM0                   give new motors their ids
  edge-rt calibrate --bus /dev/ttyACM0 --id black           find the joints' ranges
  edge-rt monitor --bus /dev/ttyACM0 --id black             watch every motor
  edge-rt move elbow_flex 10 --bus /dev/ttyACM0 --id black  move one joint slowly
  edge-rt teleop --leader /dev/ttyACM1 --bus /dev/ttyACM0   drive it with a leader arm

Exit codes: 0 stopped as asked, 1 broke while running or --http is taken, 2 wrong flag, 3 config or contract refused, 4 device or server absent, 5 real time refused (--rt=require), 6 an operator is needed.`

// brief is the short help, which fits on a screen. A test compares its commands and flags with the grammar.
const brief = `edge-rt runs a robot arm from a policy that lives on another machine.

  edge-rt --fps 60 --bus /dev/ttyACM0 --camera top=/dev/video0 --connect tcp/gpu:7447
  edge-rt --bus sim --camera top=sim        the simulated arm, a server on this machine

A new arm     doctor        can this machine run an arm?
              ports         which serial port is the arm?
              scan          are all its motors there?
              setup-motors  give new motors their ids
              calibrate     find the joints' ranges
              monitor       watch every motor (only reads)
              move          move one joint slowly
              cameras       which cameras are here, and how to name them
Drive         run           run a policy until Ctrl-C (the default command)
              teleop        drive the arm with a leader arm, and record it
              leader        share a leader arm with a robot on another machine
              replay        run a recorded movement again
              ctl           pause, resume, status … of a run
              torque off    make the arm limp after a program was killed
Understand    why           why did it stutter, hold or end?
              view          show a record, in Rerun or as a page
              dataset       make a LeRobotDataset from records
              fleet top     every robot at a server or router
Simulate      sim-bus       a simulated arm as a device for any program

Usual flags:
  --bus PORT            serial port of the arm, or sim; --robot NAME, default so101
  --camera NAME=SOURCE  such as top=/dev/video0:640x480@30; repeat for more
  --connect ENDPOINT    the server or router; default tcp/localhost:7447
  --id NAME             the robot's name, and that of its calibration
  --task TEXT           what the arm should do, for policies that read it
  --duration TIME       stop this long after the session opened
  --http PORT           a page with cameras and buttons; --json FILE, the summary
  --config FILE         any flags by name, in YAML; also as EDGE_RT_… variables

More: edge-rt run --help (all flags of a run), edge-rt COMMAND --help, --help-all, --version
`

type cli struct {
	program.Common `embed:""`
	runFlags       `embed:""`

	Run      runCmd `cmd:"" default:"1" help:"Run the robot until SIGINT, SIGTERM or --duration (the default command)."`
	commands `embed:""`
}

const name = "edge-rt"

// version is set by the Makefile.
var version = "dev"

func versionLine() string { return fmt.Sprintf("edge-rt %s, transport %s", version, network.Transport) }

func main() { os.Exit(int(run(os.Args[1:]))) }

func run(args []string) exit.Code {
	var c cli
	p := program.Program{
		Name:        name,
		Description: description,
		Brief:       brief,
		Version:     versionLine(),
		Env:         "EDGE_RT",
		Stdout:      printed,
		Stderr:      os.Stderr,
		Vars:        ctlHelp(),
		Once: []string{
			"robot", "id", "service", "link", "expect-model", "leader-robot", "leader-id",
		},
	}
	ctx, code, done := p.Parse(&c, args)
	if done {
		return code
	}
	screen := terminal.New(os.Stderr) // a stopped terminal must not block writes to standard error
	p.Stderr = screen
	err := ctx.Run(ctx, screen)
	c.fail(err)
	code = p.Report(err)
	screen.Flush()
	return code
}

// printed is standard output. stdout is standard output for text that may be from a foreign file, a server or a device:
// stdout makes control sequences harmless.
var (
	printed = program.NewOutput(os.Stdout)
	stdout  = plain.Writer(printed)
)

// warnOn returns a function that prints a warning as one line.
func warnOn(w io.Writer) func(string) {
	return func(text string) { fmt.Fprintf(w, "%s: %s\n", name, text) }
}
