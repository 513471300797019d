package why

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// Config configures edge-rt why.
type Config struct {
	Path   string   // a file, or a folder of records; empty: the newest record of Dirs that can be explained
	Dirs   []string // folders of this host's records
	ID     string   // robot id for Dirs; empty: all robots
	At     string   // a time of day; empty: the whole record
	Last   bool     // only the newest finding
	Audit  string   // the server's audit file; empty: no file
	Hidden string   // a folder of records that this user may not read; empty: no such folder

	Local *time.Location // time zone of times of day
}

// Report holds the findings of some records; its JSON keys are a contract (docs/json.md).
type Report struct {
	Files    []File         `json:"files"`            // the records
	At       string         `json:"at,omitempty"`     // --at
	Findings []Dated        `json:"findings"`         // the arm's problems with their causes
	Kinds    map[string]int `json:"kinds"`            // [kind] findings by kind, before --at and --last
	Causes   map[string]int `json:"causes"`           // [cause] findings by cause, before --at and --last
	Audit    *AuditSummary  `json:"audit,omitempty"`  // absent without --audit
	Latency  []Stage        `json:"latency"`          // from a picture to the motors
	Hidden   string         `json:"hidden,omitempty"` // folder of services' records that this user may not read
	Skipped  []Skipped      `json:"skipped"`          // files of a folder that cannot be explained
	nothing  error          // why the first skipped file cannot be explained
	nearest  *Dated         // nearest finding if --at has no finding
	all      int
	ways     []way
	where    *time.Location
}

// File is one record, or the records of one run.
type File struct {
	// name of the record; for a run with several records, the name of the first record and the number of the others
	Name    string    `json:"name"`
	Robot   string    `json:"robot"`         // name of the robot
	Model   string    `json:"model"`         // the robot's model
	From    time.Time `json:"from"`          // first time on record
	To      time.Time `json:"to"`            // last time on record
	Ticks   int       `json:"ticks"`         // ticks on record
	Starved int       `json:"starved_ticks"` // ticks without an action though one was due
	Ended   string    `json:"ended"`         // how the run ended; empty: not on this record
	Torn    bool      `json:"torn"`          // the record has no end
	Damaged bool      `json:"damaged"`       // the record has its end, but a part before the end cannot be read
	Writing bool      `json:"writing"`       // a run still writes the record
	Full    bool      `json:"full"`          // the record has more messages than are examined
}

// Skipped is a file without an explanation.
type Skipped struct {
	Name string `json:"name"` // the file
	Why  string `json:"why"`  // why it was skipped
}

// Dated is a Finding with times of day.
type Dated struct {
	File        string    `json:"file"`           // the record
	Kind        Kind      `json:"kind"`           // stutter, stale, hold, overrun, jump, warning or exit
	Cause       Cause     `json:"cause"`          // a cause of [lab/why.md](lab/why.md#the-causes)
	Description string    `json:"says"`           // the cause as a sentence
	From        time.Time `json:"from"`           // begin
	To          time.Time `json:"to"`             // end
	Ticks       int       `json:"ticks"`          // ticks with the problem; 0: not counted in ticks
	What        string    `json:"what,omitempty"` // detail, such as the joint
	Part        string    `json:"part,omitempty"` // the parts whose motors are the cause, for a robot of several parts
	Evidence    []Line    `json:"evidence"`       // messages that prove the cause
	Also        []Cause   `json:"also"`           // causes that explain a part, or were present as well
}

// Line is an Evidence with a time of day.
type Line struct {
	At   time.Time `json:"at"`   // time of the message
	Text string    `json:"text"` // content of the message
}

// AuditSummary counts the lines of the server's audit file.
type AuditSummary struct {
	Lines   int `json:"lines"`   // lines of the server's file
	Matched int `json:"matched"` // lines of this robot's sessions
	Broken  int `json:"broken"`  // lines that are not lines of an audit
}

