package dataset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// InputError means that the input cannot become a dataset, or that it is not a dataset. A retry
// with the same input fails in the same way.
type InputError struct {
	Err  error
	Gone bool // a given path does not exist
}

func (e InputError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e InputError) Unwrap() error { return e.Err }

func refuse(format string, args ...any) error { return InputError{Err: fmt.Errorf(format, args...)} }

// given returns the FileInfo of a path from the command line. Its error is an InputError.
func given(name string) (os.FileInfo, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, InputError{Err: err, Gone: errors.Is(err, os.ErrNotExist)}
	}
	return info, nil
}

// run is one run of edge-rt: all record files of one process.
type run struct {
	name    string // path of its first file
	key     string // identity of the process, as in journals
	files   []string
	info    map[string]string
	torn    int  // files without an end
	damaged int  // files that are damaged before their end
	writing bool // a process is writing one of the files
	joints  []string
	cams    []string
	rate    float64 // actions per second
	period  float64 // ns from one tick to the next
	fps     int     // frames per second of the dataset

	wall     int64 // Unix time of instant 0, in ns
	ticks    []tick
	slept    time.Duration // time for which the machine was suspended since the newest of these ticks
	marks    []mark
	sessions map[uint32]record.Session // sessions by epoch
	pictures map[string][]rt.Instant
	bad      map[string]map[rt.Instant]fault // by camera: the pictures that no frame may show
	sizes    map[string]size                 // size of each camera's pictures
	again    int                             // number of ticks that an earlier file also has
	headless int                             // number of episodes whose beginning is in no file
}

// tick is the part of a record.Tick that an export needs.
type tick struct {
	at       rt.Instant
	deadline rt.Instant
	slept    time.Duration // time for which the machine was suspended since the previous tick
	state    []float32
	goal     []float32
	action   []float32 // nil: no action began on this tick
	cut      uint32    // bit set of joints that the gate clipped, held or froze, so that their goal is not the action
	source   rt.Instant
	seq      uint64
	epoch    uint32
	row      int32
	person   bool
}

// mark is an episode as the operator began and ended it.
type mark struct {
	number     uint32
	begin, end rt.Instant
	outcome    string
	task       string
	cut        bool // true: the task may be only the beginning of a longer text
}

// never is later than every instant of a record.
const never = rt.Instant(math.MaxInt64)

// head is the beginning of a file.
type head struct {
	path  string
	info  record.Info
	first rt.Instant // instant of its first tick; never: the file has no tick
	acts  bool       // an action began on one of its ticks
}

// find lists the record files that the arguments name; an argument is a file or a folder. The result listed holds the
// files that come from a folder.
func find(paths []string) (files []string, listed map[string]bool, err error) {
	listed = map[string]bool{}
	seen := map[string]bool{}
	add := func(path string) {
		full, _ := filepath.Abs(path) // path exists
		if !seen[full] {
			seen[full] = true
			files = append(files, path)
		}
	}
	for _, path := range paths {
		info, err := given(path)
		if err != nil {
			return nil, nil, err
		}
		if !info.IsDir() {
			if !info.Mode().IsRegular() { // opening a pipe would block, and no signal would end the wait
				return nil, nil, refuse("%s is neither a record nor a folder of records", path)
			}
			add(path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, nil, err
		}
		before := len(files)
		for _, e := range entries {
			name := filepath.Join(path, e.Name())
			// a copy by a Mac has hidden files beside the records
			if !strings.HasSuffix(name, ".mcap") || e.Name()[0] == '.' {
				continue
			}
			info, err := given(name) // follows links, so that a folder of links can be a selection
			if err != nil {
				return nil, nil, err
			}
			if info.Mode().IsRegular() {
				listed[name] = true
				add(name)
			}
		}
		if len(files) == before {
			return nil, nil,
				refuse("%s: no *.mcap in this folder; edge-rt keeps its records in the one of --record-dir", path)
		}
	}
	return files, listed, nil
}

func readHead(ctx context.Context, path string) (h head, err error) {
	h = head{path: path, first: never}
	h.info, err = record.ReadFile(path, record.Visitor{Tick: func(t *record.Tick) error {
		h.first = min(h.first, t.At)
		if h.acts = t.Action.N > 0; h.acts {
			return record.ErrEnough
		}
		return ctx.Err()
	}})
	if err != nil && ctx.Err() == nil {
		return h, InputError{Err: err}
	}
	return h, ctx.Err()
}

// runsOf groups files by the process that wrote them and sorts each group by time. It skips the listed files that
// hold no part of a run, and runs without an action, and counts their files in the result empty, because such a file
// must not prevent the export of the folder's other files. Without a run it returns an error.
func runsOf(ctx context.Context, files []string, listed map[string]bool) (runs []*run, empty int, err error) {
	if len(files) == 0 {
		return nil, 0, refuse("no records: name files, or folders of them")
	}
	heads := map[string][]head{}
	var keys []string
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && listed[path] && info.Size() == 0 {
			empty++
			continue
		}
		h, err := readHead(ctx, path)
		if err != nil {
			return nil, 0, err
		}
		// a run that was cut off in its first moments, or has just started, has no tick and no end
		if listed[path] && h.info.Torn && !h.info.Damaged && h.first == never {
			empty++
			continue
		}
		key := cmp.Or(h.info.Run["instance"], filepath.Base(path))
		if heads[key] == nil {
			keys = append(keys, key)
		}
		heads[key] = append(heads[key], h)
	}
	for _, key := range keys {
		of := heads[key]
		if !slices.ContainsFunc(of, func(h head) bool { return h.acts || !listed[h.path] || h.info.Damaged }) {
			empty += len(of) // the run ended before the arm moved
			continue
		}
		slices.SortStableFunc(of, func(a, b head) int { return cmp.Compare(a.first, b.first) })
		first := &of[0]
		if first.first == never && first.info.Cause != nil && !listed[first.path] {
			return nil, 0, refuse("%s holds no tick: %w", first.path, first.info.Cause)
		}
		r := &run{
			name: first.path,
			key:  key,
			info: first.info.Run,
			wall: of[len(of)-1].info.Wall, // the clock may have been set since the first file
		}
		for _, h := range of {
			r.files = append(r.files, h.path)
		}
		runs = append(runs, r)
	}
	if len(runs) == 0 {
		err = refuse("%s: %d records, all without an action: their runs ended at their beginning, or have just begun",
			filepath.Dir(files[0]), len(files))
	}
	return runs, empty, err
}

