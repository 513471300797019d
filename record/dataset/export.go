package dataset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/record"
)

// alike is the advice in the error for runs that do not fit into one dataset.
const alike = "make them alike with --fps, --cameras, --plain, --columns, or export each kind by its files or folder"

// Config configures one export.
type Config struct {
	Records []string // files and folders
	Out     string
	Append  bool     // adds the episodes to the existing dataset
	FPS     int      // frames per second of the dataset; 0: the records' actions per second
	Cameras []string // nil: all
	Only    []string // outcomes: success, failure, none; nil: all
	Task    string   // replaces the records' task; "": each record's own task
	VCodec  string   // a key of codecs
	CRF     int      // constant rate factor; 0: the codec's default
	Plain   bool     // leaves out the features that LeRobot's own recordings lack
	Columns []string // keys of optional: further features

	MaxGap time.Duration // longest time without a tick that held frames fill; a longer gap cuts the episode
	// Maximum age of a frame's picture. A frame whose newest picture is older counts as a frame
	// without a picture.
	MaxPictureAge time.Duration
	Missing       string // dropEpisode or cutEpisode: the treatment of frames without a picture

	Progress func(Progress) // may be nil
}

func (c *Config) rules() *rules {
	r := &rules{
		Task:          c.Task,
		MaxGap:        c.MaxGap,
		MaxPictureAge: c.MaxPictureAge,
		Missing:       c.Missing,
	}
	if len(c.Only) > 0 {
		r.Only = slices.Sorted(slices.Values(c.Only))
	}
	return r
}

// Progress is the state of an export in progress.
type Progress struct {
	Episodes, OfEpisodes int // of the current run
	Frames, OfFrames     int // of the current run
	Run, OfRuns          int
}

// Report summarizes a finished export.
type Report struct {
	Out              string   `json:"out"`
	Records          int      `json:"records"`
	Runs             int      `json:"runs"`
	Endless          int      `json:"torn"`     // records without an end
	Episodes         int      `json:"episodes"` // in the dataset
	Frames           int      `json:"frames"`
	Tasks            int      `json:"tasks"`
	FPS              int      `json:"fps"`
	Cameras          []string `json:"cameras"`
	Added            int      `json:"episodes_added"`
	AddedFrames      int      `json:"frames_added"`
	Resumed          int      `json:"episodes_resumed"` // from an interrupted export
	There            int      `json:"episodes_there"`   // episodes that the dataset or the interrupted export had already
	Held             int      `json:"frames_held"`      // frames whose tick is missing in the record
	Intervention     int      `json:"frames_intervention"`
	WorstPictureMS   float64  `json:"picture_age_ms_max"`
	WorstPictureTold string   `json:"picture_age_max_episode,omitempty"`
	Bytes            int64    `json:"bytes"`
	Left             Left     `json:"left_out"`
	Recording        int      `json:"runs_recording"`    // runs that were in progress during the export
	Replaced         int      `json:"episodes_replaced"` // episodes whose record has changed since the last export
	Removed          int      `json:"episodes_removed"`  // episodes discarded by the operator since the last export
	Torn             []Torn   `json:"pictures_torn,omitempty"`
	Pushed           string   `json:"pushed,omitempty"` // address of --push-to-hub
	Kept             string   `json:"kept,omitempty"`   // path of a person's file that the new dataset lacks
}

// partialOf returns the folder in which Export builds a dataset, beside its final place.
func partialOf(out string) string { return filepath.Clean(out) + ".partial" }

// Export makes a dataset from records, or adds episodes to one. If Export refuses the records or the dataset, the
// error is an InputError.
func Export(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Progress == nil {
		cfg.Progress = func(Progress) {}
	}
	codec, ok := codecs[cfg.VCodec]
	if !ok {
		return nil, refuse("no codec %q", cfg.VCodec)
	}
	cfg.CRF = cmp.Or(cfg.CRF, codec.crf)
	if err := checkTask(cfg.Task); err != nil {
		return nil, err
	}
	files, listed, err := find(cfg.Records)
	if err != nil {
		return nil, err
	}
	runs, empty, err := runsOf(ctx, files, listed)
	if err != nil {
		return nil, err
	}
	set, err := survey(ctx, &cfg, runs)
	if err != nil {
		return nil, err
	}
	if len(runs[0].cams) > 0 {
		if err := checkFFmpeg(ctx, cfg.VCodec); err != nil {
			return nil, err
		}
	}
	x := &export{cfg: &cfg, report: Report{
		Out:     cfg.Out,
		Records: len(files),
		Runs:    len(runs),
		FPS:     set.FPS,
		Cameras: runs[0].cams,
		Left:    Left{},
	}}
	x.report.Left.add(empty, "records without an action")
	done, err := x.prepare(ctx, runs, set)
	if err != nil {
		return nil, err
	}
	defer done()
	x.report.Resumed = len(x.journal.entries) - x.before
	for i, r := range runs {
		x.progress = Progress{Run: i + 1, OfRuns: len(runs)}
		if err := x.addRun(ctx, r); err != nil {
			if ctx.Err() != nil {
				err = errors.New("interrupted")
			}
			if !errors.As(err, new(InputError)) {
				err = fmt.Errorf("%w; %d episodes are whole in %s, and the same command goes on from there", err,
					len(x.journal.entries), x.dir)
			}
			return nil, err
		}
		runs[i] = nil // frees the run's ticks
	}
	return x.finish()
}

