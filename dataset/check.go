package dataset

import (
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

	"edgert/internal/capped"
)

const (
	maxFindings = 50   // that are told
	tolerance   = 1e-4 // s of a time stamp: LeRobot's tolerance_s
)

// How far statistics may be from what they are said to be, in parts of the largest value.
// LeRobot's own have the rounding of float32 sums, a deviation's that of its square.
const (
	meanTolerance     = 1e-3
	stdTolerance      = 1e-2 // of the deviation itself, or
	varianceTolerance = 1e-5 // of the largest value's square
	quantileTolerance = 2e-2
)

// Verdict is what a check has found.
type Verdict struct {
	Summary
	Findings []string `json:"findings"`
	More     int      `json:"more_findings"` // than are told
	Videos   int      `json:"videos_checked"`
	Rows     int      `json:"rows_checked"`
}

// Whole reports whether nothing is wrong.
func (v *Verdict) Whole() bool { return len(v.Findings) == 0 }

func (v *Verdict) find(format string, args ...any) {
	if len(v.Findings) == maxFindings {
		v.More++
		return
	}
	v.Findings = append(v.Findings, fmt.Sprintf(format, args...))
}

// episodeRow is an episode as the dataset's meta has it.
type episodeRow struct {
	length, from, to int
	data             [2]int64
	tasks            []string
	videos           map[string]videoPart
	stats            map[string][]float64 // by the column's name
}

type videoPart struct {
	file     [2]int64
	from, to float64
}

// checker looks at one dataset.
type checker struct {
	Verdict
	dir      string
	info     *Info
	episodes []episodeRow
	tasks    []string
	before   map[string][]Stats // of the episodes so far
}

// Check reads a dataset as LeRobot's loader does, and compares it with what it says of
// itself. An error means that there was nothing to compare; videos: look at those too.
func Check(ctx context.Context, dir string, videos bool) (*Verdict, error) {
	info, err := readInfo(dir)
	if err != nil {
		return nil, err
	}
	c := &checker{dir: dir, info: info, before: map[string][]Stats{}}
	c.Findings = []string{}
	c.Summary = summary(dir, info)
	if err := c.readEpisodes(); err != nil {
		return nil, err
	}
	c.checkTasks()
	c.checkEpisodes()
	if err := c.checkData(ctx); err != nil {
		return nil, err
	}
	c.checkWhole()
	if videos && len(info.videos()) > 0 {
		if _, err := exec.LookPath(ffprobe); err != nil {
			return nil, refuse("to look at videos needs the program %s, which is not here: %s; or leave them out with --skip-videos", ffprobe, install)
		}
		if err := c.checkVideos(ctx); err != nil {
			return nil, err
		}
	}
	return &c.Verdict, nil
}

// integers reads a column of whole numbers, one in a row.
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

