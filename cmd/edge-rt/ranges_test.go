package main

import (
	"os"
	"testing"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/program/programtest"
	"github.com/edge-rt/edge-rt/internal/terminal"
)

// The program accepts exactly the ranges in the flags' tags. A value at either end of a flag's range passes all
// checks of a run. The run refuses a value just outside the range, with an error that names the flag.
func TestRanges(t *testing.T) {
	flags := programtest.CheckRanges(t, programtest.Commands{
		New:  func() any { return new(cli) },
		Vars: ctlHelp(),
		Needs: map[string]string{
			"move":                 "elbow_flex 10",
			"dataset export":       "a.mcap set",
			"replay":               "x.mcap",
			"filter-order":         "--filter-cutoff 3",
			"filter-gain":          "--filter-cutoff 3",
			"chunk-size-threshold": "--schedule async",
			"similarity":           "--schedule async",
			"estimator-k":          "--estimator jk",
			"estimator-fixed":      "--estimator fixed",
		},
		Check: func(grammar any) error {
			c := grammar.(*cli)
			c.Bus, c.Quiet = device.ByPart{"sim"}, true
			cfg, err := c.config(terminal.New(os.Stderr))
			if err != nil {
				return err
			}
			return cfg.Check()
		},
	})
	if flags < 25 {
		t.Errorf("%d flags have a range, want 25 or more", flags)
	}
}