// survey reads the beginnings of all runs and refuses runs that do not fit into one dataset.
func survey(ctx context.Context, cfg *Config, runs []*run) (set settings, err error) {
	codec := codecs[cfg.VCodec]
	for i, r := range runs {
		if err := r.describe(cfg.FPS, cfg.Cameras); err != nil {
			return set, err
		}
		if err := r.measure(ctx); err != nil {
			return set, err
		}
		if err := codec.takes(r, cfg.VCodec); err != nil {
			return set, err
		}
		own := settings{
			Robot:    cmp.Or(r.info["robot_type"], r.info["robot"]),
			own:      r.info["robot"],
			Units:    r.info["units"],
			FPS:      r.fps,
			VCodec:   cfg.VCodec,
			CRF:      cfg.CRF,
			Features: features(r, cfg),
		}
		if i == 0 {
			set = own
			continue
		}
		first := journal{settings: set}
		if err := first.fits(own, r.name, runs[0].name, alike); err != nil {
			return set, err
		}
		if set.Robot == set.own {
			set.Robot = own.Robot
		}
	}
	return set, nil
}

// export is an export in progress.
type export struct {
	*folder  // the folder in which the dataset is built
	cfg      *Config
	out      string // final place of the dataset, with all links resolved
	journal  *journal
	old      *own           // the existing dataset at out; nil: no dataset
	extra    map[string]any // keys that a person has added to info.json
	before   int            // episodes that the existing dataset keeps
	report   Report
	progress Progress
}

