package dataset

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// kinds maps a feature's dtype to its Parquet type.
var kinds = map[string]parquet.Kind{float32Type: parquet.Float, int64Type: parquet.Int64, boolType: parquet.Boolean}

// pandasIndex marks the tasks as the names of the rows: the loader finds a task by its row and
// reads the text from the row's name.
const pandasIndex = `{"index_columns": ["task"], "column_indexes": [{"name": null, "field_name": null, "pandas_type": "unicode", "numpy_type": "object", "metadata": {"encoding": "UTF-8"}}], "columns": [{"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": null}, {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": null}], "creator": {"library": "edge-rt", "version": "1"}, "pandas_version": "2.0.0"}`

// writeMeta writes the files of meta/ from a journal. It writes info.json, which a loader looks for
// first, last. extra are the keys that a person has added to info.json.
func (f *folder) writeMeta(j *journal, extra map[string]any) error {
	set := &j.settings
	videos := (&Info{Features: set.Features}).videos()
	if err := f.writeEpisodes(j, videos); err != nil {
		return err
	}
	err := f.table(tasksPath, []column{{"task_index", parquet.Int64, 0}, {"task", parquet.ByteArray, 0}},
		func(t *table) error {
			for i, task := range j.tasks {
				err := t.write(func(name string) any {
					if name == "task" {
						return task
					}
					return int64(i)
				})
				if err != nil {
					return err
				}
			}
			return nil
		}, parquet.KeyValueMetadata("pandas", pandasIndex))
	if err != nil {
		return err
	}
	all := map[string]any{}
	for name, f := range set.Features {
		var each []Stats
		for _, e := range j.entries {
			each = append(each, e.Stats[name])
		}
		s := together(each)
		stats := map[string]any{"count": []int64{s.Count}}
		for stat, values := range s.series() {
			stats[stat] = shaped(values, f.DType)
		}
		all[name] = stats
	}
	if err := f.writeJSON(statsPath, all); err != nil {
		return err
	}
	return f.writeInfo(j, videos, extra)
}

// writeInfo writes info.json.
func (f *folder) writeInfo(j *journal, videos []string, extra map[string]any) error {
	set := &j.settings
	info := Info{
		Codebase:    Version,
		FPS:         float64(set.FPS),
		Features:    set.Features,
		Episodes:    len(j.entries),
		Frames:      j.frames,
		Tasks:       len(j.tasks),
		ChunksSize:  chunksSize,
		DataFileMB:  dataFileMB,
		VideoFileMB: videoFileMB,
		DataPath:    dataPath,
		Splits:      map[string]string{"train": fmt.Sprintf("0:%d", len(j.entries))},
	}
	if len(videos) > 0 {
		path := videoPath
		info.VideoPath = &path
	}
	if set.Robot != "" {
		info.RobotType = &set.Robot
	}
	if len(extra) == 0 {
		return f.writeJSON(infoPath, info)
	}
	text, err := json.Marshal(info)
	all := maps.Clone(extra)
	if err = errors.Join(err, json.Unmarshal(text, &all)); err != nil {
		return err
	}
	return f.writeJSON(infoPath, all)
}

// shaped gives statistics LeRobot's shape: (3, 1, 1) for pictures, flat otherwise.
func shaped(values []float64, dtype string) any {
	if dtype != videoType {
		return values
	}
	var out [][][]float64
	for _, v := range values {
		out = append(out, [][]float64{{v}})
	}
	return out
}

func (f *folder) writeJSON(rel string, v any) error {
	text, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	return f.write(rel, func(to *os.File) error {
		_, err := to.Write(append(text, '\n'))
		return err
	})
}

// writeEpisodes writes the table of the episodes, which also holds their statistics.
func (f *folder) writeEpisodes(j *journal, videos []string) error {
	numbers := []string{"episode_index", "length", "data/chunk_index", "data/file_index",
		"dataset_from_index", "dataset_to_index", "meta/episodes/chunk_index", "meta/episodes/file_index"}
	cols := []column{{"tasks", parquet.ByteArray, 1}}
	for _, name := range numbers {
		cols = append(cols, column{name, parquet.Int64, 0})
	}
	for _, v := range videos {
		cols = append(cols, column{"videos/" + v + "/chunk_index", parquet.Int64, 0},
			column{"videos/" + v + "/file_index", parquet.Int64, 0},
			column{"videos/" + v + "/from_timestamp", parquet.Double, 0},
			column{"videos/" + v + "/to_timestamp", parquet.Double, 0})
	}
	for _, name := range slices.Sorted(maps.Keys(j.settings.Features)) {
		depth := 1
		if j.settings.Features[name].DType == videoType {
			depth = 3
		}
		for _, stat := range statNames {
			cols = append(cols, column{"stats/" + name + "/" + stat, parquet.Double, depth})
		}
		cols = append(cols, column{"stats/" + name + "/count", parquet.Int64, 1})
	}
	return f.table(fill(episodePath, "", 0, 0), cols, func(t *table) error {
		first := 0
		for i, e := range j.entries {
			if err := t.write(func(name string) any { return e.cell(name, i, first, j.settings.FPS) }); err != nil {
				return err
			}
			first += e.Frames
		}
		return nil
	})
}