// readEpisodes reads the tables of the episodes, all files of them.
func (c *checker) readEpisodes() error {
	files, err := fs.Glob(os.DirFS(c.dir), "meta/episodes/*/*.parquet") // c.dir is a name, and no pattern
	if err != nil || len(files) == 0 {
		return refuse("%s has no meta/episodes/chunk-000/file-000.parquet", c.dir)
	}
	slices.Sort(files)
	for _, file := range files {
		file = filepath.Join(c.dir, file)
		columns, _, err := readTable(file, func(string) bool { return true })
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
	for _, v := range c.info.videos() {
		places[v] = [2][]int64{read("videos/" + v + "/chunk_index"), read("videos/" + v + "/file_index")}
		for _, end := range []string{"from", "to"} {
			if t := columns["videos/"+v+"/"+end+"_timestamp"]; t == nil || t.size != 1 || len(t.numbers) != t.rows {
				err = errors.Join(err, refuse("%s: no column videos/%s/%s_timestamp", episodePath, v, end))
			}
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
			c.find("episode %d stands where %d is expected: the loader finds episodes by their row", number[i], len(c.episodes))
		}
		e := episodeRow{length: int(length[i]), from: int(from[i]), to: int(to[i]), data: [2]int64{chunk[i], file[i]}, videos: map[string]videoPart{}, stats: map[string][]float64{}}
		if t := columns["tasks"]; t != nil && len(t.texts) > 0 {
			e.tasks = t.text(i)
		}
		for v, place := range places {
			e.videos[v] = videoPart{[2]int64{place[0][i], place[1][i]}, columns["videos/"+v+"/from_timestamp"].row(i)[0], columns["videos/"+v+"/to_timestamp"].row(i)[0]}
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

// checkTasks compares the tasks with what the loader needs: it finds one by its row.
func (c *checker) checkTasks() {
	columns, metadata, err := readTable(filepath.Join(c.dir, tasksPath), func(string) bool { return true })
	if err != nil {
		c.find("%v", err)
		return
	}
	numbers, err := integers(columns, "task_index")
	if err != nil {
		c.find("%s: no column task_index of numbers", tasksPath)
		return
	}
	texts := columns["task"]
	if texts == nil {
		texts = columns["__index_level_0__"] // an index without a name
	}
	if texts == nil || len(texts.texts) != len(numbers) {
		c.find("%s: no column task with a text in each row", tasksPath)
		return
	}
	c.tasks = texts.texts
	if len(numbers) != c.info.Tasks {
		c.find("%s says %d tasks, %s has %d", infoPath, c.info.Tasks, tasksPath, len(numbers))
	}
	for i, n := range numbers {
		if n != int64(i) {
			c.find("task %d stands in row %d of %s: the loader would take another's text", n, i, tasksPath)
		}
	}
	var pandas struct {
		Index []any `json:"index_columns"`
	}
	if json.Unmarshal([]byte(metadata["pandas"]), &pandas) != nil || len(pandas.Index) != 1 || pandas.Index[0] != "task" && pandas.Index[0] != "__index_level_0__" {
		c.find("%s does not say (metadata pandas) that the tasks are the rows' names: the loader would give numbers for tasks", tasksPath)
	}
}

// checkEpisodes looks whether episodes follow each other.
func (c *checker) checkEpisodes() {
	frames := 0
	for i, e := range c.episodes {
		if e.length < 1 || e.from != frames || e.to != e.from+e.length {
			c.find("episode %d has %d frames from %d to %d, and those before it end at %d", i, e.length, e.from, e.to, frames)
		}
		frames = e.to
		for v, p := range e.videos {
			if math.Abs(p.to-p.from-float64(e.length)/float64(c.info.FPS)) > 0.5/float64(c.info.FPS) || p.from < 0 {
				c.find("episode %d has %d frames at %d per second, and %s for it from %v to %v s", i, e.length, c.info.FPS, v, p.from, p.to)
			}
		}
	}
	if len(c.episodes) != c.info.Episodes || frames != c.info.Frames {
		c.find("%s says %d episodes of %d frames together, meta/episodes has %d of %d", infoPath, c.info.Episodes, c.info.Frames, len(c.episodes), frames)
	}
}

// checkData reads all numbers, a file at a time.
func (c *checker) checkData(ctx context.Context) error {
	for first := 0; first < len(c.episodes); {
		place := c.episodes[first].data
		last := first + 1
		for last < len(c.episodes) && c.episodes[last].data == place {
			last++
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		c.checkFile(first, last, fill(c.info.DataPath, "", place[0], place[1]))
		first = last
	}
	return nil
}

// checkFile compares the file that has the episodes from first to last.
func (c *checker) checkFile(first, last int, name string) {
	columns, _, err := readTable(filepath.Join(c.dir, name), func(n string) bool { return kinds[c.info.Features[n].DType] != 0 || numeric(c.info.Features[n].DType) })
	if err != nil {
		c.find("%v", strings.TrimPrefix(err.Error(), c.dir+"/"))
		return
	}
	rows := 0
	for _, e := range c.episodes[first:last] {
		rows += e.length
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
		case col.size != f.size() || len(col.numbers) != rows*f.size():
			c.find("%s: rows of %s have %s numbers, want %d", name, feature, col.sizeText(), f.size())
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

func numeric(dtype string) bool {
	return slices.Contains([]string{float32Type, int64Type, boolType, "float64", "int32", "int16", "int8", "uint8"}, dtype)
}

func (c *cells) sizeText() string {
	if c.size < 0 {
		return "differing numbers of"
	}
	return fmt.Sprint(c.size)
}

// checkFrames compares the numbers that LeRobot fixes; one finding for each of them.
func (c *checker) checkFrames(n int, columns map[string]*cells, row int) {
	e := &c.episodes[n]
	rules := []struct {
		name string
		ok   func(i int, v float64) bool
		want string
	}{
		{timestamp, func(i int, v float64) bool {
			return math.Abs(v-float64(i)/float64(c.info.FPS)) <= tolerance
		}, "frame_index/fps"},
		{frameIndex, func(i int, v float64) bool { return v == float64(i) }, "0, 1, 2 and so on"},
		{index, func(i int, v float64) bool { return v == float64(e.from+i) }, "the frames of before and one more"},
		{episodeIndex, func(_ int, v float64) bool { return v == float64(n) }, "the episode's"},
		{taskIndex, func(_ int, v float64) bool {
			return v >= 0 && v < float64(len(c.tasks)) && v == math.Trunc(v) && (len(e.tasks) == 0 || slices.Contains(e.tasks, c.tasks[int(v)]))
		}, "one of the episode's tasks"},
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
			if math.IsNaN(v) || math.IsInf(v, 0) {
				c.find("episode %d, frame %d: %s has %v", n, i/size, name, v)
				break
			}
		}
	}
}

// checkStats compares an episode's statistics with its numbers.
func (c *checker) checkStats(n int, columns map[string]*cells, row int) {
	e := &c.episodes[n]
	for name, col := range columns {
		f := c.info.Features[name]
		size := f.size()
		got := columnStats(col.numbers[row*size:(row+e.length)*size], size, f.DType != float32Type && f.DType != boolType)
		c.before[name] = append(c.before[name], got)
		said := map[string][]float64{}
		for _, stat := range append(statNames, "count") {
			if v, ok := e.stats["stats/"+name+"/"+stat]; ok && len(v) > 0 {
				said[stat] = v
			}
		}
		if len(said) > 0 {
			c.compare(fmt.Sprintf("episode %d", n), name, &got, said)
		}
	}
	for _, name := range c.info.videos() {
		c.comparePictures(fmt.Sprintf("episode %d", n), name, func(stat string) []float64 { return e.stats["stats/"+name+"/"+stat] })
	}
}

// compare compares statistics with what they are said to be.
func (c *checker) compare(where, name string, got *Stats, said map[string][]float64) {
	scale := make([]float64, len(got.Max))
	for i := range scale {
		scale[i] = max(math.Abs(got.Max[i]), math.Abs(got.Min[i]), 1e-6)
	}
	allowed := map[string]float64{"min": 1e-6, "max": 1e-6, "mean": meanTolerance, "std": 0}
	for stat, values := range got.series() {
		v, there := said[stat]
		if !there && stat[0] == 'q' { // older datasets have none
			continue
		}
		if len(v) != len(values) {
			c.find("%s: the %s of %s has %d numbers, want %d", where, stat, name, len(v), len(values))
			return
		}
		limit, fixed := allowed[stat]
		if !fixed {
			limit = quantileTolerance
		}
		for i := range v {
			near := math.Abs(v[i]-values[i]) <= limit*scale[i]
			if stat == "std" {
				near = math.Abs(v[i]-values[i]) <= stdTolerance*values[i] || math.Abs(v[i]*v[i]-values[i]*values[i]) <= varianceTolerance*scale[i]*scale[i]
			}
			if !near {
				c.find("%s: %s of %s is said to be %v, and is %v", where, stat, name, v[i], values[i])
				break
			}
		}
	}
	if n := said["count"]; len(n) != 1 || n[0] != float64(got.Count) {
		c.find("%s: count of %s is said to be %v, and is %d", where, name, n, got.Count)
	}
}

// comparePictures looks whether a camera's statistics make sense; they come from pictures
// before compression.
func (c *checker) comparePictures(where, name string, of func(stat string) []float64) {
	low, high, mean, std := of("min"), of("max"), of("mean"), of("std")
	f := c.info.Features[name]
	channels := 3
	if len(f.Shape) == 3 {
		channels = f.Shape[2]
	}
	if len(low) != channels || len(high) != channels || len(mean) != channels || len(std) != channels {
		c.find("%s: %s has statistics of %d, %d, %d and %d numbers, want %d each", where, name, len(low), len(high), len(mean), len(std), channels)
		return
	}
	for i := range low {
		if channels == 3 && !(low[i] >= 0 && low[i] <= mean[i] && mean[i] <= high[i] && high[i] <= 1 && std[i] >= 0 && std[i] <= 0.5+1e-6) {
			c.find("%s: %s has min, mean, max, std %v, %v, %v, %v, which no picture of 0 to 1 has", where, name, low[i], mean[i], high[i], std[i])
		}
	}
}

// checkWhole compares meta/stats.json with all episodes.
func (c *checker) checkWhole() {
	data, err := capped.ReadFile(filepath.Join(c.dir, statsPath), maxText)
	if err != nil {
		c.find("%s: %v: a policy cannot be trained without", statsPath, err)
		return
	}
	var all map[string]map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		c.find("%s: %v", statsPath, err)
		return
	}
	for name, f := range c.info.Features {
		stats := all[name]
		if stats == nil && (numeric(f.DType) || f.DType == videoType) {
			c.find("%s has nothing of %s", statsPath, name)
			continue
		}
		said := map[string][]float64{}
		for stat, v := range stats {
			said[stat] = flat(v, nil)
		}
		if episodes := c.before[name]; len(episodes) > 0 && len(episodes) == len(c.episodes) {
			got := together(episodes)
			c.compareQuantiles(name, &got, episodes, said)
			c.compare("all", name, &got, said)
		} else if f.DType == videoType {
			c.comparePictures("all", name, func(stat string) []float64 { return said[stat] })
		}
	}
}

// compareQuantiles looks whether those of all lie among the episodes', and takes them out
// of said: releases of LeRobot to 0.6 have their mean, later ones the outermost.
func (c *checker) compareQuantiles(name string, got *Stats, episodes []Stats, said map[string][]float64) {
	for k, q := range quantiles {
		v, there := said[q.name]
		delete(said, q.name)
		if !there || len(v) != len(got.Max) {
			continue
		}
		for d := range v {
			low, high := math.Inf(1), math.Inf(-1)
			for i := range episodes {
				x := (*episodes[i].quantile(k))[d]
				low, high = min(low, x), max(high, x)
			}
			slack := quantileTolerance * max(math.Abs(got.Max[d]), math.Abs(got.Min[d]), 1e-6)
			if !(v[d] >= low-slack && v[d] <= high+slack) {
				c.find("all: %s of %s is said to be %v, and the episodes' are from %v to %v", q.name, name, v[d], low, high)
				break
			}
		}
	}
}

// flat has the numbers of lists in lists.
func flat(v any, to []float64) []float64 {
	switch v := v.(type) {
	case float64:
		return append(to, v)
	case []any:
		for _, x := range v {
			to = flat(x, to)
		}
	}
	return to
}

// checkVideos looks at every video once.
func (c *checker) checkVideos(ctx context.Context) error {
	for _, name := range c.info.videos() {
		need := map[[2]int64]float64{} // s that episodes want of a file
		for _, e := range c.episodes {
			p := e.videos[name]
			need[p.file] = max(need[p.file], p.to)
		}
		for file, until := range need {
			path := fill(*c.info.VideoPath, name, file[0], file[1])
			if _, err := os.Stat(filepath.Join(c.dir, path)); err != nil {
				c.find("%s is not there", path)
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
			c.checkVideo(name, path, &v, until)
		}
	}
	return nil
}

func (c *checker) checkVideo(name, path string, v *Video, until float64) {
	f := c.info.Features[name]
	fps := float64(c.info.FPS)
	if len(f.Shape) == 3 && (v.H != f.Shape[0] || v.W != f.Shape[1]) {
		c.find("%s is %dx%d, %s says %dx%d", path, v.W, v.H, infoPath, f.Shape[1], f.Shape[0])
	}
	if math.Abs(v.FPS-fps) > fps*1e-6 {
		c.find("%s has %v frames per second on average, the dataset %d: torchcodec would pick wrong ones", path, v.FPS, c.info.FPS)
	}
	if v.Uneven > 0 {
		c.find("%s has %d frames off their time", path, v.Uneven)
	}
	if want := int(math.Round(until * fps)); v.Frames < want {
		c.find("%s has %d frames, its episodes want %d", path, v.Frames, want)
	}
	if info, ok := f.Info.(map[string]any); ok {
		if codec, _ := info["video.codec"].(string); codec != "" && codec != v.Codec {
			c.find("%s is %s, %s says %s", path, v.Codec, infoPath, codec)
		}
	}
}

// Seconds is how long all episodes are together.
func (s *Summary) Seconds() time.Duration {
	return time.Duration(float64(s.Frames) / float64(max(s.FPS, 1)) * float64(time.Second))
}
