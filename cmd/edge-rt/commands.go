package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/edge-rt/edge-rt/bringup"
	"github.com/edge-rt/edge-rt/bringup/watchdog"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/record/timeline"
)

// commands are the operator's commands beside a run. The uses tag of a command lists the runFlags that the command
// accepts; the help and the refusals of flags follow from this tag.
type commands struct {
	Ctl     ctlCmd     `cmd:"" uses:"id,task typed" help:"Pause, resume, take over or reset a run, begin and end episodes, or print its state."`
	SimBus  simBusCmd  `cmd:"" uses:"robot,seed" name:"sim-bus" help:"Simulate an arm as a serial device for any program, until SIGTERM."`
	Torque  torqueCmd  `cmd:"" uses:"bus,robot,on-exit,leader,leader-robot" lenient:"" help:"Make every motor limp, such as after a killed run; exit code 4 if one does not confirm."`
	Cameras camerasCmd `cmd:"" uses:"camera,jpeg-quality,json typed" help:"List the cameras with their modes and controls, or take one picture."`

	Doctor      doctorCmd      `cmd:"" uses:"bus,robot,calibration,id,camera,fps,connect,tls-ca,tls-cert,tls-key,service,record-dir,json typed" help:"Check whether this machine can run an arm: kernel, permissions, ports, power, disk, and on request bus, cameras and server."`
	Ports       portsCmd       `cmd:"" uses:"json typed" help:"List the serial ports; --unplug finds the arm's by pulling its cable."`
	Scan        scanCmd        `cmd:"" uses:"bus,robot,calibration,id,json typed" help:"Find all servos on the bus and compare them with --robot."`
	SetupMotors setupMotorsCmd `cmd:"" uses:"bus,robot,calibration,id" name:"setup-motors" help:"Give each motor of a new arm its id and speed, one at a time."`
	Calibrate   calibrateCmd   `cmd:"" uses:"bus,robot,calibration,id" help:"Find the joints' ranges as LeRobot does; writes them to the motors and LeRobot's file."`
	Monitor     monitorCmd     `cmd:"" uses:"bus,robot,calibration,id,duration typed,json typed" help:"Show position, load, temperature, supply and errors of every motor. Reads only."`
	Move        moveCmd        `cmd:"" uses:"bus,robot,calibration,id" help:"Move one joint slowly to a position, then switch the torque off."`
	Teleop      teleopCmd      `cmd:"" uses:"fps,bus,robot,calibration,id,duration,rt,cpu,rescue,on-exit,task,seed,camera,jpeg-quality,record,record-dir,record-size,episodes,episode-time,reset-time,quiet,http,http-token,http-name,metrics,json,leader,leader-robot,leader-id,leader-calibration,connect,tls-ca,tls-cert,tls-key" help:"Drive the arm with a leader arm, and record its motion."`

	Lead leaderCmd `cmd:"" name:"leader" uses:"bus,robot,calibration,id,duration,connect,tls-ca,tls-cert,tls-key,quiet,json" help:"Offer a leader arm to a robot on another machine."`

	Fleet fleetCmd `cmd:"" uses:"connect,tls-ca,tls-cert,tls-key,json typed" help:"Watch a fleet of robots."`

	Dataset datasetCmd `cmd:"" uses:"fps typed,task typed,json typed" help:"Make a LeRobotDataset from records, or inspect one: export, info, check."`

	Why whyCmd `cmd:"" uses:"id,record-dir,json typed" help:"Explain why the arm stuttered, held, jumped or ended, from its record."`

	Replay replayCmd `cmd:"" uses:"bus,robot,calibration,id,rt,cpu,rescue,on-exit,seed,camera,jpeg-quality,record,record-dir,record-size,quiet,http,http-token,http-name,metrics,json" help:"Run a recorded episode's actions on the arm."`

	View viewCmd `cmd:"" uses:"" help:"Show a record in Rerun or Foxglove if installed, else as a page."`

	Version versionCmd `cmd:"" uses:"" help:"Print the version and which transport is built in."`
}

// again waits in a goroutine for the end of ctx, then for a signal, and calls hurry. The caller calls stop to end the
// wait.
func again(ctx context.Context, hurry func()) (stop func()) {
	next := make(chan os.Signal, 1)
	context.AfterFunc(ctx, func() { signal.Notify(next, syscall.SIGINT, syscall.SIGTERM) })
	go func() {
		<-next
		hurry()
	}()
	return func() { signal.Stop(next) }
}

