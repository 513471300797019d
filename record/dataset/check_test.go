package dataset

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/parquet-go/parquet-go"
)

// checkable exports a dataset of three episodes.
func checkable(t *testing.T, cameras ...string) string {
	t.Helper()
	s := &scene{seconds: 3, cameras: cameras}
	for i := range 3 {
		s.episodes = append(s.episodes, begin(i+1, float64(i), "x"), end(i+1, float64(i)+0.5, record.Success))
	}
	cfg := s.config(t)
	exporting(t, cfg)
	return cfg.Out
}

// Goal: the check accepts a long episode, although after 34 minutes a float32 time stamp differs from frame_index/fps
// by more than the tolerance.
func TestCheckTakesALongEpisode(t *testing.T) {
	cfg := (&scene{rate: 7, seconds: 2050, task: "x"}).config(t)
	exporting(t, cfg)
	if v := verdict(t, cfg.Out); !v.Whole() {
		t.Errorf("%+v", v)
	}
}

func verdict(t *testing.T, dir string) *Verdict {
	t.Helper()
	return rttest.Must(Check(t.Context(), dir, true))(t)
}

// edit changes the dataset in a folder.
type edit func(t *testing.T, dir string)

// edited returns a copy of a dataset with a change.
func edited(t *testing.T, whole string, change edit) string {
	t.Helper()
	dir := t.TempDir()
	rttest.Do(t, os.CopyFS(dir, os.DirFS(whole)))
	change(t, dir)
	return dir
}

// editJSON changes a JSON file.
func editJSON(path string, change func(map[string]any)) edit {
	return func(t *testing.T, dir string) {
		t.Helper()
		var v map[string]any
		rttest.Do(t, readJSON(filepath.Join(dir, path), &v))
		change(v)
		rttest.Do(t, testFolder(t, dir).writeJSON(path, v))
	}
}

// again rewrites meta/ from an edited journal.
func again(change func(*journal)) edit {
	return func(t *testing.T, dir string) {
		t.Helper()
		j := rttest.Must(readJournal(dir))(t)
		change(j)
		rttest.Do(t, testFolder(t, dir).writeMeta(j, nil))
	}
}

