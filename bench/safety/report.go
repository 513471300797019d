package safety

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/referee"
)

// Who makes the arm move again after a fault.
const (
	whoItself   = "by itself"
	whoOperator = "an operator: `ctl resume`"
	whoPartly   = "an operator: `ctl resume`; the joints that were let go with another run"
	whoStarts   = "a new start of edge-rt"
	whoNobody   = "unknown: `ctl resume` did not help"
)

// Result is the result of one fault.
type Result struct {
	Name  string `json:"name"`  // name for --only
	Title string `json:"fault"` // the fault
	Did   string `json:"did"`   // the arm's actions from the fault on

	StepCounts  int     `json:"step_counts"`  // counts, the longest step of a goal in the whole run
	StepDegrees float64 `json:"step_degrees"` // degrees, of the servo's shaft, for the same step
	StepJoint   string  `json:"step_joint"`   // the joint of that step

	// ms, from the fault until the arm was safe; -1 where that does not apply
	SafeMS    float64 `json:"safe_ms"`
	SafeMaxMS float64 `json:"safe_max_ms"` // ms, its limit
	// exit code or signal; a program that has not ended by itself gets SIGTERM
	Exit     string `json:"exit"`
	ByItself bool   `json:"ended_by_itself"` // the program ended before the SIGTERM
	Reason   string `json:"reason"`          // the program's last words
	Who      string `json:"who"`             // the person or program that makes the arm go on
	Goals    int    `json:"goals"`           // goals checked

	// [rule] violations of a rule, without zeros: range, step, torque, restart, end, encoder, limp,
	// overload, wheel or parts
	Violations map[string]int `json:"violations"`
	Kept       []string       `json:"kept"`   // the first violations
	Note       string         `json:"note"`   // remark on the trial
	Failed     bool           `json:"failed"` // the fault could not be played; note has the reason

	Began, Over rt.Instant `json:"-"`       // beginning and end of the fault, on the machine's clock, as in the record
	Seconds     float64    `json:"seconds"` // s, length of the trial
}

// violated returns the number of violations. A fault that could not be played counts as one, and so
// does an arm that was safe too late.
func (r *Result) violated() (n int) {
	for _, c := range r.Violations {
		n += c
	}
	if r.Failed {
		n++
	}
	if r.tooSlow() {
		n++
	}
	return n
}

func (r *Result) tooSlow() bool { return r.SafeMaxMS > 0 && r.SafeMS > r.SafeMaxMS }

func (r *Result) progress() string {
	if r.Failed {
		return r.Name + ": failed\n"
	}
	text := fmt.Sprintf("%s: %s; %s; longest step %.1f degrees; violations: %s\n", r.Name, r.Did, r.Who, r.StepDegrees,
		r.broken())
	for _, k := range r.Kept[:min(len(r.Kept), 3)] {
		text += "    " + k + "\n"
	}
	return text
}

// defaultRobot is the robot of the section "The table" in docs/lab/safety.md.
const defaultRobot = "so101"

// keptMost is the largest number of violations whose text a result keeps.
const keptMost = 12

// judged adds the referee's findings to the result; the instants in their texts are relative to the instant from.
func (r *Result) judged(v referee.Verdict, from rt.Instant) {
	r.StepCounts = v.Longest.Counts
	r.StepDegrees = tenth(v.Longest.Degrees)
	r.StepJoint = v.Longest.Joint
	r.Goals = v.Goals
	r.Violations = map[string]int{}
	for rule, n := range v.Violations {
		if n > 0 {
			r.Violations[referee.Rule(rule).String()] = n
		}
	}
	for _, k := range v.Kept[:min(len(v.Kept), keptMost)] {
		r.Kept = append(r.Kept, fmt.Sprintf("%+.3f s %s", k.At.Sub(from).Seconds(), k))
	}
	r.SafeMS, r.SafeMaxMS = -1, -1
}

// verdicts returns the verdict on each bus.
func (r *run) verdicts() (all []referee.Verdict) {
	r.judges(func(j *referee.Referee) { all = append(all, j.Verdict()) })
	return all
}