// cell returns the value of a column for episode i. first is the dataset's index of its first
// frame.
func (e *entry) cell(name string, i, first, fps int) any {
	switch kind, rest, _ := strings.Cut(name, "/"); {
	case name == "tasks":
		return []string{e.Task}
	case name == "episode_index":
		return int64(i)
	case name == "length":
		return int64(e.Frames)
	case name == "dataset_from_index":
		return int64(first)
	case name == "dataset_to_index":
		return int64(first + e.Frames)
	case kind == "meta":
		return int64(0)
	case kind == "stats":
		feature, stat := filepath.Split(rest)
		s := e.Stats[strings.TrimSuffix(feature, "/")]
		if stat == "count" {
			return []float64{float64(s.Count)}
		}
		return s.series()[stat]
	case strings.HasSuffix(name, "/chunk_index"):
		return int64(i / chunksSize)
	case strings.HasSuffix(name, "/file_index"):
		return int64(i % chunksSize)
	case strings.HasSuffix(name, "/from_timestamp"):
		return 0.0
	case strings.HasSuffix(name, "/to_timestamp"):
		return float64(e.Frames) / float64(fps)
	}
	return nil
}

// readInfo reads meta/info.json and refuses values that make no sense.
func readInfo(dir string) (*Info, error) {
	data, err := userfile.Read(filepath.Join(dir, infoPath), maxText)
	if err != nil {
		info, gone := given(dir)
		if gone != nil {
			return nil, gone
		}
		if !info.IsDir() {
			return nil, refuse("%s is a file: want the folder of a dataset, with its %s", dir, infoPath)
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, refuse("%s is no dataset: it has no %s", dir, infoPath)
	}
	if err != nil {
		return nil, err
	}
	return parseInfo(data)
}

// loadable matches the versions that LeRobot's loader accepts as v3.0: those with the same number
// before the dot.
var loadable = regexp.MustCompile(`^v?3(\.\d+)*$`)

func parseInfo(data []byte) (*Info, error) {
	video := videoPath // LeRobot's defaults
	i := &Info{
		DataPath:    dataPath,
		VideoPath:   &video,
		ChunksSize:  chunksSize,
		DataFileMB:  dataFileMB,
		VideoFileMB: videoFileMB,
	}
	if err := json.Unmarshal(data, i); err != nil {
		return nil, refuse("%s: %w", infoPath, err)
	}
	switch {
	case !loadable.MatchString(i.Codebase):
		return nil, refuse("%s: a dataset of version %q, want %s: LeRobot's convert_dataset_v21_to_v30 converts "+
			"those of v2.1", infoPath, i.Codebase, Version)
	case !(i.FPS > 0 && i.FPS <= maxFPS):
		return nil, refuse("%s: %v frames per second, want more than 0, and at most %d", infoPath, i.FPS, maxFPS)
	case i.Episodes < 0 || i.Episodes > maxEpisodes || i.Frames < i.Episodes || i.Tasks < 0:
		return nil, refuse("%s: %d episodes of %d frames together, with %d tasks, make no sense", infoPath, i.Episodes,
			i.Frames, i.Tasks)
	case i.DataPath == "":
		return nil, refuse("%s: no data_path", infoPath)
	}
	for name, f := range i.Features {
		if f.size() == 0 || len(f.Shape) == 0 || name == "" {
			return nil, refuse("%s: feature %q has the shape %v", infoPath, name, f.Shape)
		}
	}
	if len(i.videos()) > 0 && i.VideoPath == nil {
		return nil, refuse("%s: there are videos, and no video_path", infoPath)
	}
	return i, nil
}

// features returns the features of a dataset of such a run.
func features(r *run, codec Codec, cfg *Config) map[string]Feature {
	one := func(dtype string) Feature { return Feature{DType: dtype, Shape: []int{1}} }
	vector := Feature{DType: float32Type, Shape: []int{len(r.joints)}, Names: r.joints}
	f := map[string]Feature{
		stateName:    vector,
		actionName:   vector,
		timestamp:    one(float32Type),
		frameIndex:   one(int64Type),
		episodeIndex: one(int64Type),
		index:        one(int64Type),
		taskIndex:    one(int64Type),
	}
	if !cfg.Plain {
		f[intervention] = one(boolType)
		for _, name := range []string{outcomeName, seqName, epochName, chunkIndexName} {
			f[name] = one(int64Type)
		}
		f[sourceAgeName] = one(float32Type)
		if len(r.cams) > 0 {
			f[pictureAgeName] = one(float32Type)
		}
	}
	for _, name := range r.cams {
		s := r.sizes[name]
		f[imagePrefix+name] = Feature{
			DType: videoType,
			Shape: []int{s.h, s.w, 3},
			Names: []string{"height", "width", "channels"},
			Info: map[string]any{
				"video.height": s.h, "video.width": s.w, "video.codec": codec.name, "video.pix_fmt": "yuv420p",
				"video.fps": r.fps, "video.channels": 3,
				"has_audio": false, "video.g": 2, "video.crf": cmp.Or(cfg.CRF, codec.crf), "video.preset": codec.preset,
				"video.fast_decode":   0,
				"video.video_backend": "pyav", "video.extra_options": map[string]any{}, "is_depth_map": false,
			},
		}
	}
	return f
}

// columns returns the columns of the data files of such features.
func columns(features map[string]Feature) (out []column) {
	for name, f := range features {
		if f.DType == videoType {
			continue
		}
		c := column{name: name, kind: kinds[f.DType]}
		if f.size() > 1 {
			c.depth = 1
		}
		out = append(out, c)
	}
	return out
}