// Run explains the records that cfg selects.
func Run(cfg Config) (*Report, error) {
	r := &Report{
		Skipped:  []Skipped{},
		Hidden:   cfg.hidden(""),
		At:       cfg.At,
		Findings: []Dated{},
		Kinds:    map[string]int{},
		Causes:   map[string]int{},
		where:    cmp.Or(cfg.Local, time.Local),
	}
	names, err := cfg.files(r.skip)
	if err != nil {
		return nil, err
	}
	at, err := parseClock(cfg.At)
	if err != nil {
		return nil, err
	}
	covered := cfg.At == ""
	for _, run := range names {
		l, file, err := ReadRun(run)
		if err != nil {
			r.skip(run[0], err)
			continue
		}
		if cfg.At != "" {
			from, to, ok := at.in(file, r.where)
			if !ok {
				r.Files = append(r.Files, file)
				continue
			}
			covered = true
			r.Files = r.Files[:0]
			if err := r.explain(l, file, cfg.Audit); err != nil {
				return nil, err
			}
			r.choose(from, to)
			break
		}
		if err := r.explain(l, file, cfg.Audit); err != nil {
			return nil, err
		}
		if cfg.Path == "" {
			break // the newest record
		}
	}
	if len(r.Files) == 0 {
		return nil, r.nothing
	}
	if !covered {
		return nil, exit.Errorf(exit.Usage, "--at %s is not on record: %s", cfg.At, r.coverage())
	}
	if cfg.Last && len(r.Findings) > 1 {
		r.Findings = r.Findings[len(r.Findings)-1:]
	}
	r.Latency = stagesOf(r.ways)
	return r, nil
}

// skip leaves a file out.
func (r *Report) skip(name string, err error) {
	r.nothing = cmp.Or(r.nothing, err)
	text := strings.TrimLeft(strings.TrimPrefix(err.Error(), name), ": ")
	r.Skipped = append(r.Skipped, Skipped{filepath.Base(name), text})
}

// files returns the records to explain, grouped by run, and skips files that are no records. If Path is empty, each
// record is a group, the newest first; otherwise the oldest run is first.
func (c *Config) files(skip func(name string, err error)) (runs [][]string, err error) {
	path := c.Path
	if path == "" {
		names, err := record.FilesOf(c.Dirs, c.ID)
		switch {
		case err == nil && len(names) == 0:
			whose := "no robot has"
			if c.ID != "" {
				whose = "robot " + c.ID + " has not"
			}
			return nil, exit.Errorf(exit.Absent, "there are no records in %s: %s had anything go wrong there yet "+
				"(--record ring writes only then; edge-rt ctl save writes now); or name a FILE, --record-dir or --id%s",
				strings.Join(c.Dirs, " and "), whose, c.hidden("; "))
		case err != nil:
			return nil, exit.With(exit.Usage, err)
		}
		for _, n := range slices.Backward(names) {
			runs = append(runs, []string{n})
		}
		return runs, nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, exit.With(exit.Usage, err)
	case !info.IsDir():
		return [][]string{{path}}, nil
	}
	names, err := record.Files(path, c.ID)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s holds no records of edge-rt (ID-TIME.mcap)", path)
	}
	if err != nil {
		return nil, exit.With(exit.Config, err)
	}
	return byRun(names, skip), nil
}

// hidden returns a sentence about the records that were not read; it is empty if all records were
// read.
func (c *Config) hidden(before string) string {
	if c.Hidden == "" || c.Path != "" {
		return ""
	}
	return before + "the records of services in " + c.Hidden +
		" were not looked at: this user may not read them (sudo edge-rt why)"
}

// byRun groups the files by process, and sorts each group by the clock of its process. Sorting by
// name would be wrong, since the time of day in the names may have been set back.
func byRun(names []string, skip func(name string, err error)) (runs [][]string) {
	index := map[string]int{}
	began := map[string]rt.Instant{}
	for _, n := range names {
		began[n] = math.MaxInt64
		info, err := readFile(n, record.Visitor{Tick: func(m *record.Tick) error {
			began[n] = min(began[n], m.At)
			return nil
		}})
		if err != nil {
			skip(n, err)
			continue
		}
		who := info.Run["instance"]
		if i, ok := index[who]; ok && who != "" {
			runs[i] = append(runs[i], n)
			continue
		}
		index[who] = len(runs)
		runs = append(runs, []string{n})
	}
	for _, of := range runs {
		slices.SortStableFunc(of, func(a, b string) int { return cmp.Compare(began[a], began[b]) })
	}
	return runs
}

// readFile visits a file.
func readFile(name string, v record.Visitor) (info record.Info, err error) {
	f, err := record.Open(name)
	if err != nil {
		return info, exit.With(exit.Usage, err)
	}
	defer f.Close()
	if info, err = record.Read(f, v); err != nil {
		return info, exit.Errorf(exit.Config, "%s: %w", name, err)
	}
	info.Torn = info.Torn && !info.Writing && !info.Damaged
	return info, nil
}