// An exported dataset passes the check, and the check finds each kind of damage.
func TestCheck(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	whole := checkable(t, "top")
	if v := verdict(t, whole); !v.Whole() || v.Rows != 45 || v.Videos != 3 {
		t.Fatalf("%+v", v)
	}
	remove := func(path string) edit {
		return func(t *testing.T, dir string) {
			rttest.Do(t, os.Remove(filepath.Join(dir, path)))
		}
	}
	swap := func(a, b string) edit {
		return func(t *testing.T, dir string) {
			rttest.Do(t, exchange(filepath.Join(dir, a), filepath.Join(dir, b)))
		}
	}
	info := func(key string, to any) edit {
		return editJSON(infoPath, func(v map[string]any) { v[key] = to })
	}
	feature := func(name, key string, to any) edit {
		return editJSON(infoPath, func(v map[string]any) {
			v["features"].(map[string]any)[name].(map[string]any)[key] = to
		})
	}
	all := func(name, stat string, to ...float64) edit {
		return editJSON(statsPath, func(v map[string]any) { v[name].(map[string]any)[stat] = to })
	}
	stat := func(j *journal, name string) *featureStats {
		s := j.entries[1].Stats[name]
		return &s
	}
	for _, c := range []struct {
		what   string
		damage edit
		found  string
	}{
		{"an episode too many", info("total_episodes", 4), "gives 4 episodes"},
		{"a frame too many", info("total_frames", 46), "46 frames"},
		{"a task too many", info("total_tasks", 2), "gives 2 tasks"},
		{"another rate", info("fps", 60), "want frame_index/fps"},
		{"another size of video", feature(imagePrefix+"top", "shape", []int{64, 48, 3}), "is 64x48"},
		{"a feature that is not there", editJSON(infoPath, func(v map[string]any) {
			v["features"].(map[string]any)["x"] = Feature{DType: float32Type, Shape: []int{2}}
		}), "no column x"},
		{"a feature of another width", feature(stateName, "shape", []int{4}), "want 4"},
		{"texts instead of numbers", feature(actionName, "dtype", "string"), "are texts of the shape [3]"},
		{"a text instead of a number", feature(taskIndex, "dtype", "string"), "want numbers"},
		{"a type that is none", feature(actionName, "dtype", "float31"), "which the loader does not know"},
		{"whole numbers that are none", feature(timestamp, "dtype", int64Type), "is no int64"},
		{"numbers below 0 without a sign", feature(actionName, "dtype", "uint8"), "is no uint8"},
		{"a column without a feature", editJSON(infoPath, func(v map[string]any) {
			delete(v["features"].(map[string]any), actionName)
		}), "does not name: [\"action\"]"},
		{"a mean", all(actionName, "mean", 0, 0, 0), "all: mean of action"},
		{"a mean that is no number", func(t *testing.T, dir string) {
			all(actionName, "mean", 123456, 0, 0)(t, dir)
			replace(statsPath, "123456", "-Infinity")(t, dir)
		}, "all: mean of action is -Inf"},
		{"a deviation below 0", editJSON(statsPath, func(v map[string]any) {
			std := v[actionName].(map[string]any)["std"].([]any)
			std[0] = -std[0].(float64)
		}), "all: std of action is -"},
		{"too few quantiles", all(actionName, "q99", 90), "all: the q99 of action has 1 numbers, want 3"},
		{"a quantile", all(actionName, "q99", 90, 0, 1), "all: q99 of action"},
		{"no statistics of a feature", editJSON(statsPath, func(v map[string]any) {
			delete(v, actionName)
		}), "nothing of action"},
		{"no statistics", remove(statsPath), statsPath},
		{"no tasks", remove(tasksPath), tasksPath},
		{"a file of data", remove(fill(dataPath, "", 0, 1)), "file-001.parquet"},
		{"a pointer to data", func(t *testing.T, dir string) {
			rttest.WriteFile(t, dir, fill(dataPath, "", 0, 1), "version https://git-lfs.github.com")
		}, "git lfs pull"},
		{"two files of data the other way round", swap(fill(dataPath, "", 0, 1), fill(dataPath, "", 0, 2)),
			"episode_index"},
		{"a video", remove(fill(videoPath, imagePrefix+"top", 0, 2)), "file-002.mp4 does not exist"},
		{"a video cut short", func(t *testing.T, dir string) {
			os.Truncate(filepath.Join(dir, fill(videoPath, imagePrefix+"top", 0, 2)), 700)
		}, "file-002.mp4"},
		{"an episode's length", again(func(j *journal) { j.entries[1].Frames = 14 }), "rows"},
		{"an episode's deviation", again(func(j *journal) { stat(j, stateName).Std[0] *= 1.1 }), "episode 1: std"},
		{"an episode's quantile", again(func(j *journal) { stat(j, stateName).Q90[0] += 3 }), "episode 1: q90"},
		{"an episode's count", again(func(j *journal) {
			s := stat(j, stateName)
			s.Count++
			j.entries[1].Stats[stateName] = *s
		}), "episode 1: count"},
		{"a count of no pictures", again(func(j *journal) {
			s := stat(j, imagePrefix+"top")
			s.Count = 0
			j.entries[1].Stats[imagePrefix+"top"] = *s
		}), "episode 1: the count of observation.images.top is [0]"},
		{"a picture's mean", again(func(j *journal) { stat(j, imagePrefix+"top").Mean[2] = 40 }), "which no picture"},
		{"a picture's deviation", again(func(j *journal) { stat(j, imagePrefix+"top").Std[2] = 0.001 }), "q90 want"},
		{"a camera's deviation", all(imagePrefix+"top", "std", 0.1, 0.1, 0.1), "all: std of observation.images.top"},
		{"a deviation without videos", func(t *testing.T, dir string) {
			feature(imagePrefix+"top", "dtype", "image")(t, dir)
			all(imagePrefix+"top", "std", 0.1, 0.1, 0.1)(t, dir)
		}, "all: std of observation.images.top"},
	} {
		t.Run(c.what, func(t *testing.T) {
			v := rttest.Must(Check(t.Context(), edited(t, whole, c.damage), strings.Contains(c.what, "video")))(t)
			rttest.Contains(t, strings.Join(v.Findings, "\n"), c.found)
		})
	}
}