// combined adds up the verdicts.
func combined(all []referee.Verdict) (v referee.Verdict) {
	for _, one := range all {
		for rule, n := range one.Violations {
			v.Violations[rule] += n
		}
		v.Kept = append(v.Kept, one.Kept...)
		v.Goals += one.Goals
		if one.Longest.Degrees > v.Longest.Degrees {
			v.Longest = one.Longest
		}
		if one.OffAfter < 0 || v.OffAfter < 0 {
			v.OffAfter = -1
		}
	}
	return v
}

func (r *run) judge() {
	v := combined(append(r.verdicts(), r.other...))
	res := &r.result
	res.judged(v, r.at)
	res.Exit, res.ByItself = r.edge.Exit(), r.ended < r.until
	res.Reason, res.Did = r.edge.Reason(), r.did()
	r.judgeOthers()
	set := func(took, most time.Duration) {
		res.SafeMS, res.SafeMaxMS = tenth(took.Seconds()*1e3), tenth(most.Seconds()*1e3)
	}
	var last, off rt.Instant
	for i := range r.parts {
		p := &r.parts[i]
		off = max(off, p.off())
		if r.fault.hits(i) {
			last = max(last, p.lastDriven(p.joints(r.fault.joints()), r.at, r.over))
		}
	}
	switch {
	case r.fault.Safe == safeOff && v.OffAfter < 0:
		set(time.Minute, offMax)
	case r.fault.Safe == safeOff:
		set(max(off.Sub(r.ended), 0), offMax)
	case r.fault.Safe == safeHeld:
		set(max(last, r.at).Sub(r.at), heldMax)
	}
}

const (
	heldMax = 2*period + 10*time.Millisecond // two ticks, and the lateness of the host
	offMax  = 300 * time.Millisecond
)

// did returns a text with the actions of each part. If all parts have the same actions, the text has them once.
func (r *run) did() string {
	var all []string
	same := true
	for i := range r.parts {
		all = append(all, r.didOf(&r.parts[i]))
		same = same && all[i] == all[0]
	}
	if same {
		return all[0]
	}
	for i := range all {
		all[i] = r.parts[i].name + ": " + all[i]
	}
	return strings.Join(all, "; ")
}

func (r *run) didOf(p *part) string {
	all := p.phases(r.at, r.until)
	// If the edge ended by itself, the last motion before its end was the parking.
	if n := len(all); r.ended != 0 && r.ended < r.until && n > 1 && all[n-1].what == "limp" &&
		r.edge.Exit() != "SIGKILL" {
		all[n-2].what = strings.Replace(all[n-2].what, "went on", "parked", 1)
	}
	return describe(all)
}

func tenth(v float64) float64 { return float64(int(v*10+0.5)) / 10 }

// Report is the whole table.
type Report struct {
	Bench   string   `json:"bench"`   // safety
	Version string   `json:"version"` // version of bench
	Robot   string   `json:"robot"`   // the robot
	Apart   bool     `json:"apart"`   // safety.parts is apart
	Seed    uint64   `json:"seed"`    // seed of a soak; 0: the table
	Results []Result `json:"results"`
}