// describe reads the run's metadata. fps is the frame rate of --fps; 0 without that flag.
func (r *run) describe(fps int, cameras []string) error {
	if r.joints = splitNames(r.info["joints"]); len(r.joints) == 0 {
		return refuse("%s: its metadata names no joints: a record that broke off before the run was known, or of "+
			"another program", r.name)
	}
	rate, err := strconv.ParseFloat(r.info["fps"], 64)
	if err != nil || !(rate > 0 && rate <= maxFPS) {
		return refuse("%s: fps %q in its metadata, want actions per second", r.name, r.info["fps"])
	}
	multiplier, err := strconv.Atoi(cmp.Or(r.info["interpolation_multiplier"], "1"))
	if err != nil || multiplier < 1 || multiplier > maxFPS {
		return refuse("%s: interpolation_multiplier %q in its metadata, want ticks per action", r.name,
			r.info["interpolation_multiplier"])
	}
	ticks := rate * float64(multiplier)
	r.rate, r.period = rate, 1e9/ticks
	if ticks != math.Trunc(ticks) {
		return refuse("%s has %v ticks per second, and LeRobot's fps is a whole number: record with a --fps that is "+
			"one", r.name, ticks)
	}
	if fps == 0 {
		if rate != math.Trunc(rate) {
			return refuse("%s has %v actions per second, and LeRobot's fps is a whole number: give --fps, a divisor "+
				"of %v", r.name, rate, ticks)
		}
		fps = int(rate)
	}
	if every := ticks / float64(fps); every < 1 || math.Abs(every-math.Round(every)) > 1e-9 {
		return refuse("%s has %v ticks per second, and --fps %d is no whole divisor of that: frames would lie "+
			"between ticks", r.name, ticks, fps)
	}
	r.fps = fps
	r.cams = splitNames(r.info["cameras"])
	for _, name := range cameras {
		if !slices.Contains(r.cams, name) {
			return refuse("%s has the cameras %q, and no %q", r.name, r.cams, name)
		}
	}
	if cameras != nil {
		r.cams = cameras
	}
	slices.Sort(r.cams)
	r.cams = slices.Compact(r.cams)
	return nil
}

