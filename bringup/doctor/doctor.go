// Package doctor examines a machine that is to run an arm: its kernel and processors (machine.go), the permissions and
// programs at its serial ports (ports.go), its board, disk and clock (board.go), and on request the bus, the cameras
// and the server (measure.go). Each finding has the better value and the command that sets it. The measurements lead to
// proposed flags for a run (profile.go).
//
// The package changes nothing unless an operator agrees to a command, except that an examined arm gets the settings
// that each opening writes to its motors.
package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// Level is the weight of a finding.
type Level string

// The levels, from the lightest.
const (
	OK      Level = "ok"
	Unknown Level = "unknown" // this system does not show the value
	Advice  Level = "advice"  // a run works, and a better value would help it
	Problem Level = "problem" // a run fails, or misses its deadlines
)

// Finding is one line of the report.
type Finding struct {
	Check   string `json:"check"`             // subject, such as governor
	Level   Level  `json:"level"`             // ok, unknown, advice or problem
	Found   string `json:"found"`             // value on this machine
	Better  string `json:"better,omitempty"`  // value that is better
	Command string `json:"command,omitempty"` // shell command that sets it
	Safe    bool   `json:"safe,omitempty"`    // --fix offers to run the command
	Fixed   bool   `json:"fixed,omitempty"`   // the command has run, and the finding is gone
}

// unknown makes f a finding about a value that cannot be found. The text why is the reason.
func (f *Finding) unknown(why string) { f.Level, f.Found = Unknown, why }

// set sets the weight of f, the value on this machine and the better value.
func (f *Finding) set(level Level, found, better string) {
	f.Level = level
	f.Found, f.Better = found, better
}

// offer does the same as the method set, and adds the command that --fix offers to run.
func (f *Finding) offer(level Level, found, better, command string) {
	f.set(level, found, better)
	f.Command, f.Safe = command, true
}

// Report is the --json of edge-rt doctor.
type Report struct {
	Findings []Finding `json:"findings"`
	Link     *Link     `json:"link,omitempty"`    // absent without --connect
	Profile  *Profile  `json:"profile,omitempty"` // proposed for a run, from the measurements; absent without --connect
	Flags    []string  `json:"flags,omitempty"`   // flags of profile that differ from the defaults
}

// Config selects the examinations.
type Config struct {
	Places   []device.Place   // arms to measure; empty: every port is examined, none is opened
	Cameras  []capture.Config // cameras to measure
	Connect  zenoh.Config     // the server's endpoints; without any, doctor does not examine it
	Service  string           // name of the service; empty: any
	FPS      float64          // rate that the bus must keep; 0: 60
	For      time.Duration    // duration of the measurement of the link
	Folders  []string         // folders of records: this user's, then those of services
	Fix      bool             // offer to run the safe commands
	In       io.Reader        // the operator's answers
	Out      io.Writer        // output for people
	JSON     io.Writer        // nil: no JSON
	Root     string           // "/"; tests have another folder
	Progress func(text string)
}

// Run examines the machine and reports the findings. While a problem is left it returns an error with exit code 3.
func Run(ctx context.Context, cfg Config) error {
	out := plain.Writer(cfg.Out) // names of devices and programs are foreign text
	d := &doctor{Config: cfg}
	report := Report{}
	report.Findings = append(d.examine(), d.measure(ctx)...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	report.Link = d.link
	report.Profile, report.Flags = d.propose()
	left, cure := 0, "the cures are above"
	answers := bufio.NewScanner(cfg.In)
	for i := range report.Findings {
		f := &report.Findings[i]
		f.write(out)
		f.Fixed = cfg.Fix && f.Safe && f.Level != OK && fix(ctx, out, answers, f.Command) && d.mended(out, f)
		if f.Level == Problem && !f.Fixed {
			left++
			if f.Safe && !cfg.Fix {
				cure = "run the commands above, or edge-rt doctor --fix"
			}
		}
	}
	if p := report.Profile; p != nil {
		fmt.Fprintf(out, "\nprofile: %s, %g Hz, buffer %.0f ms, s_min %d, JPEG quality %d\n", p.Network, p.FPS,
			p.BufferMS,
			p.SMin, p.JPEGQuality)
	}
	if len(report.Flags) > 0 {
		fmt.Fprintf(out, "\nproposed: edge-rt %s\n", strings.Join(report.Flags, " "))
	}
	var err error
	if cfg.JSON != nil {
		encoder := json.NewEncoder(cfg.JSON)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	}
	if left > 0 {
		are := "problems are"
		if left == 1 {
			are = "problem is"
		}
		err = errors.Join(err, exit.Errorf(exit.Config, "%d %s left: %s", left, are, cure))
	}
	return err
}

// examine makes the checks that need no measurement.
func (d *doctor) examine() []Finding { return slices.Concat(d.machine(), d.ports(), d.board()) }

// mended examines the machine again after the command of a finding has succeeded, and reports whether the finding is
// gone. A new group or limit, for example, takes effect only in a new session.
func (d *doctor) mended(out io.Writer, f *Finding) bool {
	gone := !slices.Contains(d.examine(), *f)
	if !gone {
		fmt.Fprintf(out, "%24sstill found: some settings need a new login or a restart\n", "")
	}
	return gone
}

// write writes the finding for people.
func (f *Finding) write(w io.Writer) {
	fmt.Fprintf(w, "%-8s %-14s %s\n", f.Level, f.Check, f.Found)
	if f.Level == OK {
		return
	}
	if f.Better != "" {
		fmt.Fprintf(w, "%24sbetter: %s\n", "", f.Better)
	}
	if f.Command != "" {
		fmt.Fprintf(w, "%24s$ %s\n", "", f.Command)
	}
}

// fix runs a command if the operator agrees, and reports whether it succeeded.
func fix(ctx context.Context, out io.Writer, answers *bufio.Scanner, command string) bool {
	fmt.Fprintf(out, "%24srun it now? [y/N] ", "")
	if !answers.Scan() || !strings.EqualFold(strings.TrimSpace(answers.Text()), "y") {
		fmt.Fprintln(out)
		return false
	}
	const rootNeedsNoSudo = `[ "$(id -u)" != 0 ] || sudo() { "$@"; }; ` // a small Debian has no sudo
	run := exec.CommandContext(ctx, "/bin/sh", "-c", rootNeedsNoSudo+command)
	text, err := run.CombinedOutput()
	if err != nil {
		fmt.Fprintf(out, "%24sfailed: %v: %s\n", "", err, strings.TrimSpace(string(text)))
		return false
	}
	fmt.Fprintf(out, "%24sdone\n", "")
	return true
}
