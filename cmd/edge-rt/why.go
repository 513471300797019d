package main

import (
	"errors"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/record/why"
)

type whyCmd struct {
	File    string `arg:"" optional:"" help:"A record, or a folder of them; default: the newest of this host's robots, or of --id." placeholder:"FILE"`
	At      string `help:"Only what went wrong at this local time: 14:03, 14:03:20 or 2026-11-24T14:03:20." placeholder:"TIME"`
	Last    bool   `help:"Only what went wrong last."`
	Latency bool   `help:"Print the time of each stage from a picture to the motors instead."`
	Audit   string `help:"The server's audit file (lean-server --audit): shows what became of requests without an answer." placeholder:"FILE"`
}

func (whyCmd) Help() string {
	return `Reads the flight recorder's files (docs/record.md) and names one cause for every stutter, hold, stale action, overrun, jump and bad end, with the evidence: when each request left, what became of it, and where the time went. The newest comes last. docs/lab/why.md lists the causes.

With --record ring a record is written when something goes wrong; edge-rt ctl save writes one now.

Examples:
  edge-rt why                                           the newest record of this host's robots
  edge-rt why --at 14:03:20                             what happened at that time; finds the record
  edge-rt why --last --id black                         what happened last on robot black
  edge-rt why black-20261124T140320.123Z.mcap           another machine's record
  edge-rt why --audit audit.jsonl FILE                  with the server's audit file
  edge-rt why --latency --audit audit.jsonl FILE        the time of each stage from a picture to the motors
  edge-rt why --json - FILE                             for a script`
}

func (c *whyCmd) Run(flags *cli) error {
	program.IgnoreSIGPIPE()
	if c.Last && c.At != "" {
		return exit.Errorf(exit.Usage, "--last and --at are given together: want one of them")
	}
	dirs, hidden, id, err := edge.RecordFolders(flags.ID)
	if err != nil && flags.RecordDir == "" && c.File == "" {
		return err
	}
	if flags.RecordDir != "" {
		dirs, hidden = []string{flags.RecordDir}, ""
	}
	report, err := why.Run(why.Config{
		Path:   c.File,
		Dirs:   dirs,
		Hidden: hidden,
		ID:     id,
		At:     c.At,
		Last:   c.Last,
		Audit:  c.Audit,
	})
	if err != nil {
		return err
	}
	write := report.Write
	if c.Latency {
		write = report.WriteLatency
	}
	out, err := flags.openJSON()
	switch {
	case err != nil:
		return err
	case out == nil:
		return write(stdout)
	case flags.JSON == "-":
		return report.WriteJSON(stdout)
	}
	return errors.Join(report.WriteJSON(plain.Writer(out)), out.Close(), write(stdout))
}