var errEmpty = errors.New("it is empty")

// ReadRun reads the files of one run.
func ReadRun(names []string) (*Log, File, error) {
	l := newLog()
	file := File{Name: filepath.Base(names[0])}
	var cause error
	for _, n := range names {
		info, err := readFile(n, l.visitor())
		if err != nil {
			return nil, file, err
		}
		l.finish(info)
		cause = cmp.Or(cause, info.Cause)
		file.Writing = info.Writing
		file.Damaged = file.Damaged || info.Damaged
	}
	if len(names) > 1 {
		file.Name = fmt.Sprintf("%s and %d more", file.Name, len(names)-1)
	}
	if l.Ticks == 0 && len(l.events) == 0 {
		return nil, file, exit.Errorf(exit.Config, "%s holds no ticks and no events: %w", names[0],
			cmp.Or(cause, errEmpty))
	}
	file.Robot = l.Run["id"]
	file.Model = l.Run["model"]
	file.Torn = l.Torn
	file.Full = l.Full
	file.Ticks = l.Ticks
	file.From, file.To = l.day(l.begin()), l.day(l.end())
	for i := range l.starved {
		file.Starved += l.starved[i].ticks
	}
	file.Ended = l.ended()
	return l, file, nil
}

// begin and end return the first and the last instant on record.
func (l *Log) begin() rt.Instant {
	if l.first == 0 && len(l.events) > 0 {
		return l.events[0].At
	}
	return l.first
}

func (l *Log) end() rt.Instant {
	if n := len(l.events); n > 0 {
		return max(l.last, l.events[n-1].At)
	}
	return l.last
}

// day returns an instant as a time of day.
func (l *Log) day(at rt.Instant) time.Time { return time.Unix(0, int64(at)+l.Wall) }

// explain adds the findings of one run.
func (r *Report) explain(l *Log, file File, audit string) error {
	a, err := OpenAudit(audit, l)
	if err != nil {
		return err
	}
	if a != nil {
		if r.Audit == nil {
			r.Audit = &AuditSummary{Lines: a.Lines, Broken: a.Broken}
		}
		r.Audit.Matched += a.Matched
	}
	r.Files = append(r.Files, file)
	r.ways = append(r.ways, l.ways(a)...)
	for _, f := range Explain(l, a) {
		t := Dated{
			File:        file.Name,
			Kind:        f.Kind,
			Cause:       f.Cause,
			Description: f.Cause.Description(),
			From:        l.day(f.From),
			To:          l.day(f.To),
			Ticks:       f.Ticks,
			What:        f.What,
			Part:        l.partsOf(&f),
			Evidence:    []Line{},
			Also:        append([]Cause{}, f.Also...),
		}
		for _, e := range f.Evidence {
			t.Evidence = append(t.Evidence, Line{l.day(e.At), e.Text})
		}
		r.Findings = append(r.Findings, t)
		r.Kinds[string(f.Kind)]++
		r.Causes[string(f.Cause)]++
		r.all++
	}
	return nil
}

// OpenAudit reads a server's audit file; it returns nil for an empty name.
func OpenAudit(name string, l *Log) (*Audit, error) {
	if name == "" {
		return nil, nil
	}
	f, err := record.Open(name)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--audit: %w", err)
	}
	defer f.Close()
	a, err := readAudit(f, l)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--audit %s: %w", name, err)
	}
	return a, nil
}

// choose keeps the findings that overlap a stretch of time, and stores the finding nearest to this stretch in
// r.nearest.
func (r *Report) choose(from, to time.Time) {
	best := time.Duration(1<<63 - 1)
	for i := range r.Findings {
		f := r.Findings[i]
		if off := max(f.From.Sub(to), from.Sub(f.To)); off < best {
			best, r.nearest = off, &f
		}
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f Dated) bool { return f.From.After(to) || f.To.Before(from) })
}

// coverage lists the times that the records cover.
func (r *Report) coverage() string {
	var text []string
	for i, f := range r.Files {
		if i == 3 {
			text = append(text, fmt.Sprintf("and %d more", len(r.Files)-i))
			break
		}
		text = append(text, fmt.Sprintf("%s has %s", f.Name, r.stretch(f.From, f.To)))
	}
	return strings.Join(text, ", ")
}

