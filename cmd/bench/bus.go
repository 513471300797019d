package main

import (
	"context"
	"io"
	"os"
	"time"

	"edgert/bench/bus"
)

type busFlags struct {
	Robot    string        `default:"so101" help:"An arm that edge-rt knows, or a description FILE.yaml."`
	Bus      string        `help:"Serial port of a real arm; default: edge-rt sim-bus. Goals are where it stands; some servos take torque by them until the end: support the arm." placeholder:"PORT"`
	Baud     int           `help:"Of the simulator; default: the arm's own." placeholder:"N"`
	Plain    bool          `help:"Simulated Dynamixel motors that do not know fast sync reads."`
	FPS      float64       `name:"fps" default:"100" help:"Cycles per second."`
	Duration time.Duration `default:"1m" help:"Of driver and C echo together; losing replies takes half as long again."`
	Slice    time.Duration `default:"1s" help:"Each in turn runs for this long; short ones find a host that steals no time."`
	Awake    bool          `help:"Keep the cores from falling asleep, with a thread of the lowest class on each: a virtual core that sleeps is lent to others and comes back late. It uses up a container's quota."`
	Drop     float64       `default:"0.02" help:"Share of the replies that the simulator loses in the last part; 0: no such part."`
	Bin      string        `help:"Folder of edge-rt; default: where bench is." placeholder:"DIR"`
	JSON     string        `name:"json" help:"Write the report as JSON to this file, - for standard output." placeholder:"FILE"`
	HTML     string        `name:"html" help:"Write the report as a page with histograms to this file, - for standard output." placeholder:"FILE"`
	Quiet    bool          `help:"No progress, only the table."`
}

func (f *busFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := ready(output{flag: "--json", name: f.JSON}, output{flag: "--html", name: f.HTML}); err != nil {
		return err
	}
	bin, err := folder(f.Bin)
	if err != nil {
		return err
	}
	cfg := bus.Config{Robot: f.Robot, Port: f.Bus, Baud: f.Baud, Plain: f.Plain, FPS: f.FPS, Duration: f.Duration, Slice: f.Slice, Awake: f.Awake, Drop: f.Drop,
		Bin: bin, CC: os.Getenv("CC"), Version: version, Log: progress(f.Quiet, stderr)}
	report, err := bus.Measure(ctx, cfg)
	if err != nil {
		return err
	}
	return deliver(stdout, stderr, report.WriteTable, output{"--json", f.JSON, report.WriteJSON}, output{"--html", f.HTML, report.WriteHTML})
}
