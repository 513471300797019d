package dataset

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// exact returns a quantile of a column as numpy.quantile computes it.
func exact(values []float64, q float64) float64 {
	v := slices.Clone(values)
	slices.Sort(v)
	at := q * float64(len(v)-1)
	i := int(at)
	return v[i] + (at-float64(i))*(v[min(i+1, len(v)-1)]-v[i])
}

// replaceIn replaces a text in a file.
func replaceIn(t *testing.T, path, old, with string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q: %s", path, old, data)
	}
	put(t, path, strings.Replace(string(data), old, with, 1))
}

func again(t *testing.T, dir string, edit func(*journal)) {
	t.Helper()
	j, err := readJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	edit(j)
	if err := testFolder(t, dir).writeMeta(j, nil); err != nil {
		t.Fatal(err)
	}
}

// A dataset that LeRobot's loader accepts passes the check. Facts of interest become notes.
func TestCheckTakesWhatTheLoaderTakes(t *testing.T) {
	needFFmpeg(t)
	whole := checkable(t, "top")
	info := func(dir string) string { return filepath.Join(dir, infoPath) }
	rename := func(t *testing.T, from, to string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		edit func(t *testing.T, dir string)
		note string
	}{
		"a rate as a float": {func(t *testing.T, dir string) {
			replaceIn(t, info(dir), `"fps": 30,`, `"fps": 30.0,`)
		}, ""},
		"a minor version": {func(t *testing.T, dir string) {
			replaceIn(t, info(dir), `"v3.0"`, `"v3.1"`)
		}, "version v3.1"},
		"sizes that are floats": {func(t *testing.T, dir string) {
			replaceIn(t, info(dir), `"data_files_size_in_mb": 100`, `"data_files_size_in_mb": 0.5`)
		}, ""},
		"keys of others": {func(t *testing.T, dir string) {
			replaceIn(t, info(dir), `"fps": 30,`, `"fps": 30, "total_videos": 3, "x": {"y": []},`)
		}, ""},
		"no templates": {func(t *testing.T, dir string) {
			replaceIn(t, info(dir), `"data_path"`, `"x"`)
			replaceIn(t, info(dir), `"video_path"`, `"y"`)
		}, ""},
		"other templates": {func(t *testing.T, dir string) {
			replaceIn(t, info(dir), `data/chunk-{chunk_index:03d}/file-{file_index:03d}`,
				`data/{chunk_index}/{file_index:05d}`)
			for i := range 3 {
				rename(t, filepath.Join(dir, fill(dataPath, "", 0, int64(i))),
					filepath.Join(dir, fill("data/{chunk_index}/{file_index:05d}.parquet", "", 0, int64(i))))
			}
			os.Remove(filepath.Join(dir, "data/chunk-000"))
		}, ""},
		"files of others": {func(t *testing.T, dir string) {
			for _, rel := range []string{"README.md", "data/chunk-000/notes.txt", "meta/more.json",
				".cache/huggingface/x.parquet", "images/x.png"} {
				put(t, filepath.Join(dir, rel), "x")
			}
		}, ""},
		"exact quantiles": {func(t *testing.T, dir string) {
			d := read(t, dir)
			again(t, dir, func(j *journal) {
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
								(*s.quantile(k))[i] = exact(column, q.q)
							}
						}
					}
					row += e.Frames
				}
			})
			var stats map[string]map[string]any
			if err := readJSON(filepath.Join(dir, statsPath), &stats); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{stateName, actionName} {
				for _, q := range quantiles {
					var all []float64
					for i := range 3 {
						var column []float64
						for _, r := range d.data[name] {
							column = append(column, r[i])
						}
						all = append(all, exact(column, q.q))
					}
					stats[name][q.name] = all
				}
			}
			if err := testFolder(t, dir).writeJSON(statsPath, stats); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"statistics of counters": {func(t *testing.T, dir string) {
			again(t, dir, func(j *journal) {
				for _, name := range bookkeeping {
					s := j.entries[1].Stats[name]
					s.Mean[0], s.Min[0] = 700, 600
				}
			})
		}, "the statistics of episode_index are not those of its numbers"},
		"a feature without statistics": {func(t *testing.T, dir string) {
			replaceIn(t, filepath.Join(dir, statsPath), `"`+pictureAgeName+`"`, `"x"`)
		}, "has nothing of edge_rt.picture_age_ms"},
		"a camera without statistics": {func(t *testing.T, dir string) {
			replaceIn(t, filepath.Join(dir, statsPath), `"`+imagePrefix+`top"`, `"x"`)
		}, "has nothing of observation.images.top"},
		"another codec": {func(t *testing.T, dir string) {
			replaceIn(t, info(dir), `"video.codec": "h264"`, `"video.codec": "libx264"`)
		}, "gives libx264"},
		"another's task": {func(t *testing.T, dir string) {
			again(t, dir, func(j *journal) { j.tasks = []string{"hebe auf"} })
		}, `frames of the task "hebe auf"`},
		"a number that is none, which no policy takes": {func(t *testing.T, dir string) {
			j, err := readJournal(dir)
			if err != nil {
				t.Fatal(err)
			}
			path := fill(dataPath, "", 0, 1)
			read, _, err := readTable(filepath.Join(dir, path), func(string) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			read[sourceAgeName].numbers[3] = math.NaN()
			if err := testFolder(t, dir).table(path, columns(j.settings.Features), func(table *table) error {
				for i := range read[index].rows {
					if err := table.write(func(name string) any { return read[name].row(i) }); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			again(t, dir, func(j *journal) { // the statistics too are not numbers
				delete(j.entries[1].Stats, sourceAgeName)
				j.entries[1].Stats[sourceAgeName] = j.entries[0].Stats[sourceAgeName]
			})
		}, "edge_rt.source_age_ms has NaN"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			c.edit(t, dir)
			v, err := Check(t.Context(), dir, true)
			if err != nil || !v.Whole() || v.Rows != 45 || v.Videos != 3 {
				t.Fatalf("%v, %+v", err, v)
			}
			if all := strings.Join(v.Notes, "\n"); !strings.Contains(all, c.note) || c.note == "" && all != "" {
				t.Errorf("the notes are\n%s\nwant %q", all, c.note)
			}
		})
	}
}

// The check finds data that the loader would read wrong, or not at all.
func TestCheckFindsWhatTheLoaderReadsToo(t *testing.T) {
	whole := checkable(t)
	for what, c := range map[string]struct {
		edit  func(t *testing.T, dir string)
		found string
	}{
		"a table of no episode": {func(t *testing.T, dir string) {
			data, err := os.ReadFile(filepath.Join(dir, fill(dataPath, "", 0, 0)))
			if err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(dir, "data/chunk-000/copy.parquet"), string(data))
		}, "copy.parquet is no episode's"},
		"the next version": {func(t *testing.T, dir string) {
			replaceIn(t, filepath.Join(dir, infoPath), `"v3.0"`, `"v4.0"`)
		}, `version "v4.0", want v3.0`},
		"a path that leads out": {func(t *testing.T, dir string) {
			replaceIn(t, filepath.Join(dir, infoPath), `data/chunk-{chunk_index:03d}`, `../../{chunk_index:03d}`)
		}, "leads out of the dataset"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		c.edit(t, dir)
		v, err := Check(t.Context(), dir, false)
		if err == nil && !v.Whole() {
			err = refuse("%s", strings.Join(v.Findings, "\n"))
		}
		if err == nil || !strings.Contains(err.Error(), c.found) {
			t.Errorf("%s: %v, want %q", what, err, c.found)
		}
	}
}

// Statistics of a matrix have one value per number of the matrix or, as LeRobot's, per index of its
// last dimension.
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
		s, far := m.like(n)
		if len(s.Mean) != n || len(far[2].low) != n || s.Count != 20 || s.Max[n-1] != 195 {
			t.Errorf("%d values: %+v", n, s)
		}
	}
	if s, _ := m.like(3); s.Min[0] != 0 || s.Mean[0] != 96.5 {
		t.Errorf("the first column is %+v, want from 0 to 193", s)
	}
	if s, _ := m.like(4); len(s.Mean) != 6 {
		t.Errorf("of four values: %+v, want the numbers' own", s)
	}
}