// The check finds values that are not numbers, and the number of findings is bounded.
func TestFindingsAreBounded(t *testing.T) {
	dir := checkable(t)
	j := rttest.Must(readJournal(dir))(t)
	cols := columns(j.settings.Features)
	row := map[string]any{}
	for _, c := range cols {
		row[c.name] = []float64{math.NaN(), math.Inf(1), 0}[:j.settings.Features[c.name].size()]
	}
	for i := range 3 {
		rttest.Do(t, testFolder(t, dir).table(fill(dataPath, "", 0, int64(i)), cols, func(table *table) error {
			for range 15 {
				rttest.Do(t, table.write(row))
			}
			return nil
		}))
	}
	v := verdict(t, dir)
	if len(v.Findings) != maxFindings || v.More == 0 {
		t.Errorf("%d findings and %d more", len(v.Findings), v.More)
	}
}

func TestCheckRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ info, want string }{
		{"", "is no dataset"},
		{`{"codebase_version": "v2.1", "fps": 30}`, "convert_dataset_v21_to_v30"},
		{`{"codebase_version": "v3.0", "fps": 0}`, "0 frames per second"},
		{`{"codebase_version": "v3.0", "fps": 30, "total_episodes": 3}`, "make no sense"},
		{`{"codebase_version": "v3.0", "fps": 30, "data_path": "x", "features": {"a": {"dtype": "float32", "shape": [-1]}}}`, `"a"`},
		{`{"codebase_version": "v3.0", "fps": 30, "data_path": "x"}`, "has no meta/episodes"},
		{`[]`, infoPath},
		{"\uFEFF{}", infoPath + ": it begins with a byte order mark (BOM)"},
	} {
		if c.info != "" {
			rttest.WriteFile(t, dir, infoPath, c.info)
		}
		rttest.Fails(t, rttest.Err(Check(t.Context(), dir, false)), c.want)
	}
}

// Describe returns the same figures as the export's report, also for a link to the dataset.
func TestDescribe(t *testing.T) {
	dir := checkable(t)
	rttest.Do(t, os.Symlink(dir, dir+"2"))
	s := rttest.Must(Describe(dir + "2"))(t)
	if s.Episodes != 3 || s.Frames != 45 || s.FPS != 30 || s.Robot != "so101" || s.Outcomes[record.Success] != 3 ||
		len(s.Tasks) != 1 || s.Tasks[0] != (TaskCount{"x", 3}) || s.Bytes == 0 || len(s.Names()) != 13 {
		t.Errorf("%+v", s)
	}
}

// A table with all kinds of values and all depths of lists reads back as it was written.
func TestTable(t *testing.T) {
	var file bytes.Buffer
	cols := []column{{"b", parquet.Boolean, 0}, {"i", parquet.Int64, 0}, {"f", parquet.Float, 1},
		{"d", parquet.Double, 3}, {"t", parquet.ByteArray, 1}}
	w := newTable(&file, cols, parquet.KeyValueMetadata("k", "v"))
	rows := []map[string]any{
		{"b": 1.0, "i": float64(1 << 50), "f": []float64{1, 2}, "d": []float64{0.1, 0.2, 0.3}, "t": []string{"x"}},
		{"b": 0.0, "i": -3.0, "f": []float64{3, 4}, "d": []float64{4, 5, 6}, "t": []string{"y", "z"}},
	}
	for _, row := range rows {
		rttest.Do(t, w.write(row))
	}
	rttest.Do(t, w.writer.Close())
	got, metadata, err := parseTable(bytes.NewReader(file.Bytes()), int64(file.Len()), nil)
	if err != nil || metadata["k"] != "v" {
		t.Fatal(err, metadata)
	}
	same(t, "b", got["b"].numbers, []float64{1, 0})
	same(t, "i", got["i"].numbers, []float64{1 << 50, -3})
	same(t, "f", [][]float64{got["f"].row(0), got["f"].row(1)}, [][]float64{{1, 2}, {3, 4}})
	same(t, "d", [][]float64{got["d"].row(0), got["d"].row(1)}, [][]float64{{0.1, 0.2, 0.3}, {4, 5, 6}})
	same(t, "t", [][]string{got["t"].text(0), got["t"].text(1)}, [][]string{{"x"}, {"y", "z"}})
	same(t, "sizes", []int{got["b"].size, got["f"].size, got["d"].size, got["t"].size}, []int{1, 2, 3, -1})
}

// tables returns small tables for tests to damage.
func tables() (files [][]byte) {
	for _, depth := range []int{0, 1, 3} {
		var file bytes.Buffer
		w := newTable(&file, []column{{"n", parquet.Double, depth}, {"t", parquet.ByteArray, depth}})
		for i := range 3 {
			w.write(map[string]any{"t": []string{"text"}, "n": float64(i)})
		}
		w.writer.Close()
		files = append(files, file.Bytes())
	}
	return files
}