// bringup runs a command of package bringup, at one arm or at none, with the configuration that all these commands have
// in common.
func (r *runFlags) bringup(run func(context.Context, bringup.Config) error) error {
	place, err := r.place()
	if err != nil {
		return err
	}
	return r.bringupAt(place, run)
}

// bringupAt runs a command of package bringup at the arm of a place.
func (r *runFlags) bringupAt(place device.Place, run func(context.Context, bringup.Config) error) error {
	return r.report(func(ctx context.Context, cfg bringup.Config) error {
		cfg.Place = place
		return run(ctx, cfg)
	})
}

// report runs a command of package bringup that writes text. With --json, report writes the
// command's result as JSON instead.
func (r *runFlags) report(run func(context.Context, bringup.Config) error) error {
	interrupt, stop := program.Interruptible()
	defer stop()
	cfg := bringup.Config{In: os.Stdin, Out: printed, Keyboard: terminal.Is(os.Stdin)}
	if r.JSON == "" {
		return run(interrupt, cfg)
	}
	file, err := r.openJSON()
	if err != nil {
		return err
	}
	cfg.JSON = plain.Writer(file)
	if r.JSON == "-" {
		cfg.Out = os.Stderr
	}
	return errors.Join(run(interrupt, cfg), file.Close())
}

type viewCmd struct {
	File   string `arg:"" optional:"" help:"The record, *.mcap; with --live the address of a run's page (--http), by default http://127.0.0.1:8080."`
	HTML   string `name:"html" help:"Write the page to this file, even if a viewer is installed." placeholder:"FILE"`
	Live   bool   `help:"Stream a run to Foxglove or Lichtblick, or with --rerun to Rerun: joints, times, log, status and pictures from its page."`
	Listen string `help:"Address of the stream of --live; default 127.0.0.1:8765." placeholder:"HOST:PORT"`
	Rerun  bool   `help:"With --live: stream to Rerun, by Rerun's SDK in --python. Starts this machine's viewer if none runs."`
	Viewer string `help:"With --rerun: another running viewer." placeholder:"rerun+http://HOST:9876/proxy"`
	Python string `default:"python3" help:"Interpreter with rerun-sdk, for --rerun." placeholder:"PROGRAM"`
}

func (viewCmd) Help() string {
	return `Shows a damaged record as far as it is readable. The page is one file without links: lines of runway, age, round trip, lateness and joints, marks of events, and some of the pictures.

Examples:
  edge-rt view black-20261124T140320.123Z.mcap          in Rerun, or as a page in the same folder
  edge-rt view black-20261124T140320.123Z.mcap --html 1403.html
  edge-rt view --live http://robot.lan:8080             in Foxglove: ws://127.0.0.1:8765
  edge-rt view --live --rerun                           a run on this machine, in Rerun`
}

func (c *viewCmd) Run() error {
	interrupt, stop := program.Interruptible()
	defer stop()
	switch {
	case c.Live && c.HTML != "":
		return exit.Errorf(exit.Usage, "--html is for a record, and --live for a run: choose one")
	case !c.Live && (c.Rerun || c.Listen != ""), !c.Rerun && c.Viewer != "":
		return exit.Errorf(exit.Usage, "--rerun and --listen are for --live, and --viewer is for --rerun")
	case c.Rerun && c.Listen != "":
		return exit.Errorf(exit.Usage, "--listen is for viewers of Foxglove's protocol; Rerun's is found by --viewer: "+
			"choose one")
	case c.Live:
		cfg := timeline.RelayConfig{
			Page:   cmp.Or(c.File, "http://127.0.0.1:8080"),
			Listen: cmp.Or(c.Listen, "127.0.0.1:8765"),
			Viewer: c.Viewer,
			Out:    stdout,
		}
		if c.Rerun {
			cfg.Python = c.Python
		}
		return timeline.Relay(interrupt, cfg)
	case c.File == "":
		return exit.Errorf(exit.Usage, "want a record, *.mcap, or --live")
	}
	return timeline.Show(interrupt, timeline.ShowConfig{File: c.File, HTML: c.HTML, Out: stdout})
}

type versionCmd struct{}

func (versionCmd) Run() error {
	_, err := fmt.Fprintln(printed, versionLine())
	return err
}

