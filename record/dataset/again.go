package dataset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// Reasons why an episode of a dataset differs from its record.
const (
	discarded = "it was discarded"
	changed   = "it has another outcome"
	completed = "its run went on"
	parted    = "its run has episodes of its own"
)

// of reports whether an episode came from run r.
func (e *entry) of(r *run) bool { return strings.HasPrefix(e.Key, r.key+"/") }

// begin returns the instant of an episode's first frame.
func (e *entry) begin() rt.Instant {
	at, _ := strconv.ParseInt(e.Key[strings.LastIndexByte(e.Key, '/')+1:], 10, 64)
	return rt.Instant(at)
}

// end returns the instant after an episode's last frame.
func (e *entry) end(fps int) rt.Instant {
	return e.begin() + rt.Instant(float64(e.Frames)*1e9/float64(fps))
}

// has reports whether a run's files still hold a whole episode. Files may have been deleted since the episode's export;
// the recorder itself deletes the oldest files.
func (r *run) has(e *entry, gap time.Duration) bool {
	slack := rt.Instant(gap) + rt.Instant(2*r.period)
	from := r.tickAt(e.begin())
	if from == len(r.ticks) || r.ticks[from].at > e.begin()+slack {
		return false
	}
	end := e.end(r.fps) - slack
	for i := from + 1; i < len(r.ticks) && r.ticks[i-1].at < end; i++ {
		if r.ticks[i].at > r.ticks[i-1].at+slack {
			return false
		}
	}
	return r.ticks[len(r.ticks)-1].at >= end
}

// once removes the episodes of a run that share frames with an episode of the dataset but begin at another instant.
// Such episodes appear after files of the record were deleted, or when the run is cut with other settings. With them,
// the dataset would hold the same frames twice.
func (x *export) once(r *run, all []episode) []episode {
	const apart = 100 * time.Millisecond // an overlap shorter than this is due to late ticks
	fps := x.journal.settings.FPS
	return slices.DeleteFunc(all, func(e episode) bool {
		n := entry{Key: e.key, Frames: len(e.frames)}
		twice := !x.journal.known[e.key] && slices.ContainsFunc(x.journal.entries, func(o entry) bool {
			return o.of(r) && min(n.end(fps), o.end(fps))-max(n.begin(), o.begin()) > rt.Instant(apart)
		})
		if twice {
			x.report.Left.add(1, "episodes that the dataset has in other parts, since their record was whole then, "+
				"or was cut otherwise: it keeps those")
		}
		return twice
	})
}

// outdated returns the indices of the entries whose records have changed, each with the reason: the run continued after
// the export, or an operator changed an outcome.
func (x *export) outdated(ctx context.Context, runs []*run, entries []entry) (stale map[int]string, err error) {
	stale = map[int]string{}
	for _, r := range runs {
		parts := map[uint32][]int{}
		for i, e := range entries {
			if e.of(r) {
				parts[e.Number] = append(parts[e.Number], i)
			}
		}
		if len(parts) == 0 {
			continue
		}
		if err := r.read(ctx); err != nil {
			return nil, err
		}
		for number, of := range parts {
			why, err := x.compare(ctx, r, number, entries, of)
			if err != nil {
				return nil, err
			}
			for _, i := range of {
				if why != "" {
					stale[i] = why
				}
			}
		}
		r.forget()
	}
	return stale, nil
}

