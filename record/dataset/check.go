package dataset

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	maxFindings = 50   // most findings in a Verdict
	tolerance   = 1e-4 // s, for time stamps, as LeRobot's tolerance_s
)

// Verdict is the result of a check.
type Verdict struct {
	Summary
	Findings []string `json:"findings"`
	More     int      `json:"more_findings"` // findings beyond maxFindings
	Notes    []string `json:"notes"`         // facts of interest that do not stop the loader
	Videos   int      `json:"videos_checked"`
	Rows     int      `json:"rows_checked"`
}

// Whole reports whether the check has found no fault.
func (v *Verdict) Whole() bool { return len(v.Findings) == 0 }

func (v *Verdict) find(format string, args ...any) {
	if len(v.Findings) == maxFindings {
		v.More++
		return
	}
	v.Findings = append(v.Findings, fmt.Sprintf(format, args...))
}

// note adds a remark that is not a finding. It adds the same remark only once.
func (v *Verdict) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(v.Notes) < maxFindings && !slices.Contains(v.Notes, text) {
		v.Notes = append(v.Notes, text)
	}
}

// bookkeeping lists the features with which LeRobot indexes frames. No policy reads their
// statistics, and LeRobot's own tools do not update these after an edit.
var bookkeeping = []string{timestamp, frameIndex, episodeIndex, index, taskIndex}

// input reports whether the feature may be an input or an output of a policy.
func input(name string) bool {
	return strings.HasPrefix(name, "observation") || strings.HasPrefix(name, actionName)
}

// episodeRow is an episode's row in the dataset's meta/episodes.
type episodeRow struct {
	length, from, to int
	data             [2]int64
	tasks            []string
	videos           map[string]videoPart
	stats            map[string][]float64 // statistics by the column's name
}

type videoPart struct {
	file     [2]int64
	from, to float64
}

// checker checks one dataset.
type checker struct {
	Verdict
	dir      string
	info     *infoFile
	episodes []episodeRow
	tasks    []string
	before   map[string][]measured // statistics of the episodes so far
	without  map[string]bool       // features whose statistics cannot be compared
}

// Check reads a dataset as LeRobot's loader does, and compares its data with its metadata. If videos is set, Check
// also probes each video. An error means that no comparison was possible.
func Check(ctx context.Context, dir string, videos bool) (*Verdict, error) {
	info, err := readInfo(dir)
	if err != nil {
		return nil, err
	}
	c := &checker{
		dir:     dir,
		info:    info,
		before:  map[string][]measured{},
		without: map[string]bool{},
	}
	c.Findings, c.Notes = []string{}, []string{}
	c.Summary = summary(dir, info)
	if info.Codebase != Version {
		c.note("%s has version %s: the loader takes it, but this check knows only %s", infoPath, info.Codebase, Version)
	}
	if err := c.readEpisodes(); err != nil {
		return nil, err
	}
	c.checkTypes()
	c.checkTasks()
	c.checkEpisodes()
	if err := c.checkData(ctx); err != nil {
		return nil, err
	}
	c.checkWhole()
	if videos && len(videosOf(info.Features)) > 0 {
		if _, err := exec.LookPath(ffprobe); err != nil {
			return nil, refuse("to look at videos needs the program %s, which is not here: %s; or leave them out "+
				"with --skip-videos", ffprobe, install)
		}
		if err := c.checkVideos(ctx); err != nil {
			return nil, err
		}
	}
	slices.Sort(c.Notes)
	return &c.Verdict, nil
}

// integers returns a column of whole numbers, one per row.
func integers(columns map[string]*cells, name string) ([]int64, error) {
	c := columns[name]
	if c == nil || c.size != 1 && c.rows > 0 || len(c.numbers) != c.rows {
		return nil, refuse("%s: no column %s with a number in each row", episodePath, name)
	}
	out := make([]int64, c.rows)
	for i, v := range c.numbers {
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			return nil, refuse("%s: %s %v in row %d is no whole number", episodePath, name, v, i)
		}
		out[i] = int64(v)
	}
	return out, nil
}

