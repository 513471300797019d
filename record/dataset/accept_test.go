package dataset

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// exact returns a quantile of a column as numpy.quantile computes it.
func exact(values []float64, q float64) float64 {
	v := slices.Clone(values)
	slices.Sort(v)
	at := q * float64(len(v)-1)
	i := int(at)
	return v[i] + (at-float64(i))*(v[min(i+1, len(v)-1)]-v[i])
}

// replace replaces a text in a file.
func replace(rel, old, with string) edit {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, rel)
		data := string(load(t, path))
		if !strings.Contains(data, old) {
			t.Fatalf("%s has no %q: %s", path, old, data)
		}
		rttest.WriteFile(t, "", path, strings.Replace(data, old, with, 1))
	}
}

// A dataset that LeRobot's loader accepts passes the check. Facts of interest become notes.
func TestCheckTakesWhatTheLoaderTakes(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	whole := checkable(t, "top")
	rename := func(t *testing.T, from, to string) {
		t.Helper()
		rttest.Do(t, os.MkdirAll(filepath.Dir(to), 0o777))
		rttest.Do(t, os.Rename(from, to))
	}
	for what, c := range map[string]struct {
		edit edit
		note string
	}{
		"a rate as a float": {replace(infoPath, `"fps": 30,`, `"fps": 30.0,`), ""},
		"a minor version":   {replace(infoPath, `"v3.0"`, `"v3.1"`), "version v3.1"},
		"sizes that are floats": {replace(infoPath, `"data_files_size_in_mb": 100`, `"data_files_size_in_mb": 0.5`),
			""},
		"keys of others": {replace(infoPath, `"fps": 30,`, `"fps": 30, "total_videos": 3, "x": {"y": []},`), ""},
		"no templates": {func(t *testing.T, dir string) {
			replace(infoPath, `"data_path"`, `"x"`)(t, dir)
			replace(infoPath, `"video_path"`, `"y"`)(t, dir)
		}, ""},
		"other templates": {func(t *testing.T, dir string) {
			replace(infoPath, `data/chunk-{chunk_index:03d}/file-{file_index:03d}`,
				`data/{chunk_index}/{file_index:05d}`)(t, dir)
			for i := range 3 {
				rename(t, filepath.Join(dir, fill(dataPath, "", 0, int64(i))),
					filepath.Join(dir, fill("data/{chunk_index}/{file_index:05d}.parquet", "", 0, int64(i))))
			}
			os.Remove(filepath.Join(dir, "data/chunk-000"))
		}, ""},
		"files of others": {func(t *testing.T, dir string) {
			for _, rel := range []string{"README.md", "data/chunk-000/notes.txt", "meta/more.json",
				".cache/huggingface/x.parquet", "images/x.png"} {
				rttest.WriteFile(t, dir, rel, "x")
			}
		}, ""},
		"exact quantiles": {func(t *testing.T, dir string) {
			d := read(t, dir)
			again(func(j *journal) {
				row := 0
				for _, e := range j.entries {
					for _, name := range []string{stateName, actionName} {
						s := e.Stats[name]
						for k, q := range quantiles {
							for i := range s.Max {
								var column []float64
								for _, r := range d.data[name][row : row+e.Frames] {
									column = append(column, r[i])
								}
								(*s.quantile(k))[i] = exact(column, q)
							}
						}
					}
					row += e.Frames
				}
			})(t, dir)
			editJSON(statsPath, func(stats map[string]any) {
				for _, name := range []string{stateName, actionName} {
					for k, q := range quantiles {
						var all []float64
						for i := range 3 {
							var column []float64
							for _, r := range d.data[name] {
								column = append(column, r[i])
							}
							all = append(all, exact(column, q))
						}
						stats[name].(map[string]any)[quantileNames[k]] = all
					}
				}
			})(t, dir)
		}, ""},
		"statistics of counters": {again(func(j *journal) {
			for _, name := range bookkeeping {
				s := j.entries[1].Stats[name]
				s.Mean[0], s.Min[0] = 700, 600
			}
		}), "the statistics of episode_index are not those of its numbers"},
		"a feature without statistics": {replace(statsPath, `"`+pictureAgeName+`"`, `"x"`),
			"has nothing of edge_rt.picture_age_ms"},
		"a camera without statistics": {replace(statsPath, `"`+imagePrefix+`top"`, `"x"`),
			"has nothing of observation.images.top"},
		"a lens cap": {again(func(j *journal) {
			s := j.entries[1].Stats[imagePrefix+"top"]
			for _, field := range s.fields() {
				(*field)[1] = 0.3
			}
			s.Std[1], s.Q90[1] = 0, 0.3+1e-9
		}), ""},
		"another codec": {replace(infoPath, `"video.codec": "h264"`, `"video.codec": "libx264"`),
			"gives libx264"},
		"annotations": {replace(infoPath, `"features": {`,
			`"features": {"language_events": {"dtype": "language", "shape": [1], "names": null},`), ""},
		"another's task": {again(func(j *journal) {
			j.tasks = []string{"hebe auf"}
		}), `frames of the task "hebe auf"`},
		"a number that is none, which no policy takes": {func(t *testing.T, dir string) {
			path := fill(dataPath, "", 0, 1)
			read, _, err := readTable(filepath.Join(dir, path), nil)
			rttest.Do(t, err)
			read[sourceAgeName].numbers[3] = math.NaN()
			again(func(j *journal) { // the statistics, too, are not numbers
				j.entries[1].Stats[sourceAgeName] = j.entries[0].Stats[sourceAgeName]
				rttest.Do(t, testFolder(t, dir).table(path, columns(j.settings.Features), func(table *table) error {
					return table.copy(read)
				}))
			})(t, dir)
			replace(statsPath, `"edge_rt.source_age_ms": {`, `"edge_rt.source_age_ms": {"x": [NaN, -Infinity],`)(t, dir)
		}, "edge_rt.source_age_ms has NaN"},
	} {
		t.Run(what, func(t *testing.T) {
			v := verdict(t, edited(t, whole, c.edit))
			if !v.Whole() || v.Rows != 45 || v.Videos != 3 {
				t.Fatalf("%+v", v)
			}
			if all := strings.Join(v.Notes, "\n"); !strings.Contains(all, c.note) || c.note == "" && all != "" {
				t.Errorf("the notes are\n%s\nwant %q", all, c.note)
			}
		})
	}
}