// Parsing a damaged table ends, with an error or a table. The library's LZ4 decoder does not end
// when a damaged byte in the footer sends Snappy's pages to it.
func TestDamagedTables(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	parse := func(data []byte) error {
		_, _, err := parseTable(bytes.NewReader(data), int64(len(data)), nil)
		return err
	}
	for _, file := range tables() {
		rttest.Do(t, parse(file))
		failed := 0
		for range 3000 {
			data := bytes.Clone(file)
			for range 1 + rng.IntN(6) {
				data[rng.IntN(len(data))] = byte(rng.Uint32())
			}
			if parse(data) != nil {
				failed++
			}
		}
		if failed < 300 {
			t.Errorf("%d of 3000 damaged tables were refused", failed)
		}
	}
	var file bytes.Buffer
	w := parquet.NewGenericWriter[struct {
		N float64 `parquet:"n,lz4"`
	}](&file)
	w.Write(make([]struct {
		N float64 `parquet:"n,lz4"`
	}, 3))
	w.Close()
	rttest.Fails(t, parse(file.Bytes()), "LZ4")
}

// FuzzTable reads arbitrary bytes as a table: the result is an error or a table, never a panic.
func FuzzTable(f *testing.F) {
	for _, file := range tables() {
		f.Add(file)
	}
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		columns, _, err := parseTable(bytes.NewReader(data), int64(len(data)), nil)
		if err != nil {
			return
		}
		for _, c := range columns {
			for i := range c.rows {
				if len(c.texts) == 0 {
					c.row(i)
				} else if len(c.numbers) == 0 {
					c.text(i)
				}
			}
		}
	})
}

// FuzzInfo reads arbitrary bytes as an info.json.
func FuzzInfo(f *testing.F) {
	f.Add([]byte(
		`{"codebase_version": "v3.0", "fps": 30, "data_path": "x", "video_path": "y", "features": {"a": {"dtype": "video", "shape": [3, 2, 1], "names": ["a"]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if i, err := parseInfo(data); err == nil {
			for _, feature := range i.Features {
				feature.size()
			}
			videosOf(i.Features)
		}
	})
}

// FuzzProbe reads arbitrary bytes as ffprobe's output.
func FuzzProbe(f *testing.F) {
	f.Add([]byte("{\n\"packets\": [\n{ \"pts\": 0 },\n{ \"pts\": 512 }\n],\n\"streams\": [\n{ \"codec_name\": " +
		"\"h264\", \"width\": 2, \"height\": 2, \"avg_frame_rate\": \"30/1\", \"time_base\": \"1/15360\" }\n]\n}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v video
		v.parse(bytes.NewReader(data))
	})
}

// An episode of negative length does not hide that the next episode is longer than the file of
// both. The sum of lengths cannot overflow. A part of a video has all frames of its episode at their times.
func TestImpossibleLengths(t *testing.T) {
	dir := checkable(t)
	long := edited(t, dir, again(func(j *journal) { j.entries[1].Frames = 1 << 50 }))
	rttest.Fails(t, rttest.Err(Check(t.Context(), long, false)), "episode 1 has 1125899906842624 frames")
	c := &checker{
		dir:      dir,
		info:     rttest.Must(readInfo(dir))(t),
		before:   map[string][]measured{},
		without:  map[string]bool{},
		episodes: []episodeRow{{length: -5}, {length: 20}},
	}
	if c.checkFile(0, 2, pathOf("", 0)); len(c.Findings) != 1 || !strings.Contains(c.Findings[0], "has 15 rows") {
		t.Errorf("%q, want that the file has 15 rows and its episodes 20 frames", c.Findings)
	}
	never := videoPart{from: math.NaN(), to: math.NaN()}
	c.episodes = []episodeRow{{length: 45, to: 45, videos: map[string]videoPart{"v": never}},
		{length: 1, videos: map[string]videoPart{"v": {from: 0.001}}}}
	c.checkEpisodes()
	c.checkVideo("v", "v.mp4", &video{FPS: 30, Times: []float64{0}}, []int{0, 1})
	rttest.Contains(t, strings.Join(c.Findings, "\n"), "v for it from NaN to NaN s",
		"v.mp4 has no frame at 0.001 s, for frame 0 of episode 1")
}