func (r *Report) stretch(from, to time.Time) string {
	from, to = from.In(r.where), to.In(r.where)
	end := to.Format(time.TimeOnly)
	if from.YearDay() != to.YearDay() || from.Year() != to.Year() {
		end = to.Format(time.DateTime)
	}
	return from.Format(time.DateTime) + " to " + end
}

// WriteJSON writes the report for scripts.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Write prints the report. Findings are in order of time, so that the newest finding, which is mostly the finding of
// interest, is the last on the terminal.
func (r *Report) Write(w io.Writer) error {
	out := &strings.Builder{}
	for _, s := range r.Skipped {
		fmt.Fprintf(out, "skipped: %s: %s\n", s.Name, s.Why)
	}
	for _, f := range r.Files {
		fmt.Fprintf(out, "%s: robot %s, %s, %d ticks, %d of them starved, %s\n", f.Name, cmp.Or(f.Robot, "(no name)"),
			r.stretch(f.From, f.To), f.Ticks, f.Starved, cmp.Or(f.Model, "no model"))
		if f.Damaged {
			fmt.Fprintf(out, "  is damaged before its end: a part is missing here or wrong; copy the file again, or "+
				"examine its disk\n")
		}
		if f.Full {
			fmt.Fprintf(out, "  has more than %d messages of a kind, too many to examine: name its files one by one\n",
				maxKept)
		}
		switch {
		case f.Ended != "":
			fmt.Fprintf(out, "  ended: %s\n", f.Ended)
		case f.Writing:
			fmt.Fprintf(out, "  is being written: the run goes on\n")
		}
	}
	if a := r.Audit; a != nil {
		fmt.Fprintf(out, "audit: %d of %d lines are about this robot's sessions", a.Matched, a.Lines)
		if a.Matched == 0 {
			fmt.Fprintf(out, ": another server's, or of another time")
		}
		fmt.Fprintln(out)
	}
	for i := range r.Findings {
		r.Findings[i].write(out, r.where)
	}
	switch {
	case r.At != "" && len(r.Findings) == 0 && r.nearest != nil:
		fmt.Fprintf(out, "nothing went wrong at %s; the nearest:\n", r.At)
		r.nearest.write(out, r.where)
	case len(r.Findings) == 0 && r.At != "":
		fmt.Fprintf(out, "nothing went wrong at %s, nor at any other time on this record\n", r.At)
	case r.all == 0:
		fmt.Fprintln(out, "nothing went wrong")
	default:
		fmt.Fprintf(out, "\n%s\n", r.sum())
	}
	if r.Hidden != "" {
		fmt.Fprintf(out, "%s\n", r.Hidden)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// sum counts the findings by kind and by cause.
func (r *Report) sum() string {
	var byKind, byCause []string
	for _, k := range kinds {
		if n := r.Kinds[string(k)]; n > 0 {
			byKind = append(byKind, fmt.Sprintf("%s %d", k, n))
		}
	}
	for _, c := range causes {
		if n := r.Causes[string(c.Cause)]; n > 0 {
			byCause = append(byCause, fmt.Sprintf("%s %d", c.Cause, n))
		}
	}
	return fmt.Sprintf("%d findings: %s\ncauses: %s", r.all, strings.Join(byKind, ", "), strings.Join(byCause, ", "))
}

const clockMillis = "15:04:05.000"

func (t *Dated) write(out *strings.Builder, where *time.Location) {
	fmt.Fprintf(out, "\n%s  %s", t.From.In(where).Format(clockMillis), t.Kind)
	if t.Ticks > 0 {
		fmt.Fprintf(out, ", %d ticks", t.Ticks)
	}
	if d := t.To.Sub(t.From); d > 0 {
		fmt.Fprintf(out, " in %s", seconds(d))
	}
	if t.What != "" {
		fmt.Fprintf(out, " (%s)", t.What)
	}
	fmt.Fprintf(out, ": %s", t.Cause)
	if t.Part != "" {
		fmt.Fprintf(out, " of %s", t.Part)
	}
	fmt.Fprintf(out, "\n    %s\n", t.Description)
	for _, e := range t.Evidence {
		fmt.Fprintf(out, "    %s  %s\n", e.At.In(where).Format(clockMillis), e.Text)
	}
	for _, c := range t.Also {
		fmt.Fprintf(out, "    also %s: %s\n", c, c.Description())
	}
}

// seconds formats a duration in ns for people.
func seconds[NS ~int64](ns NS) string {
	d := time.Duration(ns)
	switch abs := d.Abs(); {
	case abs < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	case abs < time.Minute:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