type ctlCmd struct {
	Word string   `arg:"" enum:"${ctl_words}" help:"${ctl_help}"`
	Text []string `arg:"" optional:"" help:"The task."`
}

// ctlHelp returns the descriptions of the ctl commands for the grammar, from operator.Commands.
func ctlHelp() map[string]string {
	var lines []string
	for _, c := range operator.Commands {
		lines = append(lines, strings.TrimSpace(c.Word+" "+c.Text)+": "+c.Help+".")
	}
	return map[string]string{"ctl_words": strings.Join(operator.Words(), ","), "ctl_help": strings.Join(lines, " ")}
}

// Run sends one command and prints the edge's answer as JSON.
func (c *ctlCmd) Run(flags *cli) error {
	command, err := operator.Find(c.Word)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	line, text := c.Word, strings.Join(c.Text, " ")
	switch {
	case flags.Task == "":
	case c.Word != episode.Start && c.Word != operator.Task:
		return exit.Errorf(exit.Usage, "ctl %s: --task is for ctl start and ctl task", c.Word)
	case text != "":
		return exit.Errorf(exit.Usage, "ctl %s: the task is given twice, as %q and as --task %q: give one of them",
			c.Word, text, flags.Task)
	default:
		text = flags.Task
	}
	switch {
	case command.May && text == "":
	case command.Text != "" && text == "":
		return exit.Errorf(exit.Usage, `ctl %s: want a text after it, such as: edge-rt ctl task "pick up the cube"`,
			c.Word)
	case command.Text != "":
		if err := operator.CheckTask("ctl "+c.Word+": the text", text); err != nil {
			return err
		}
		line += " " + text
	case text != "":
		return exit.Errorf(exit.Usage, "ctl %s takes no text after it, got %q", c.Word, text)
	}
	reply, err := operator.Ctl(flags.ID, line)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(reply)
}

type torqueCmd struct {
	Word   string `arg:"" enum:"off" help:"off: no motor holds any more, so support the arm first. Needs --bus, or the --config of the run."`
	Orphan bool   `hidden:"" help:"For the watchdog process: only when standard input ends without a byte."`
}

func (torqueCmd) Help() string {
	return `Needs no calibration and configures nothing; systemd runs it after edge-rt was killed.

Examples:
  edge-rt torque off --bus /dev/ttyACM0
  edge-rt torque off --bus /dev/ttyUSB0 --robot koch`
}

func (c *torqueCmd) Run(flags *cli, screen *terminal.Terminal) error {
	program.IgnoreSIGPIPE()
	if !c.Orphan {
		return bringup.TorqueOff(bringup.TorqueOffConfig{
			Bus:         flags.Bus,
			Robot:       flags.Robot,
			OnExit:      flags.OnExit,
			Leader:      flags.Leader,
			LeaderRobot: flags.LeaderRobot,
		}, stdout)
	}
	place, err := flags.place()
	if err != nil {
		return err
	}
	text, err := watchdog.Run(os.Stdin, place.Bus, place.Robot)
	if text != "" {
		warnOn(screen)(strings.TrimSuffix(text, "\n"))
	}
	return err
}

type camerasCmd struct {
	List     listCamerasCmd `cmd:"" uses:"json typed" default:"withargs" help:"List the cameras of this machine (the default)."`
	Snapshot snapshotCmd    `cmd:"" uses:"camera,jpeg-quality" help:"Take one picture of --camera, as the policy would get it: edge-rt cameras snapshot --camera front=/dev/video0 -o x.jpg"`
}

type listCamerasCmd struct {
	All bool `help:"All modes and controls, not only the usual ones."`
}

func (c *listCamerasCmd) Run(flags *cli) error {
	return flags.bringup(func(_ context.Context, cfg bringup.Config) error {
		cfg.Out = plain.Writer(cfg.Out) // a device's name may contain control characters
		return bringup.Cameras(cfg, c.All)
	})
}

type snapshotCmd struct {
	Out string `short:"o" required:"" help:"Where to write the picture, *.jpg or *.png." placeholder:"FILE"`
}

func (c *snapshotCmd) Run(flags *cli) error {
	if len(flags.Camera) != 1 {
		return exit.Errorf(exit.Usage,
			"%d cameras, want one: edge-rt cameras snapshot --camera front=/dev/video0 -o x.jpg", len(flags.Camera))
	}
	return capture.Snapshot(stdout, flags.Camera[0], flags.encoding(), c.Out)
}