// Broken returns the number of all violations.
func (r *Report) Broken() (n int) {
	for i := range r.Results {
		n += r.Results[i].violated()
	}
	return n
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%-26s %-10s %-12s %-7s %-10s %s\n", "fault", "longest", "safe after",
		"exit", "violations", "what the arm did")
	for i := range r.Results {
		v := &r.Results[i]
		fmt.Fprintf(b, "%-26s %5.1f deg  %-12s %-7s %-10s %s; %s\n", v.Name, v.StepDegrees, v.safe(), v.exit(),
			v.broken(), v.Did, v.Who)
		for _, k := range v.Kept[:min(len(v.Kept), 3)] {
			fmt.Fprintf(b, "  %s\n", k)
		}
		if v.Note != "" {
			fmt.Fprintf(b, "  %.300s\n", v.Note)
		}
	}
	fmt.Fprintf(b, "%d faults, %d violations\n", len(r.Results), r.Broken())
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes the report as the table of docs/lab/safety.md. A row has a fault with its results on all parts.
func (r *Report) WriteMarkdown(w io.Writer) error {
	columns := []string{""}
	for i := range r.Results {
		if _, part, of := strings.Cut(r.Results[i].Name, "@"); of && !slices.Contains(columns, part) && part != both {
			columns = append(columns, part)
		}
	}
	did := "what the arm did"
	if columns = columns[1:]; len(columns) > 0 {
		columns = append(columns, both)
		did = "on " + strings.Join(columns, " | on ")
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "| fault | %s | longest goal step | safe after | exit | resumed by | violations |\n|%s\n", did,
		strings.Repeat("---|", 6+max(1, len(columns))))
	for rest := r.Results; len(rest) > 0; {
		kind, _, _ := strings.Cut(rest[0].Name, "@")
		n := 1
		for n < len(rest) && strings.HasPrefix(rest[n].Name, kind+"@") {
			n++
		}
		writeRow(b, kind, rest[:n], columns)
		rest = rest[n:]
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRow writes the row of a fault. For a robot of several parts the last column also has the whole robot.
func writeRow(b *strings.Builder, kind string, results []Result, columns []string) {
	title, _, _ := strings.Cut(results[0].Title, partSeparator)
	fmt.Fprintf(b, "| %s (`%s`) |", title, kind)
	cells := make([]string, max(1, len(columns)))
	var who, exits, broken []string
	add := func(all *[]string, text, usual string) {
		if text != usual && !slices.Contains(*all, text) {
			*all = append(*all, text)
		}
	}
	longest, safest := &results[0], &results[0]
	for i := range results {
		v := &results[i]
		_, part, _ := strings.Cut(v.Name, "@")
		did := v.Did
		if v.Note != "" {
			did += "; " + strings.ReplaceAll(v.Note, "|", "/")
		}
		at := slices.Index(columns, part)
		if at < 0 {
			at = len(cells) - 1
		}
		cells[at] = did
		add(&who, v.Who, "")
		add(&exits, v.exit(), "–")
		add(&broken, v.broken(), "0")
		if v.StepDegrees > longest.StepDegrees {
			longest = v
		}
		if v.SafeMS > safest.SafeMS {
			safest = v
		}
	}
	step := fmt.Sprintf("%d counts, %.1f°", longest.StepCounts, longest.StepDegrees)
	if len(who) == 0 {
		step = "–"
	}
	fmt.Fprintf(b, " %s | %s | %s | %s | %s | %s |\n", strings.Join(cells, " | "), step, safest.safe(),
		cmp.Or(strings.Join(exits, ", "), "–"), cmp.Or(strings.Join(who, " or "), "–"),
		cmp.Or(strings.Join(broken, ", "), "0"))
}

// WriteInto replaces the robot's table below its heading in the page of that name. A report without
// results only checks that the page has the heading.
func (r *Report) WriteInto(name string) error {
	heading := "## The table"
	if r.Robot != defaultRobot {
		heading += " of " + r.Robot
	}
	if r.Apart {
		heading += ", apart"
	}
	var table strings.Builder
	if len(r.Results) > 0 {
		if err := r.WriteMarkdown(&table); err != nil {
			return err
		}
	}
	if err := report.WriteBelow(name, heading, table.String()); err != nil {
		return exit.Errorf(exit.Usage, "--into: %w", err)
	}
	return nil
}

func (v *Result) safe() string {
	switch {
	case v.SafeMS < 0:
		return "–"
	case v.SafeMaxMS == offMax.Seconds()*1e3 && v.SafeMS > 10_000:
		return "never"
	case v.SafeMaxMS == offMax.Seconds()*1e3:
		return fmt.Sprintf("%.0f ms", v.SafeMS)
	}
	return fmt.Sprintf("%.0f ms (%.0f ticks)", v.SafeMS, v.SafeMS/(period.Seconds()*1e3)+0.49)
}

func (v *Result) exit() string {
	if !v.ByItself {
		return "–"
	}
	return v.Exit
}

func (v *Result) broken() string {
	var parts []string
	for i := range referee.Rules {
		if n := v.Violations[referee.Rule(i).String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", referee.Rule(i), n))
		}
	}
	if n := v.Violations[partsRule]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s %d", partsRule, n))
	}
	if v.Failed {
		parts = append(parts, "not played")
	}
	if v.tooSlow() {
		parts = append(parts, "too slow")
	}
	return cmp.Or(strings.Join(parts, ", "), "0")
}
