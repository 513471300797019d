package main

import (
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/edge-rt/edge-rt/edge/attend"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

type teleopCmd struct {
	Jog bool `help:"Without a leader, move single joints with keys (a digit selects one; hold the up or down arrow) or the page's buttons."`
}

func (teleopCmd) Help() string {
	return `The follower first moves slowly to the leader's pose. You may unplug either arm and plug it in again. At the end --on-exit decides.

Examples:
  edge-rt teleop --leader /dev/ttyACM1 --bus /dev/ttyACM0
  edge-rt teleop --leader /dev/ttyACM1 --leader-id white --bus /dev/ttyACM0 --id black
  edge-rt teleop --leader zenoh:white@tcp/laptop:7448 --bus /dev/ttyACM0
                                                        a leader on another machine: edge-rt leader
  edge-rt teleop --jog --bus /dev/ttyACM0               without a leader: keys move single joints
  edge-rt teleop --robot koch --leader /dev/ttyUSB1 --bus /dev/ttyUSB0 --fps 100
  edge-rt teleop --leader /dev/ttyACM1 --bus /dev/ttyACM0 --camera top=/dev/video0 --record all --task "pick up the cube"
                                                        records everything, also pictures: docs/record.md
  edge-rt teleop --leader /dev/ttyACM1 --bus /dev/ttyACM0 --camera top=/dev/video0 --http 8080 --http-token auto
                                                        a page with large pictures and buttons for episodes`
}

func (c *teleopCmd) Run(flags *cli, screen *terminal.Terminal, parsed *kong.Context) error {
	cfg, err := flags.attended(screen)
	if err == nil {
		cfg.Episodes, err = flags.plan(episode.Base, false, &cfg.Record, parsed)
	}
	if err != nil {
		return err
	}
	if flags.Leader.Text() == device.JogLeader {
		c.Jog, flags.Leader = true, nil
	}
	if c.Jog && flags.Leader.Given() {
		return exit.Errorf(exit.Usage, "--jog and --leader: give one of them, since one of them drives the arm")
	}
	if leader := flags.leaderPlace(); c.Jog {
		if err := leader.CheckUnused(flags.LeaderRobot); err != nil {
			return err
		}
	}
	cfg.Task, cfg.Duration = flags.Task, flags.Duration
	cfg.Listen = func(key func(string)) func() {
		episodes, help := cfg.Record == record.All, ""
		if episodes && cfg.Arm.Robot.Base == nil { // the text about the keys of a base includes the keys of episodes
			help = operator.Keys
		}
		return listen(screen, help, episodes || c.Jog || cfg.Arm.Robot.Base != nil, key).Close
	}
	ctx, stop := program.Interruptible()
	defer stop()
	cfg.Again = func(hurry func()) { again(ctx, hurry) }
	if c.Jog {
		return withWatchdogs(func() error {
			return attend.Jog(ctx, cfg, program.ValueOr(flags.FPS, 60))
		}, flags.arms()...)
	}
	// A leader arm needs a watchdog, too, because its trigger is under torque.
	return withWatchdogs(func() error {
		return attend.Teleop(ctx, attend.TeleopConfig{
			Config:      cfg,
			FPS:         program.ValueOr(flags.FPS, 60),
			Leader:      flags.leaderPlace(),
			Net:         flags.transport(),
			LeaderRobot: flags.LeaderRobot,
		})
	}, flags.arms()...)
}

type leaderCmd struct {
	Listen []string `help:"Listen here for the robot, such as tcp/0.0.0.0:7448 or tls/0.0.0.0:7448, instead of --connect; repeat for more." placeholder:"ENDPOINT"`
}

func (leaderCmd) Help() string {
	return `--robot takes the leader's name or the robot's. The robot uses the leader with --leader zenoh:NAME, in teleop or to take over in a run; one robot at a time. The leader stays limp, and the follower first moves slowly to its pose. Both sides connect to a router or lean-server (--connect on both), or the robot dials the leader (--listen here, zenoh:NAME@ENDPOINT there). With tls/ endpoints --tls-cert and --tls-key are this machine's certificate; with --tls-ca the robot needs one too, whose names include its --id.

Examples:
  edge-rt leader --bus /dev/ttyACM0 --robot so101_leader --id white --listen tcp/0.0.0.0:7448
  edge-rt leader --bus /dev/ttyACM0 --robot so101_leader --id white --connect tcp/policy-box:7447
  edge-rt leader --robot bi_so101 --bus left=/dev/ttyACM0 --bus right=/dev/ttyACM1 --id white --connect tcp/policy-box:7447
                                                        the leaders for a robot of two arms
  edge-rt leader --robot lekiwi --bus /dev/ttyACM0 --id white --listen tcp/0.0.0.0:7448
                                                        its leader arm; keys of this terminal drive the base`
}

func (c *leaderCmd) Run(flags *cli, screen *terminal.Terminal) error {
	robot, err := device.Robot(flags.Robot)
	if err != nil {
		return err
	}
	if !robot.Leader {
		flags.Robot = robot.DefaultLeader()
	}
	place, err := flags.whole()
	if err != nil {
		return err
	}
	net := flags.transport()
	if len(c.Listen) > 0 {
		net = zenoh.Config{Listen: c.Listen, TLS: endpoint.Security{
			RootCA:            flags.TLSCA,
			ListenCertificate: flags.TLSCert,
			ListenKey:         flags.TLSKey,
			MutualTLS:         flags.TLSCA != "",
		}}
	}
	cfg := attend.LeadConfig{
		Arm:      place,
		Base:     robot.Base != nil,
		Net:      net,
		Duration: flags.Duration,
		Log:      flags.log(screen),
		Out:      stdout,
	}
	cfg.Listen = func(key func(string)) func() { return listen(screen, "", true, key).Close }
	if flags.JSON != "" {
		cfg.OpenJSON = func() (io.WriteCloser, error) { return flags.openJSON() }
	}
	if flags.JSON == "-" {
		cfg.Out = plain.Writer(os.Stderr)
	}
	ctx, stop := program.Interruptible()
	defer stop()
	return withWatchdogs(func() error { return attend.Lead(ctx, cfg) }, flags.arms()...)
}

type replayCmd struct {
	File    string  `arg:"" help:"The record, *.mcap."`
	Episode uint32  `help:"Number of the episode in the record; default: the only one." placeholder:"N"`
	Speed   float64 `range:">0..1;an arm is not moved faster than it was shown" default:"1" help:"Share of the recorded speed."`

	OtherCalibration bool `help:"Accept that by the record's calibration joints were elsewhere than by this arm's."`
}

func (replayCmd) Help() string {
	return `The arm moves slowly to the beginning of the episode, then as recorded, at the record's rate and never faster, within the same limits as a policy's actions. Joints and units must be the record's. If the calibrations differ, edge-rt names the joints, and refuses a large difference. At the end, and on Ctrl-C, --on-exit decides. Keep clear: nothing detects obstacles. edge-rt ctl pause holds the arm; after resume it moves slowly to its place in the episode.

Examples:
  edge-rt replay black-20261124T140320.123Z.mcap --bus /dev/ttyACM0 --id black
  edge-rt replay 1403.mcap --episode 3 --speed 0.5 --bus /dev/ttyACM0 --id black`
}

func (c *replayCmd) Run(flags *cli, screen *terminal.Terminal) error {
	cfg, err := flags.attended(screen)
	if err != nil {
		return err
	}
	ctx, stop := program.Interruptible()
	defer stop()
	cfg.Again = func(hurry func()) { again(ctx, hurry) }
	return withWatchdogs(func() error {
		return attend.Replay(ctx, attend.ReplayConfig{
			Config:           cfg,
			File:             c.File,
			Number:           c.Episode,
			Speed:            c.Speed,
			OtherCalibration: c.OtherCalibration,
		})
	}, flags.arms()...)
}

// attended returns the part of the configuration that is the same for teleop and replay.
func (r *runFlags) attended(screen *terminal.Terminal) (attend.Config, error) {
	place, err := r.whole()
	if err != nil {
		return attend.Config{}, err
	}
	cfg := attend.Config{
		Arm:        place,
		RT:         modes[r.RT],
		CPU:        r.CPU,
		OnExit:     r.OnExit,
		Rescue:     r.Rescue,
		Seed:       r.Seed,
		Encoding:   r.encoding(),
		Record:     r.Record,
		RecordDir:  r.RecordDir,
		RecordSize: int64(r.RecordSize),
		Flags:      r.Flags,
		Log:        r.log(screen),
		Out:        stdout,
	}
	if r.JSON != "" {
		cfg.OpenJSON = func() (io.WriteCloser, error) { return r.openJSON() }
	}
	if r.JSON == "-" {
		cfg.Out = plain.Writer(os.Stderr)
	}
	cfg.Cameras, err = r.cameras()
	return cfg, err
}

// encoding returns the encoding of pictures.
func (r *runFlags) encoding() capture.Encoding {
	return capture.Encoding{
		Quality:  program.ValueOr(r.JPEGQuality, capture.DefaultQuality),
		Reencode: r.JPEGQuality != nil,
	}
}
