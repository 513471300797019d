package main

import (
	"github.com/edge-rt/edge-rt/edge/replay"
	"github.com/edge-rt/edge-rt/internal/terminal"
)

type replayCmd struct {
	File    string  `arg:"" help:"The record, *.mcap."`
	Episode uint32  `help:"Number of the episode, as the record has it; default: the only one." placeholder:"N"`
	Speed   float64 `range:">0..1;an arm is not moved faster than it was shown" default:"1" help:"Share of the speed at which it was recorded."`

	OtherCalibration bool `help:"Go on where the record's calibration puts joints elsewhere than this arm's."`
}

func (replayCmd) Help() string {
	return `The arm is armed at its position and moves slowly to the beginning of the episode; then it moves as the recorded arm did, at the record's rate and never faster than in the record, within the same limits as a policy's actions. Joints and units must be the record's; joints with another position by the record's calibration are named, and refused where the difference is large. At the end, and on Ctrl-C, --on-exit decides. Keep clear: nothing watches the arm's way.

Examples:
  edge-rt replay black-20261124T140320.123Z.mcap --bus /dev/ttyACM0 --id black
  edge-rt replay 1403.mcap --episode 3 --speed 0.5 --bus /dev/ttyACM0 --id black`
}

func (c *replayCmd) Run(flags *cli, screen *terminal.Terminal) error {
	interrupt, stop := interruptible()
	defer stop()
	place, err := flags.place()
	if err != nil {
		return err
	}
	return withWatchdogs(func() error {
		return replay.Run(interrupt, replay.Config{
			File:             c.File,
			Number:           c.Episode,
			Speed:            c.Speed,
			Arm:              place,
			RT:               modes[flags.RT],
			CPU:              flags.CPU,
			OnExit:           flags.OnExit,
			Rescue:           flags.Rescue,
			Seed:             flags.Seed,
			OtherCalibration: c.OtherCalibration,
			Record:           flags.Record,
			RecordDir:        flags.RecordDir,
			RecordSize:       int64(flags.RecordSize),
			Log:              flags.log(screen),
			Out:              stdout,
		})
	}, armAt{flags.Bus, flags.Robot})
}