// prepare resolves the final place, locks the partial folder and loads the work that it contains. The result done
// releases the lock.
func (x *export) prepare(ctx context.Context, runs []*run, set settings) (done func(), err error) {
	out, there, err := resolve(x.cfg.Out)
	switch {
	case err != nil:
		return nil, err
	case there && !x.cfg.Append:
		return nil, refuse("%s exists already: --append adds to it, or name another place", x.cfg.Out)
	case !there && x.cfg.Append:
		return nil, refuse("%s does not exist, so that --append has nothing to add to: leave --append out", x.cfg.Out)
	}
	x.out = out
	var files []string
	for _, r := range runs {
		files = append(files, r.files...)
	}
	if x.folder, err = folderFor(partialOf(out), files); err != nil {
		return nil, err
	}
	unlock, err := x.claim(x.cfg.Out)
	if err != nil {
		return nil, err
	}
	if err := x.takeUp(ctx, runs, set); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// takeUp continues an interrupted export, or begins a new export.
func (x *export) takeUp(ctx context.Context, runs []*run, set settings) error {
	var there []entry // episodes that the dataset at out keeps
	var old *journal
	if x.cfg.Append {
		var err error
		if old, err = x.readOld(set); err != nil {
			return err
		}
		stale, err := x.outdated(ctx, runs, old.entries)
		if err != nil {
			return err
		}
		for i, e := range old.entries {
			switch why := stale[i]; {
			case why == "":
				there = append(there, e)
			case why == discarded:
				x.report.Removed++
			default:
				x.report.Replaced++
			}
		}
		x.before = len(there)
	}
	j, err := readJournal(x.dir)
	if err == nil && len(j.entries) > 0 {
		ok, err := x.resume(ctx, j, runs, set, there, old != nil)
		if err != nil || ok {
			return err
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refuse("%w; remove %s to begin anew", err, x.dir)
	}
	return x.begin(set, old, there)
}

// readOld reads the journal of the dataset that --append adds to. It returns an error if the dataset would lose data
// by --append.
func (x *export) readOld(set settings) (*journal, error) {
	name := x.cfg.Out
	old, err := readJournal(x.out)
	if err != nil {
		return nil, refuse("%s was not made by edge-rt, or was edited since (%v): export into another place, and "+
			"join both with LeRobot's lerobot-edit-dataset", name, err)
	}
	info, err := readInfo(x.out)
	if err != nil {
		return nil, err
	}
	if info.Episodes != len(old.entries) || info.Frames != old.frames {
		return nil, refuse("%s has %d episodes, and edge-rt has made %d: it was edited; export into another place, "+
			"and join both with LeRobot's lerobot-edit-dataset", name, info.Episodes, len(old.entries))
	}
	if err := old.fits(set, "this export", name, alike); err != nil {
		return nil, err
	}
	if x.extra, err = x.unchanged(old); err != nil {
		return nil, err
	}
	x.old = new(of(old))
	return old, nil
}

// resume continues the interrupted export with the journal j. The result ok is false if a run has changed since, so
// that the export must begin anew. The interrupted export must begin with the episodes that the old dataset keeps
// (parameter there).
func (x *export) resume(ctx context.Context, j *journal, runs []*run, set settings, there []entry, adds bool) (ok bool,
	err error) {
	if err := j.fits(set, "this export", "the interrupted export in "+x.dir,
		"ask for the same, or remove that folder to begin anew"); err != nil {
		return false, err
	}
	if adds && (len(j.entries) < len(there) || !slices.EqualFunc(there, j.entries[:len(there)], func(a, b entry) bool {
		return a.Key == b.Key
	})) {
		return false, refuse("the interrupted export in %s did not begin with %s: remove it", x.dir, x.cfg.Out)
	}
	added := j.entries[len(there):]
	for _, e := range added {
		if e.Rules != nil && !reflect.DeepEqual(e.Rules, x.cfg.rules()) {
			return false, refuse("the interrupted export in %s had another --task, --only, --max-gap, "+
				"--max-picture-age or --missing-pictures: give the same, or remove that folder to begin anew", x.dir)
		}
		if !slices.ContainsFunc(runs, func(r *run) bool { return e.of(r) }) {
			return false, refuse("the interrupted export in %s has an episode of %s, which is not among the records: "+
				"name that too, or remove the folder", x.dir, e.Record)
		}
	}
	stale, err := x.outdated(ctx, runs, added)
	if err != nil || len(stale) > 0 { // a run has grown since, so the export begins anew
		return false, err
	}
	x.journal = j
	return true, j.mend()
}

// begin starts the folder, which takes over the listed episodes of the old dataset, if any.
func (x *export) begin(set settings, old *journal, there []entry) error {
	mine := own{videosOf(set.Features), maxEpisodes} // old has the same videos
	// Clears the remains of an export that broke off before its first episode. The settings of that
	// export do not bind this one.
	kept, err := mine.clear(x.dir, x.out)
	if err != nil {
		return err
	}
	if kept != "" {
		return refuse("%s was not made by an export: move it away", kept)
	}
	if old == nil {
		x.journal, err = newJournal(x.folder, set, nil)
		return err
	}
	return x.keep(old, there)
}

// addRun adds the episodes of a run that the dataset lacks.
func (x *export) addRun(ctx context.Context, r *run) error {
	if err := r.read(ctx); err != nil {
		return err
	}
	all, err := r.episodes(x.cfg, Left{})
	if err != nil {
		return err
	}
	if unknown := slices.DeleteFunc(slices.Clone(all), func(e episode) bool {
		return x.journal.known[e.key]
	}); len(unknown) > 0 {
		if err := r.checkPictures(ctx, unknown, x.cfg.MaxPictureAge); err != nil {
			return err
		}
	}
	if all, err = r.episodes(x.cfg, x.report.Left); err != nil {
		return err
	}
	x.report.Torn = append(x.report.Torn, r.tornPictures()...)
	x.report.Endless += r.torn
	x.report.Left.add(r.damaged, "records that are damaged before their end: what follows the damage is left out")
	x.report.Left.add(r.again, "ticks that another record has too")
	if r.writing {
		x.report.Recording++
	}
	all = x.once(r, all)
	fresh := all[:0]
	for _, e := range all {
		if x.journal.known[e.key] {
			x.report.There++
			continue
		}
		fresh = append(fresh, e)
		x.progress.OfEpisodes++
		x.progress.OfFrames += len(e.frames)
	}
	if len(fresh) == 0 {
		return nil
	}
	if len(x.journal.entries)+len(fresh) > maxEpisodes {
		return refuse("more than %d episodes", maxEpisodes)
	}
	f, err := newTranscoder(ctx, x, r, fresh)
	if err != nil {
		return err
	}
	defer f.close()
	order := pictureOrder{}
	err = r.visit(ctx, record.Visitor{
		Image: func(m *record.Image) error {
			if slices.Contains(r.cams, m.Camera) && order.fresh(m.Camera, m.At) && r.bad[m.Camera][m.At] == 0 {
				return f.picture(m)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	if err := f.complete(); err != nil || f.done == len(fresh) {
		return err
	}
	return fmt.Errorf("%s changed while it was read: %d of %d episodes have their pictures", r.name, f.done, len(fresh))
}

// complete adds an episode whose videos are finished: it writes the table, the statistics and the
// line in the journal.
func (x *export) complete(e *episode, stats map[string]featureStats) error {
	n := len(x.journal.entries)
	p := &place{
		fps:     x.journal.settings.FPS,
		episode: n,
		first:   x.journal.frames,
		task:    x.journal.task(e.mark.task),
	}
	features := x.journal.settings.Features
	cols := columns(features)
	numbers := map[string][]float64{}
	driven := 0.0 // number of frames in which a person drove the arm
	err := x.table(pathOf("", n), cols, func(t *table) error {
		for i := range e.frames {
			values := e.values(i, p)
			driven += values[intervention].(float64)
			for _, c := range cols {
				switch v := values[c.name].(type) {
				case float64:
					numbers[c.name] = append(numbers[c.name], v)
				case []float64:
					numbers[c.name] = append(numbers[c.name], v...)
				}
			}
			if err := t.write(values); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, c := range cols {
		f := features[c.name]
		if f.DType == stringType {
			continue
		}
		stats[c.name] = columnStats(numbers[c.name], f.size(), f.DType == int64Type)
	}
	line := entry{
		Key:          e.key,
		Record:       filepath.Base(e.of.name),
		Number:       e.mark.number,
		Outcome:      outcomeWord(e.outcome),
		Task:         e.mark.task,
		Frames:       len(e.frames),
		Held:         e.held,
		PictureAgeMS: float64(e.oldest) / 1e6,
		Intervention: int(driven),
		Rules:        x.cfg.rules(),
		Stats:        stats,
	}
	x.progress.Episodes++
	x.cfg.Progress(x.progress)
	return x.journal.add(line)
}

// finish writes the files of meta/ and moves the dataset to its final place.
func (x *export) finish() (*Report, error) {
	r, j := &x.report, x.journal
	r.Added = len(j.entries) - x.before - r.Resumed
	if len(j.entries) == 0 {
		all := own{videosOf(j.settings.Features), maxEpisodes}
		if kept, err := all.clear(x.dir, x.out); err == nil && kept == "" {
			os.RemoveAll(x.dir)
		}
		words := r.Left.words()
		for _, t := range r.Torn {
			words += fmt.Sprintf("; %d pictures of camera %s %s", t.Count, t.Camera, t.Why())
		}
		return nil, refuse("no episode is left of %d records: %s", r.Records, words)
	}
	if err := x.removeStrays(); err != nil {
		return nil, err
	}
	if err := x.writeMeta(j, x.extra); err != nil {
		return nil, err
	}
	if x.old != nil { // adopts files that a person added during the export
		if err := x.adopt(x.out, *x.old); err != nil {
			return nil, err
		}
	}
	for i, e := range j.entries {
		if i >= x.before {
			r.Held += e.Held
			r.AddedFrames += e.Frames
			r.Intervention += e.Intervention
		}
		if e.PictureAgeMS > r.WorstPictureMS {
			r.WorstPictureMS, r.WorstPictureTold = e.PictureAgeMS, strconv.Itoa(i)
		}
	}
	r.Episodes = len(j.entries)
	r.Frames = j.frames
	r.Tasks = len(j.tasks)
	var err error
	if r.Bytes, err = bytesOf(x.dir); err != nil {
		return nil, err
	}
	r.Kept, err = x.replace(x.out, x.old)
	return r, err
}

// bytesOf returns the number of bytes in the files of a folder.
func bytesOf(dir string) (bytes int64, err error) {
	err = walk(dir+"/", func(rel string, _ fs.DirEntry) error { // dir may be a link
		info, err := os.Stat(filepath.Join(dir, rel)) // follows links: the Hub's cache consists of them
		if err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes, err
}

// removeStrays removes files that an interrupted export has left after the last episode.
func (x *export) removeStrays() error {
	for _, name := range append(videosOf(x.journal.settings.Features), "") {
		for n := len(x.journal.entries); ; n++ {
			err := os.Remove(filepath.Join(x.dir, pathOf(name, n)))
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// words lists the reasons and their counts in one line.
func (l Left) words() string {
	var parts []string
	for why, n := range l {
		parts = append(parts, fmt.Sprintf("%d %s", n, why))
	}
	slices.Sort(parts)
	return cmp.Or(strings.Join(parts, "; "), "they have no episodes")
}