// compare returns the reason why the parts of one episode are outdated; "" if they are current.
func (x *export) compare(ctx context.Context, r *run, number uint32, entries []entry, parts []int) (why string,
	err error) {
	c := *x.cfg
	if made := entries[parts[0]].Rules; made != nil { // other options are no change of the record
		c.Task = made.Task
		c.MaxGap = made.MaxGap
		c.MaxPictureAge = made.MaxPictureAge
		c.Missing = made.Missing
	}
	c.Only = nil
	frames, outcome := 0, ""
	for _, i := range parts {
		frames += entries[i].Frames
		if entries[i].Outcome != "" {
			outcome = entries[i].Outcome
		}
	}
	i := slices.IndexFunc(r.marks, func(m mark) bool { return m.number == number })
	thrown := i >= 0 && (r.marks[i].outcome == record.Discard || r.marks[i].outcome == record.Rerecord)
	for _, k := range parts {
		if !thrown && !r.has(&entries[k], max(c.MaxGap, defaultGap)) {
			return "", nil // the record no longer has frames that the dataset has
		}
	}
	switch {
	case i < 0 && number == 0:
		return parted, nil
	case i < 0: // the record no longer has the episode's beginning
		return "", nil
	}
	m := r.marks[i]
	switch {
	case thrown:
		return discarded, nil
	case outcome != outcomeWord(outcomeNumber(m.outcome)):
		return changed, nil
	}
	count := func() (n int, all []episode, err error) {
		one := *r
		one.marks = slices.DeleteFunc(slices.Clone(r.marks), func(m mark) bool { return m.number != number })
		all, err = one.episodes(&c, Left{})
		for _, e := range all {
			n += len(e.frames)
		}
		return n, all, err
	}
	n, all, err := count()
	if err != nil || n <= frames {
		return "", err
	}
	// torn pictures may be the cause of the difference
	if err := r.checkPictures(ctx, all, c.MaxPictureAge); err != nil {
		return "", err
	}
	if n, _, err = count(); err != nil || n <= frames {
		return "", err
	}
	return completed, nil
}

// keep brings episodes (parameter there) from the existing dataset into the folder; old is that dataset's journal. When
// an episode was removed, the numbers of later episodes change, so keep rewrites their data files. keep links all other
// files.
func (x *export) keep(old *journal, there []entry) error {
	if info, err := os.Stat(x.out); err != nil {
		return err
	} else if err := os.Chmod(x.dir, info.Mode().Perm()|0o700); err != nil {
		return err
	}
	if err := x.adopt(x.out, *x.old); err != nil {
		return err
	}
	from, to := 0, 0 // numbers of frames before an episode: in the old and in the new dataset
	next := 0
	fresh := &journal{known: map[string]bool{}, settings: old.settings}
	for n, e := range old.entries {
		if next == len(there) || e.Key != there[next].Key {
			from += e.Frames
			continue
		}
		task := fresh.task(e.Task)
		if err := x.keepVideos(n, next); err != nil {
			return err
		}
		numbers := pathOf("", n)
		if n == next && from == to && task == slices.Index(old.tasks, e.Task) {
			if err := x.link(numbers, numbers); err != nil {
				return err
			}
		} else if err := x.renumber(numbers, next, to, task, &e, old.settings.Features); err != nil {
			return err
		}
		fresh.take(e)
		from += e.Frames
		to += e.Frames
		next++
	}
	var err error
	x.journal, err = newJournal(x.folder, old.settings, fresh.entries)
	return err
}

func (x *export) keepVideos(from, to int) error {
	for _, name := range x.old.videos {
		if err := x.link(pathOf(name, from), pathOf(name, to)); err != nil {
			return err
		}
	}
	return nil
}

// link adds a file of the existing dataset to the folder.
func (x *export) link(from, to string) error {
	path, err := x.makeFor(to)
	if err != nil {
		return err
	}
	err = link(filepath.Join(x.out, from), path)
	if errors.Is(err, fs.ErrNotExist) {
		err = refuse("%s has no %s: it was edited; export into another place", x.cfg.Out, from)
	}
	return err
}

// renumber rewrites the data file of an episode for another position in the dataset.
func (x *export) renumber(from string, episode, first, task int, e *entry, features map[string]Feature) error {
	path := filepath.Join(x.out, from)
	read, _, err := readTable(path, func(name string) bool {
		return numeric(features[name].DType) || features[name].DType == stringType
	})
	if err != nil {
		return InputError{Err: err}
	}
	cols := columns(features)
	for _, c := range cols {
		col := read[c.name]
		if col == nil || col.rows != e.Frames || col.size != features[c.name].size() {
			return refuse(
				"%s has not the %d rows of %s that edge-rt has made: it was edited; export into another place", path,
				e.Frames, c.name)
		}
	}
	for i := range e.Frames {
		read[episodeIndex].numbers[i] = float64(episode)
		read[index].numbers[i] = float64(first + i)
		read[taskIndex].numbers[i] = float64(task)
	}
	e.Stats = maps.Clone(e.Stats)
	for _, name := range []string{episodeIndex, index, taskIndex} {
		e.Stats[name] = columnStats(read[name].numbers, 1, true)
	}
	return x.table(pathOf("", episode), cols, func(t *table) error { return t.copy(read) })
}