type portsCmd struct {
	Unplug bool `help:"Find the arm's port by unplugging it."`
}

func (portsCmd) Help() string {
	return `Shows a lasting name for each port, because ttyACM0 may be ttyACM1 after you plug it in again: by serial number if that is unique, otherwise by USB socket, with the reason.

Examples:
  edge-rt ports                                         what is plugged in
  edge-rt ports --unplug                                which of them is the arm
  edge-rt ports --json -                                for a script`
}

func (c *portsCmd) Run(flags *cli) error {
	return flags.bringup(func(ctx context.Context, cfg bringup.Config) error {
		cfg.Out = plain.Writer(cfg.Out) // a device's name may contain control characters
		return bringup.Ports(ctx, bringup.PortsConfig{
			Config: cfg,
			Unplug: c.Unplug,
			Dev:    "/dev",
			Sys:    "/sys",
			Proc:   "/proc",
		})
	})
}

type scanCmd struct {
	partFlag
	Last uint8 `range:"0..252;the highest id in every protocol" default:"30" help:"Highest id to try; ids go up to 252."`
}

func (scanCmd) Help() string {
	return `Tries every id at every speed in every protocol: finds also new servos, and two with one id. With --robot it reports missing and different servos.

Examples:
  edge-rt scan --bus /dev/ttyACM0                       which servos are there
  edge-rt scan --bus /dev/ttyACM0 --robot so101         is the SO-101 complete
  edge-rt scan --bus /dev/ttyACM0 --last 252            also ids above 30
  edge-rt scan --bus /dev/ttyACM0 --json -              for a script`
}

func (c *scanCmd) Run(flags *cli, parsed *kong.Context) error {
	places, err := flags.placesOf(c.Part)
	if err != nil {
		return err
	}
	return flags.bringupAt(places[0], func(ctx context.Context, cfg bringup.Config) error {
		scan := bringup.ScanConfig{Config: cfg, Last: c.Last, Named: program.Set(parsed, "robot")}
		if places[0].Part == "" {
			return bringup.Scan(ctx, scan)
		}
		return bringup.ScanParts(cfg, places, flags.command("calibrate"),
			func(cfg bringup.Config) (bringup.ScanReport, error) {
				scan.Config = cfg
				return bringup.ScanBus(ctx, scan)
			})
	})
}

type setupMotorsCmd struct {
	partFlag
}

func (setupMotorsCmd) Help() string {
	return `For new motors, which all have the same id. Connect one at a time, when it asks, the gripper's first.

Examples:
  edge-rt setup-motors --bus /dev/ttyACM0
  edge-rt setup-motors --bus /dev/ttyUSB0 --robot koch`
}

func (c *setupMotorsCmd) Run(flags *cli) error {
	return c.eachPart(flags, "scan", bringup.SetupMotors)
}

type calibrateCmd struct {
	partFlag
}

func (calibrateCmd) Help() string {
	return `Torque goes off: hold the arm. The command asks you to put every joint into the middle of its range, then to move each from end to end; a table shows which joints have moved enough. It refuses implausible ranges and names the joint. If it is interrupted after the middle pose, run it again to continue. An arm that LeRobot has calibrated needs no calibration.

Examples:
  edge-rt calibrate --bus /dev/ttyACM0 --id black       the file is LeRobot's black.json
  edge-rt sim-bus --hand --link /tmp/arm                to practise: a simulated arm and hand; then --bus /tmp/arm
  edge-rt calibrate --bus /dev/ttyACM1 --robot so101_leader --id white`
}

func (c *calibrateCmd) Run(flags *cli) error {
	return c.eachPart(flags, "monitor", func(ctx context.Context, cfg bringup.Config) error {
		cfg.Screen = terminal.Is(os.Stdout)
		return bringup.Calibrate(ctx, cfg)
	})
}

type monitorCmd struct {
	partFlag
	Every time.Duration `range:"20ms..;the fastest that people read tables" default:"200ms" help:"Time between tables."`
	Count int           `range:"0..;0 is no end" help:"End after this many tables; 0: when interrupted."`
}