// The check finds data that the loader would misread, and data that the loader would refuse.
func TestCheckFindsWhatTheLoaderReadsToo(t *testing.T) {
	whole := checkable(t)
	for _, c := range map[string]struct {
		edit  edit
		found string
	}{
		"a table of no episode": {func(t *testing.T, dir string) {
			data := load(t, filepath.Join(dir, fill(dataPath, "", 0, 0)))
			rttest.WriteFile(t, dir, "data/chunk-000/copy.parquet", data)
		}, "copy.parquet is no episode's"},
		"the next version": {replace(infoPath, `"v3.0"`, `"v4.0"`), `version "v4.0", want v3.0`},
		"a path that leads out": {replace(infoPath, `data/chunk-{chunk_index:03d}`, `../../{chunk_index:03d}`),
			"leads out of the dataset"},
	} {
		v, err := Check(t.Context(), edited(t, whole, c.edit), false)
		if err == nil && !v.Whole() {
			err = refuse("%s", strings.Join(v.Findings, "\n"))
		}
		rttest.Fails(t, err, c.found)
	}
}

// Statistics of a matrix have one value per number of the matrix. LeRobot's own have one value per
// index of the last dimension.
func TestStatisticsOfAMatrix(t *testing.T) {
	f := Feature{DType: float32Type, Shape: []int{2, 3}}
	var values []float64
	for i := range 20 {
		for k := range 6 {
			values = append(values, float64(i*10+k))
		}
	}
	m := measure(values, f)
	for _, n := range []int{6, 3} {
		s := m.like(n)
		if len(s.Mean) != n || len(s.far[2].low) != n || s.Count != 20 || s.Max[n-1] != 195 {
			t.Errorf("%d values: %+v", n, s)
		}
	}
	if s := m.like(3); s.Min[0] != 0 || s.Mean[0] != 96.5 {
		t.Errorf("the first column is %+v, want from 0 to 193", s)
	}
	rttest.Want(t, len(m.like(4).Mean), 6, "of four values")
}