// readEpisodes reads all tables of the episodes.
func (c *checker) readEpisodes() error {
	files, err := fs.Glob(os.DirFS(c.dir), "meta/episodes/*/*.parquet") // c.dir is no part of the pattern
	if err != nil || len(files) == 0 {
		return refuse("%s has no meta/episodes/chunk-000/file-000.parquet", c.dir)
	}
	slices.Sort(files)
	for _, file := range files {
		file = filepath.Join(c.dir, file)
		columns, _, err := readTable(file, nil)
		if err != nil {
			return InputError{Err: err}
		}
		if err := c.addEpisodes(columns); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (c *checker) addEpisodes(columns map[string]*cells) error {
	var err error
	read := func(name string) []int64 {
		v, failed := integers(columns, name)
		err = errors.Join(err, failed)
		return v
	}
	number, length := read("episode_index"), read("length")
	from, to := read("dataset_from_index"), read("dataset_to_index")
	chunk, file := read("data/chunk_index"), read("data/file_index")
	places := map[string][2][]int64{}
	for _, v := range videosOf(c.info.Features) {
		places[v] = [2][]int64{read("videos/" + v + "/chunk_index"), read("videos/" + v + "/file_index")}
		if t := columns["videos/"+v+"/from_timestamp"]; t == nil || t.size != 1 && t.rows > 0 ||
			len(t.numbers) != t.rows {
			err = errors.Join(err, refuse("%s: no column videos/%s/from_timestamp", episodePath, v))
		}
	}
	if err != nil {
		return err
	}
	if len(c.episodes)+len(number) > maxEpisodes {
		return refuse("more than %d episodes", maxEpisodes)
	}
	for i := range number {
		if number[i] != int64(len(c.episodes)) {
			c.find("episode %d is in row %d: the loader finds episodes by their row", number[i], len(c.episodes))
		}
		if length[i] > maxTableRows { // the sum of such lengths may overflow
			return refuse("episode %d has %d frames, want at most %d", number[i], length[i], maxTableRows)
		}
		e := episodeRow{
			length: int(length[i]),
			from:   int(from[i]),
			to:     int(to[i]),
			data:   [2]int64{chunk[i], file[i]},
			videos: map[string]videoPart{},
			stats:  map[string][]float64{},
		}
		if t := columns["tasks"]; t != nil && len(t.texts) > 0 {
			e.tasks = t.text(i)
		}
		for v, place := range places {
			p := videoPart{file: [2]int64{place[0][i], place[1][i]},
				from: columns["videos/"+v+"/from_timestamp"].row(i)[0]}
			p.to = p.from + float64(e.length)/c.info.FPS
			// Without this column the loader still works.
			if t := columns["videos/"+v+"/to_timestamp"]; t != nil && t.size == 1 && len(t.numbers) == t.rows {
				p.to = t.row(i)[0]
			}
			e.videos[v] = p
		}
		for name, values := range columns {
			if strings.HasPrefix(name, "stats/") && len(values.texts) == 0 {
				e.stats[name] = values.row(i)
			}
		}
		c.episodes = append(c.episodes, e)
	}
	return nil
}

// checkTasks checks the file of the tasks. The loader uses a task's number as the index of the task's row in this
// file.
func (c *checker) checkTasks() {
	columns, metadata, err := readTable(filepath.Join(c.dir, tasksPath), nil)
	if err != nil {
		c.find("%v", err)
		return
	}
	numbers, err := integers(columns, "task_index")
	if err != nil {
		c.find("%s: no column task_index of numbers", tasksPath)
		return
	}
	texts := cmp.Or(columns["task"], columns["__index_level_0__"]) // the latter is an index without a name
	if texts == nil || len(texts.texts) != len(numbers) {
		c.find("%s: no column task with a text in each row", tasksPath)
		return
	}
	c.tasks = texts.texts
	if len(numbers) != c.info.Tasks {
		c.find("%s gives %d tasks, %s has %d", infoPath, c.info.Tasks, tasksPath, len(numbers))
	}
	for i, n := range numbers {
		if n != int64(i) {
			c.find("task %d is in row %d of %s: the loader would take another task's text", n, i, tasksPath)
		}
	}
	var pandas struct {
		Index []any `json:"index_columns"`
	}
	if json.Unmarshal([]byte(metadata["pandas"]), &pandas) != nil || len(pandas.Index) != 1 ||
		pandas.Index[0] != "task" && pandas.Index[0] != "__index_level_0__" {
		c.find("%s does not mark the tasks as the names of the rows (metadata pandas): the loader would give numbers "+
			"for tasks", tasksPath)
	}
}

// checkEpisodes checks that the episodes follow each other without gaps.
func (c *checker) checkEpisodes() {
	frames := 0
	for i, e := range c.episodes {
		if e.length < 1 || e.from != frames || e.to != e.from+e.length {
			c.find("episode %d has %d frames from %d to %d, and those before it end at %d", i, e.length, e.from, e.to,
				frames)
		}
		frames = e.to
		for v, p := range e.videos {
			if !(math.Abs(p.to-p.from-float64(e.length)/c.info.FPS) <= 0.5/c.info.FPS && p.from >= 0) { // NaN must fail
				c.find("episode %d has %d frames at %v per second, and %s for it from %v to %v s", i, e.length,
					c.info.FPS, v, p.from, p.to)
			}
		}
	}
	if len(c.episodes) != c.info.Episodes || frames != c.info.Frames {
		c.find("%s gives %d episodes of %d frames together, meta/episodes has %d of %d", infoPath, c.info.Episodes,
			c.info.Frames, len(c.episodes), frames)
	}
}

// checkData reads all data files, one at a time.
func (c *checker) checkData(ctx context.Context) error {
	named := map[string]bool{}
	for first := 0; first < len(c.episodes); {
		place := c.episodes[first].data
		last := first + 1
		for last < len(c.episodes) && c.episodes[last].data == place {
			last++
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		name := fill(c.info.DataPath, "", place[0], place[1])
		if !filepath.IsLocal(name) {
			return refuse("%s: the data_path %q leads out of the dataset", infoPath, c.info.DataPath)
		}
		named[name] = true
		c.checkFile(first, last, name)
		first = last
	}
	there, err := fs.Glob(os.DirFS(c.dir), "data/*/*.parquet")
	for _, name := range there {
		if !named[name] {
			c.find("%s is no episode's, and the loader reads all files of the folder", name)
		}
	}
	return err
}

// checkFile checks the file of the episodes first..last-1.
func (c *checker) checkFile(first, last int, name string) {
	var foreign []string
	columns, _, err := readTable(filepath.Join(c.dir, name), func(n string) bool {
		f, named := c.info.Features[n]
		if !named && !slices.Contains(foreign, n) {
			foreign = append(foreign, n)
		}
		return numeric(f.DType)
	})
	if err != nil {
		c.find("%v", strings.TrimPrefix(err.Error(), c.dir+"/"))
		return
	}
	if len(foreign) > 0 {
		c.find("%s has columns that %s does not name: %q; the loader takes no such file", name, infoPath, foreign)
	}
	rows := 0
	for _, e := range c.episodes[first:last] {
		rows += max(e.length, 0)
	}
	for feature, f := range c.info.Features {
		if !numeric(f.DType) {
			continue
		}
		col := columns[feature]
		switch {
		case col == nil:
			c.find("%s has no column %s, which %s names", name, feature, infoPath)
		case col.rows != rows:
			c.find("%s has %d rows of %s, its episodes %d frames", name, col.rows, feature, rows)
		case len(col.texts) > 0:
			c.find("%s has texts in the column %s, %s gives %s", name, feature, infoPath, f.DType)
		case col.size != f.size() || len(col.numbers) != rows*f.size():
			c.find("%s: rows of %s have %s numbers, want %d", name, feature, col.sizeText(), f.size())
		case f.outside(col.numbers) >= 0:
			c.find("%s: %s has %v, which is no %s, the dtype in %s: the loader takes no such file", name, feature,
				col.numbers[f.outside(col.numbers)], f.DType, infoPath)
		default:
			continue
		}
		return
	}
	row := 0
	for i := first; i < last; i++ {
		e := &c.episodes[i]
		if e.length < 1 {
			continue
		}
		c.checkFrames(i, columns, row)
		c.checkStats(i, columns, row)
		row += e.length
	}
	c.Rows += rows
}

func (c *cells) sizeText() string {
	if c.size < 0 {
		return "differing numbers of"
	}
	return fmt.Sprint(c.size)
}

// checkFrames checks the columns that LeRobot prescribes. It reports at most one finding for each column.
func (c *checker) checkFrames(n int, columns map[string]*cells, row int) {
	e := &c.episodes[n]
	rules := []struct {
		name string
		ok   func(i int, v float64) bool
		want string
	}{
		{timestamp, func(i int, v float64) bool {
			return math.Abs(float64(float32(v)-float32(float64(i)/c.info.FPS))) <= tolerance // LeRobot compares float32
		}, "frame_index/fps"},
		{frameIndex, func(i int, v float64) bool { return v == float64(i) }, "0, 1, 2 and so on"},
		{index, func(i int, v float64) bool { return v == float64(e.from+i) }, "the earlier frames and one more"},
		{episodeIndex, func(_ int, v float64) bool { return v == float64(n) }, "the episode's"},
		{taskIndex, func(_ int, v float64) bool {
			if !(v >= 0 && v < float64(len(c.tasks)) && v == math.Trunc(v)) {
				return false
			}
			if task := c.tasks[int(v)]; len(e.tasks) > 0 && !slices.Contains(e.tasks, task) {
				c.note("episode %d has frames of the task %q, and meta/episodes has another for it: the loader takes "+
					"the frames'", n, task)
			}
			return true
		}, "the number of a task"},
	}
	for _, r := range rules {
		col := columns[r.name]
		if col == nil {
			c.find("there is no feature %s", r.name)
			continue
		}
		for i := range e.length {
			if v := col.numbers[row+i]; !r.ok(i, v) {
				c.find("episode %d, frame %d: %s is %v, want %s", n, i, r.name, v, r.want)
				break
			}
		}
	}
	for name, col := range columns {
		size := c.info.Features[name].size()
		for i, v := range col.numbers[row*size : (row+e.length)*size] {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				continue
			}
			if input(name) || slices.Contains(bookkeeping, name) {
				c.find("episode %d, frame %d: %s has %v", n, i/size, name, v)
			} else {
				c.without[name] = true
				c.note("%s has %v, first in episode %d, frame %d: no policy takes it as input", name, v, n, i/size)
			}
			break
		}
	}
}

// checkVideos probes every video once.
func (c *checker) checkVideos(ctx context.Context) error {
	for _, name := range videosOf(c.info.Features) {
		parts := map[[2]int64][]int{} // episodes of each file
		for n, e := range c.episodes {
			file := e.videos[name].file
			parts[file] = append(parts[file], n)
		}
		for file, episodes := range parts {
			path := fill(*c.info.VideoPath, name, file[0], file[1])
			if !filepath.IsLocal(path) {
				return refuse("%s: the video_path %q leads out of the dataset for %q", infoPath, *c.info.VideoPath,
					name)
			}
			if _, err := os.Stat(filepath.Join(c.dir, path)); err != nil {
				c.find("%s does not exist", path)
				continue
			}
			v, err := probe(ctx, filepath.Join(c.dir, path))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				c.find("%s: %v", path, err)
				continue
			}
			c.Videos++
			c.checkVideo(name, path, &v, episodes)
		}
	}
	return nil
}

// checkVideo checks a video with all frames of some episodes.
func (c *checker) checkVideo(name, path string, v *video, episodes []int) {
	f := c.info.Features[name]
	fps := c.info.FPS
	if h, w, _ := f.picture(); len(f.Shape) == 3 && (v.H != h || v.W != w) {
		c.find("%s is %dx%d, %s gives %dx%d", path, v.W, v.H, infoPath, w, h)
	}
	if math.Abs(v.FPS-fps) > fps*1e-6 {
		c.find("%s has %v frames per second on average, the dataset %v: torchcodec would pick wrong ones", path,
			v.FPS, fps)
	}
	for _, n := range episodes {
		e := &c.episodes[n]
		for i := range e.length {
			at := e.videos[name].from + float64(i)/fps
			// the loader takes the frame with this number, and compares its time
			k := int(math.Round(at * v.FPS))
			if k < 0 || k >= len(v.Times) || math.Abs(v.Times[k]-at) > tolerance {
				c.find("%s has no frame at %v s, for frame %d of episode %d", path, at, i, n)
				break
			}
		}
	}
	if info, ok := f.Info.(map[string]any); ok {
		if codec, _ := info["video.codec"].(string); codec != "" && codec != v.Codec {
			c.note("%s is %s, %s gives %s: the loader looks at the video", path, v.Codec, infoPath, codec)
		}
	}
}

// Seconds returns the length of all episodes together.
func (s *Summary) Seconds() time.Duration {
	return time.Duration(float64(s.Frames) / s.FPS * float64(time.Second))
}