func (monitorCmd) Help() string {
	return `Changes nothing, and works before calibration. The port must be free: during a run, its page (--http) shows the joints.

Examples:
  edge-rt monitor --bus /dev/ttyACM0 --id black         until Ctrl-C
  edge-rt monitor --bus /dev/ttyACM0 --duration 10s     for ten seconds
  edge-rt monitor --bus /dev/ttyACM0 --count 1 --json - one table, for a script`
}

func (c *monitorCmd) Run(flags *cli) error {
	places, err := flags.placesOf(c.Part)
	if err != nil {
		return err
	}
	cfg := bringup.MonitorConfig{
		Every:    c.Every,
		Count:    c.Count,
		Duration: flags.Duration,
		Places:   places,
	}
	return flags.bringupAt(places[0], func(ctx context.Context, common bringup.Config) error {
		cfg.Config, cfg.Live = common, common.JSON == nil && terminal.Is(os.Stdout)
		return bringup.Monitor(ctx, cfg)
	})
}

type moveCmd struct {
	Joint string  `arg:"" help:"The joint, such as elbow_flex."`
	To    float64 `arg:"" help:"Goal in the joint's unit: degrees, such as -10, or 0 to 100 for a gripper."`
	Speed float64 `range:">0..1;a share of the joint's velocity limit" default:"0.1" help:"Share of the joint's velocity limit."`
}

func (moveCmd) Help() string {
	return `The other joints of the arm hold meanwhile; another arm of the robot is not touched. At the end, and on Ctrl-C, torque goes off: hold the arm.

Examples:
  edge-rt move elbow_flex -10 --bus /dev/ttyACM0 --id black
  edge-rt move gripper 50 --speed 0.3 --bus /dev/ttyACM0 --id black
  edge-rt move left_gripper 50 --robot bi_so101 --bus left=/dev/ttyACM0 --bus right=/dev/ttyACM1 --id black`
}

func (c *moveCmd) Run(flags *cli) error {
	place, joint, err := flags.placeOf(c.Joint)
	if err != nil {
		return err
	}
	return flags.bringupAt(place, func(ctx context.Context, cfg bringup.Config) error {
		return withWatchdogs(func() error {
			return bringup.Move(ctx, bringup.MoveConfig{
				Config: cfg,
				Joint:  joint,
				To:     c.To,
				Speed:  c.Speed,
			})
		}, armAt{place.Bus, place.Robot.Flag()})
	})
}

type armAt struct{ bus, robot string }

// guard starts a watchdog process for each arm that has a port.
func guard(w io.Writer, instead string, arms ...armAt) (dogs []*watchdog.Watchdog) {
	for _, a := range arms {
		if dog := watchdog.Start(a.bus, a.robot, instead, warnOn(w)); dog != nil {
			dogs, instead = append(dogs, dog), ""
		}
	}
	return dogs
}

// withWatchdogs runs a command that drives arms, with a watchdog process for each arm that has a port.
func withWatchdogs(run func() error, arms ...armAt) error {
	dogs := guard(os.Stderr, "Ctrl-C ends it", arms...)
	err := run()
	for _, w := range dogs { // a panic skips this loop, so that the watchdog processes release the arms
		w.Stop()
	}
	return err
}

type simBusCmd struct {
	bringup.SimBusConfig `embed:""`
}

func (simBusCmd) Help() string {
	return `Any program can open it like /dev/ttyACM0: edge-rt, LeRobot, a vendor's tool. docs/simulator.md describes the simulation and the faults.

Examples:
  edge-rt sim-bus --link /tmp/so101                     then --bus /tmp/so101 elsewhere
  edge-rt sim-bus --robot koch --link /tmp/koch --faults faults.yaml
  edge-rt sim-bus --robot single --link /tmp/one --baud 115200
  edge-rt sim-bus --link /tmp/so101 --motors            joints with weight and friction
  edge-rt sim-bus --link /tmp/so101 --hand              a simulated hand moves the joints, to practise edge-rt calibrate

Where sources disagree, the default is the harder case for a program: a goal turns a Feetech's torque on (else --goal-leaves-torque), and an
overload stays (else --overload-yields). With --boot-torque all, motors hold as soon as they have power.`
}

func (c *simBusCmd) Run(flags *cli) error {
	ctx, stop := program.Interruptible()
	defer stop()
	c.Robot, c.Seed = flags.Robot, flags.Seed
	return bringup.ServeSimBus(ctx, c.SimBusConfig, printed)
}