// copy adds the rows that were read from another table.
func (t *table) copy(from map[string]*cells) error {
	row := map[string]any{}
	for i := range from[index].rows {
		for name, col := range from {
			if col.texts != nil {
				row[name] = col.text(i)
			} else {
				row[name] = col.row(i)
			}
		}
		if err := t.write(row); err != nil {
			return err
		}
	}
	return nil
}

// unchanged returns an error for a dataset whose meta/ differs from the files that its journal produces: a person or
// a tool has edited meta/, and the export would lose the edit. The result extra has the keys that a person has added
// to info.json.
func (x *export) unchanged(old *journal) (extra map[string]any, err error) {
	dir, err := os.MkdirTemp("", "edge-rt-dataset-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ours := &folder{dir: dir, file: 0o600, sub: 0o700}
	if err := os.Mkdir(filepath.Join(dir, marker), 0o700); err != nil {
		return nil, err
	}
	if err := ours.writeMeta(old, nil); err != nil {
		return nil, err
	}
	edited := func(rel string, why error) error {
		return refuse("%s was edited since edge-rt has made it (%v), and that would be lost: export into another "+
			"place, and join both with LeRobot's lerobot-edit-dataset", filepath.Join(x.cfg.Out, rel), why)
	}
	var want, got map[string]any
	for _, rel := range []string{statsPath, infoPath} {
		want, got = nil, nil
		if err := errors.Join(readJSON(filepath.Join(dir, rel), &want),
			readJSON(filepath.Join(x.out, rel), &got)); err != nil {
			return nil, edited(rel, err)
		}
		for key, v := range want {
			if !alikeJSON(v, got[key]) {
				return nil, edited(rel, fmt.Errorf("its %s differs", key))
			}
			delete(got, key)
		}
		if rel == statsPath && len(got) > 0 {
			return nil, edited(rel, errors.New("it has more features"))
		}
	}
	for _, rel := range []string{tasksPath, fill(episodePath, "", 0, 0)} {
		if err := sameTables(filepath.Join(dir, rel), filepath.Join(x.out, rel)); err != nil {
			return nil, edited(rel, err)
		}
	}
	return got, nil
}

func readJSON(path string, to any) error {
	data, err := userfile.Read(path, maxText)
	if err != nil {
		return err
	}
	return userfile.ParseJSON(data, to)
}

// alikeJSON compares JSON values. Numbers may differ by rounding, which depends on the release.
func alikeJSON(a, b any) bool {
	switch x := a.(type) {
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, alikeJSON)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, alikeJSON)
	case float64:
		y, ok := b.(float64)
		return ok && alikeNumbers(x, y)
	}
	return a == b // a text, a truth value or nil
}

func alikeNumbers(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b))
}

// sameTables compares two tables, column by column.
func sameTables(a, b string) error {
	x, _, err := readTable(a, nil)
	if err != nil {
		return err
	}
	y, _, err := readTable(b, nil)
	if err != nil {
		return err
	}
	if len(x) != len(y) {
		return fmt.Errorf("it has %d columns instead of %d", len(y), len(x))
	}
	for name, c := range x {
		d := y[name]
		if d == nil || !slices.Equal(c.texts, d.texts) || !slices.Equal(c.starts, d.starts) ||
			!slices.EqualFunc(c.numbers, d.numbers, alikeNumbers) {
			return fmt.Errorf("its column %s differs", name)
		}
	}
	return nil
}

// checkTask returns an error for a text that pandas or a terminal cannot handle.
func checkTask(text string) error {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return refuse("the task %q is no line of UTF-8 without control characters", text)
	}
	if len(text) > record.MaxTask {
		return refuse("the task has %d bytes, want at most %d, as many as a policy is sent", len(text), record.MaxTask)
	}
	return nil
}
