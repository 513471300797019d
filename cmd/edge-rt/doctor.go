package main

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/edge-rt/edge-rt/bringup"
	"github.com/edge-rt/edge-rt/bringup/doctor"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/internal/terminal"
)

type doctorCmd struct {
	Fix bool          `help:"Offer to run the safe commands, one after another."`
	For time.Duration `range:"1s..1h" default:"30s" help:"How long to measure the connection to the server."`
}

func (doctorCmd) Help() string {
	return `Each line has a finding; below it are a better value and the command that sets it. With --bus, --camera and --connect it also measures the bus, the cameras and the server, and proposes flags for a run. Without --fix it changes nothing. It never switches torque on.

Exit codes: 0 no problem, 3 a problem is left.

Examples:
  edge-rt doctor                                        the machine
  edge-rt doctor --fix                                  and offer to change it
  edge-rt doctor --bus /dev/ttyACM0 --camera front=/dev/video0 --connect tcp/gpu:7447
  edge-rt doctor --config /etc/edge-rt/left.yaml        the arm of a service
  edge-rt doctor --json -                               for a script`
}

func (c *doctorCmd) Run(flags *cli, screen *terminal.Terminal, parsed *kong.Context) error {
	r := &flags.runFlags
	cfg := doctor.Config{
		Service: r.Service,
		FPS:     program.ValueOr(r.FPS, 0),
		For:     c.For,
		Folders: []string{cmp.Or(r.RecordDir, "/")},
		Fix:     c.Fix,
		In:      os.Stdin,
		Root:    "/",
	}
	var err error
	if dirs, _, _, err := edge.RecordFolders(r.ID); r.RecordDir == "" && err == nil {
		cfg.Folders = dirs
	}
	if len(r.Bus) > 0 {
		if cfg.Places, err = r.places(); err != nil {
			return err
		}
	}
	if cfg.Cameras, err = r.cameras(); err != nil {
		return err
	}
	cfg.Connect = r.transport()
	if !program.Set(parsed, "connect") {
		cfg.Connect.Connect = nil // doctor does not examine the default endpoint
	}
	if terminal.Is(os.Stderr) {
		cfg.Progress = func(text string) { screen.Write([]byte(text)) }
	}
	return r.report(func(ctx context.Context, out bringup.Config) error {
		cfg.Out, cfg.JSON = out.Out, out.JSON
		return doctor.Run(ctx, cfg)
	})
}