func splitNames(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// every returns the number of ticks in a frame.
func (r *run) every() int { return int(math.Round(1e9 / r.period / float64(r.fps))) }

// visit reads the run's files in order until the end of ctx, and counts the torn and the damaged files.
func (r *run) visit(ctx context.Context, v record.Visitor) error {
	r.torn, r.damaged = 0, 0
	r.writing = false
	tick := v.Tick
	v.Tick = func(t *record.Tick) error {
		if err := ctx.Err(); err != nil || tick == nil {
			return err
		}
		return tick(t)
	}
	for _, path := range r.files {
		info, err := record.ReadFile(path, v)
		switch {
		case err != nil:
			return err
		case info.Damaged:
			r.damaged++
		case info.Torn:
			r.torn++
			r.writing = r.writing || info.Writing
		}
	}
	return nil
}

// pictureOrder drops pictures that an earlier file holds too, so that both readings of a run give
// each picture the same number.
type pictureOrder map[string]rt.Instant

func (o pictureOrder) fresh(camera string, at rt.Instant) bool {
	if last, seen := o[camera]; seen && at <= last {
		return false
	}
	o[camera] = at
	return true
}

// read loads the run's ticks, its episodes and the times of its pictures, but not the pictures
// themselves.
func (r *run) read(ctx context.Context) error {
	r.forget()
	r.pictures = map[string][]rt.Instant{}
	r.sessions = map[uint32]record.Session{}
	order := pictureOrder{}
	seen := map[string]bool{}
	var open *mark
	var tasks []mark // from each change of the task on
	last := rt.Instant(math.MinInt64)
	err := r.visit(ctx, record.Visitor{
		Tick: func(t *record.Tick) error {
			if t.At <= last {
				r.again++
				return nil
			}
			last = t.At
			return r.addTick(t)
		},
		Image: func(m *record.Image) error {
			if slices.Contains(r.cams, m.Camera) && order.fresh(m.Camera, m.At) {
				r.pictures[m.Camera] = append(r.pictures[m.Camera], m.At)
			}
			return nil
		},
		Session: func(s *record.Session) error {
			r.sessions[s.Epoch] = record.Session{
				ID:     strings.ToValidUTF8(s.ID, ""),
				SHA256: strings.ToValidUTF8(s.SHA256, ""),
			}
			return nil
		},
		Event: func(e *record.Event) error {
			if n := len(tasks); n == 0 || e.At > tasks[n-1].begin { // otherwise an earlier file has it, too
				tasks = append(tasks, taskFrom(e)...)
			}
			return nil
		},
		Episode: func(e *record.Episode) error {
			cut := fmt.Sprint(e.At, e.Number, e.Ended, e.Outcome)
			if !seen[cut] { // otherwise an earlier file has this message, too
				seen[cut] = true
				open = r.addMark(open, e)
			}
			return nil
		},
	})
	if open != nil {
		r.marks = append(r.marks, *open)
	}
	if len(r.marks) == 0 && r.headless == 0 {
		r.marks = []mark{{begin: math.MinInt64, end: never, task: r.info["task"]}}
		for _, m := range tasks {
			if before := &r.marks[len(r.marks)-1]; m.task != before.task || m.cut {
				before.end = m.begin
				r.marks = append(r.marks, m)
			}
		}
	}
	whole := r.info["task"]
	for i := range r.marks {
		m := &r.marks[i]
		if m.task == "" || m.cut && strings.HasPrefix(whole, m.task) {
			m.task, m.cut = whole, false
		}
	}
	return err
}

// taskFrom returns the rest of a run without episodes from an event on, if the event is a command that has given the
// task.
func taskFrom(e *record.Event) []mark {
	task, changed := strings.CutPrefix(e.Text.String(), "task ")
	if !changed || e.Kind != "operator" || e.B != 0 { // B: the command was refused
		return nil
	}
	return []mark{{
		begin: e.At,
		end:   never,
		task:  strings.TrimSpace(task), // as the run itself takes it from the command
		cut:   strings.HasSuffix(task, "…"),
	}}
}

// forget frees everything that read has loaded.
func (r *run) forget() {
	r.ticks = nil
	r.marks = nil
	r.sessions = nil
	r.pictures = nil
	r.bad = nil
	r.again, r.headless = 0, 0
	r.slept = 0
}

func (r *run) addTick(t *record.Tick) error {
	r.slept += time.Duration(t.Suspended)
	if t.BusSilent { // the arm's positions are not known
		return nil
	}
	n := len(r.joints)
	if t.State.N != n || t.Goal.N != n || t.Action.N != 0 && t.Action.N != n {
		return refuse("%s: a tick of %d joints, %d goals and %d actions, and its metadata names %d joints", r.name,
			t.State.N, t.Goal.N, t.Action.N, n)
	}
	rows := make([]float32, 0, 2*n+t.Action.N)
	rows = append(append(append(rows, t.State.Values()...), t.Goal.Values()...), t.Action.Values()...)
	for _, v := range rows {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return refuse("%s: a number of a tick is %v", r.name, v)
		}
	}
	k := tick{
		at:       t.At,
		deadline: t.At - rt.Instant(t.Lateness),
		slept:    r.slept,
		state:    rows[:n],
		goal:     rows[n : 2*n],
		source:   t.Source,
		seq:      t.Seq,
		epoch:    t.Epoch,
		row:      t.Index,
		person:   t.Intervention,
	}
	if t.Action.N > 0 {
		k.action = rows[2*n:]
	}
	k.cut = t.RangeClipped | t.StepClipped | t.Held | t.Frozen
	r.ticks = append(r.ticks, k)
	r.slept = 0
	return nil
}

// addMark handles the beginning or the end of an episode. The parameter open is the episode in progress, or nil.
// addMark returns the episode that is in progress afterwards.
func (r *run) addMark(open *mark, e *record.Episode) *mark {
	if !e.Ended {
		if open != nil { // the record has no end of the previous episode
			open.end = e.At
			r.marks = append(r.marks, *open)
		}
		return &mark{
			number: e.Number,
			begin:  e.At,
			end:    never,
			task:   e.Task.String(),
			cut:    e.Task.Cut(),
		}
	}
	if open == nil || open.number != e.Number {
		before := slices.IndexFunc(r.marks, func(m mark) bool { return m.number == e.Number })
		if before < 0 {
			r.headless++
		} else { // the operator changed the outcome after the end
			r.marks[before].outcome = e.Outcome
		}
		return open
	}
	open.end, open.outcome = e.At, e.Outcome
	if open.task == "" {
		open.task, open.cut = e.Task.String(), e.Task.Cut()
	}
	r.marks = append(r.marks, *open)
	return nil
}
