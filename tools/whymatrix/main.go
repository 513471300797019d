// Whymatrix injects faults into the real edge-rt, one at a time, and compares what edge-rt why
// finds in the record with the injected fault. The faults are those of bench safety on a simulated
// arm, and scripts of bench faults, which act on the messages between edge-rt and lean-server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/bench/safety"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/why"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/stage"
)

func main() { stage.LongTool(matrix) }

type options struct {
	Bin     string   `default:"bin" help:"folder of the programs"`
	Tree    string   `default:"testdata/demo" help:"folder of the demo bundles"`
	Into    string   `help:"Markdown page whose matrix is replaced"`
	Keep    string   `help:"folder to keep the records in"`
	Workers int      `default:"2" help:"faults at once"`
	Only    []string `help:"play these faults, with commas; default: all"`
	Tries   int      `default:"6" help:"how often a fault is played whose run was disturbed"`
}

func matrix(ctx context.Context, o options) error {
	rows, err := play(ctx, o)
	if err != nil {
		return err
	}
	text, wrong := table(rows)
	fmt.Print(text)
	if o.Into != "" {
		if err := writeInto(o.Into, text); err != nil {
			return err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d faults were named wrongly", wrong)
	}
	return nil
}

// row is one fault with its expected and its found causes.
type row struct {
	name, title string
	want        []why.Cause // causes that must all be found; empty: no cause may be found
	noRecord    string      // reason why there can be no record
	bus         bool        // a fault of the arm's bus
	arm         bool        // a fault of bench safety
	base        bool        // a fault of bench safety that needs a robot with a base
	jumps       bool        // the demo's policy begins at a position that its training lacks, so its first action jumps
	found       []why.Finding
	disturbed   []why.Finding // findings that the fault did not cause: the machine has starved the simulated motors
	played      bool
	said        string // error text if the fault could not be played or its record could not be read
}

// play plays all faults that the options name.
func play(ctx context.Context, o options) ([]row, error) {
	dir, done, err := stage.Folder(o.Keep)
	if err != nil {
		return nil, err
	}
	defer done()
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	rows := allRows(o)
	for try := range o.Tries {
		if err := playArm(ctx, o, dir, rows); err != nil {
			return nil, err
		}
		if err := playMessages(ctx, o, dir, rows); err != nil {
			return nil, err
		}
		left := 0
		for i := range rows {
			if rows[i].again() {
				left++
			}
		}
		fmt.Fprintf(os.Stderr, "try %d: %d of %d were disturbed\n", try+1, left, len(rows))
		if o.Keep != "" {
			text, _ := table(rows)
			if err := os.WriteFile(filepath.Join(dir, "matrix.md"), []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
		if left == 0 {
			break
		}
	}
	return rows, nil
}

// again reports whether a fault must be played again. It must be if its run did not start, or if
// the found causes are wrong and the findings show that the machine starved the simulated motors.
func (r *row) again() bool { return !r.played || len(r.disturbed) > 0 && !r.right() }

// fail notes why there is no result, unless an earlier try had a result.
func (r *row) fail(why string) {
	if !r.played {
		r.said = why
	}
}

// busCauses are the causes of a failing bus.
var busCauses = []why.Cause{why.BusSilent, why.MotorSilent, why.RepliesLost, why.RepliesSpoilt, why.TickHung}

// take sorts the findings of a whole record. Findings between the two instants belong to the fault.
// Unexpected findings about the bus count as caused by the machine (disturbed) if they lie outside
// the two instants, or if the fault is not a fault of the bus.
func (r *row) take(all []why.Finding, from, to rt.Instant) {
	r.found = nil
	r.disturbed = nil
	r.said = ""
	r.played = true
	for _, f := range all {
		// A finding of kind Exit always belongs to the fault. Its time may be before the instant from, because a killed
		// process loses the last second of its record.
		mine := f.To >= from && f.From <= to || f.Kind == why.Exit
		if mine && !(r.jumps && f.Cause == why.PolicyJump) {
			r.found = append(r.found, f)
		}
		if slices.Contains(busCauses, f.Cause) && !slices.Contains(r.want, f.Cause) && (!r.bus || !mine) {
			r.disturbed = append(r.disturbed, f)
		}
	}
}

// findings returns the findings of the record in a folder.
func findings(dir string) ([]why.Finding, error) {
	names, err := record.Files(dir, "")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errNoRecord
	}
	l, _, err := why.ReadRun(names)
	if err != nil {
		return nil, err
	}
	audit := filepath.Join(dir, safety.AuditFile)
	if _, err := os.Stat(audit); err != nil {
		audit = ""
	}
	a, err := why.OpenAudit(audit, l)
	if err != nil {
		return nil, err
	}
	return why.Explain(l, a), nil
}

var errNoRecord = errors.New("no record")

// main returns the finding that a person would notice first: visible effects on the arm precede invisible
// effects. It ignores findings about the machine unless the machine is the only expected cause.
func (r *row) main() *why.Finding {
	rank := []why.Kind{why.Exit, why.Stutter, why.Stale, why.Hold, why.Warning, why.Jump, why.Overrun}
	var best *why.Finding
	machine := len(r.want) == 1 && slices.Contains(machines, r.want[0])
	for i := range r.found {
		f := &r.found[i]
		if slices.Contains(machines, f.Cause) && !machine {
			continue
		}
		if best == nil || slices.Index(rank, f.Kind) < slices.Index(rank, best.Kind) || f.Kind == best.Kind &&
			f.To-f.From > best.To-best.From {
			best = f
		}
	}
	return best
}

// machines are causes that may be true of the machine on which the faults are played.
var machines = []why.Cause{why.MachineBusy, why.HostSteal}

// named returns the found causes, each once; the cause of the main finding is the first.
func (r *row) named() (causes []why.Cause) {
	if m := r.main(); m != nil {
		causes = append(causes, m.Cause)
	}
	for _, f := range r.found {
		if !slices.Contains(causes, f.Cause) {
			causes = append(causes, f.Cause)
		}
	}
	return causes
}

// right reports whether the found causes are correct. A single expected cause must be the cause of the main finding. If
// several causes are expected, all of them must be found. Without an expected cause, only causes in the list machines
// may be found.
// For a row that may lack a record, an absent record without findings is correct.
func (r *row) right() bool {
	named := r.named()
	switch {
	case r.noRecord != "" || r.said != "":
		return r.noRecord != "" && len(named) == 0
	case len(r.want) == 0:
		return !slices.ContainsFunc(named, func(c why.Cause) bool { return !slices.Contains(machines, c) })
	case len(r.want) == 1:
		return len(named) > 0 && named[0] == r.want[0]
	}
	return !slices.ContainsFunc(r.want, func(c why.Cause) bool { return !slices.Contains(named, c) })
}

// table returns the matrix in the form of docs/lab/why.md.
func table(rows []row) (text string, wrong int) {
	out := &strings.Builder{}
	fmt.Fprintf(out, "| injected | to be named | named | also found | |\n|---|---|---|---|---|\n")
	played := 0
	for i := range rows {
		r := &rows[i]
		named := r.named()
		first, also := "nothing", ""
		if i := strings.IndexByte(r.said, '\n'); i >= 0 {
			r.said = r.said[:i]
		}
		r.said = strings.ReplaceAll(r.said[:min(len(r.said), 200)], "|", "/")
		if len(named) > 0 {
			first, also = string(named[0]), join(named[1:])
		}
		if r.said != "" {
			first = r.said
		}
		want := join(r.want)
		switch {
		case r.noRecord != "":
			want = r.noRecord
		case want == "":
			want = "nothing"
		}
		verdict := "right"
		switch {
		case r.said != "" && r.noRecord == "":
			verdict = "not played"
		case len(r.disturbed) > 0 && !r.right():
			verdict = "disturbed"
		case !r.right():
			verdict = "**wrong**"
			wrong++
			played++
		default:
			played++
		}
		fmt.Fprintf(out, "| %s (`%s`) | %s | %s | %s | %s |\n", r.title, r.name, want, first, also, verdict)
	}
	fmt.Fprintf(out, "\n%d of %d right.\n", played-wrong, played)
	return out.String(), wrong
}

func join(causes []why.Cause) string {
	var words []string
	for _, c := range causes {
		words = append(words, string(c))
	}
	return strings.Join(words, ", ")
}

// writeInto replaces the table below its heading in the page of that name.
func writeInto(name, text string) error { return report.WriteBelow(name, "## The matrix", text) }
