package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// kinds maps a feature's dtype to its Parquet type.
var kinds = map[string]parquet.Kind{float32Type: parquet.Float, int64Type: parquet.Int64, boolType: parquet.Boolean,
	stringType: parquet.ByteArray}

// pandasIndex makes the tasks the names of the rows, because the loader finds a task by its row, and reads the text
// from the row's name.
const pandasIndex = `{"index_columns": ["task"], "column_indexes": [{"name": null, "field_name": null, "pandas_type": "unicode", "numpy_type": "object", "metadata": {"encoding": "UTF-8"}}], "columns": [{"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": null}, {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": null}], "creator": {"library": "edge-rt", "version": "1"}, "pandas_version": "2.0.0"}`

// writeMeta writes the files of meta/ from a journal. It writes info.json last, since a loader looks for it first.
// extra are the keys that a person has added to info.json.
func (f *folder) writeMeta(j *journal, extra map[string]any) error {
	set := &j.settings
	if err := f.writeEpisodes(j); err != nil {
		return err
	}
	err := f.table(tasksPath, []column{{"task_index", parquet.Int64, 0}, {"task", parquet.ByteArray, 0}},
		func(t *table) error {
			for i, task := range j.tasks {
				if err := t.write(map[string]any{"task": []string{task}, "task_index": float64(i)}); err != nil {
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
		if f.DType == stringType { // LeRobot has no statistics of texts
			continue
		}
		var each []featureStats
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
	return f.writeInfo(j, extra)
}

func (f *folder) writeInfo(j *journal, extra map[string]any) error {
	set := &j.settings
	info := infoFile{
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
	if len(videosOf(set.Features)) > 0 {
		info.VideoPath = new(videoPath)
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
func (f *folder) writeEpisodes(j *journal) error {
	var cols []column
	for name := range new(entry).row(0, 0, &j.settings) {
		cols = append(cols, episodeColumn(name))
	}
	return f.table(fill(episodePath, "", 0, 0), cols, func(t *table) error {
		first := 0
		for i, e := range j.entries {
			if err := t.write(e.row(i, first, &j.settings)); err != nil {
				return err
			}
			first += e.Frames
		}
		return nil
	})
}

// episodeColumn returns a column of the table of the episodes.
func episodeColumn(name string) column {
	switch {
	case name == "tasks":
		return column{name, parquet.ByteArray, 1}
	case strings.HasSuffix(name, "/count"):
		return column{name, parquet.Int64, 1}
	case strings.HasPrefix(name, "stats/"+imagePrefix):
		return column{name, parquet.Double, 3}
	case strings.HasPrefix(name, "stats/"):
		return column{name, parquet.Double, 1}
	case strings.HasSuffix(name, "_timestamp"):
		return column{name, parquet.Double, 0}
	}
	return column{name, parquet.Int64, 0}
}

// row returns the row of episode i. The parameter first is the index in the dataset of the episode's first frame.
func (e *entry) row(i, first int, set *settings) map[string]any {
	chunk, file := float64(i/chunksSize), float64(i%chunksSize)
	row := map[string]any{
		"tasks":                     []string{e.Task},
		"episode_index":             float64(i),
		"length":                    float64(e.Frames),
		"data/chunk_index":          chunk,
		"data/file_index":           file,
		"dataset_from_index":        float64(first),
		"dataset_to_index":          float64(first + e.Frames),
		"meta/episodes/chunk_index": 0.0,
		"meta/episodes/file_index":  0.0,
	}
	for name, f := range set.Features {
		if f.DType == stringType {
			continue
		}
		s := e.Stats[name]
		for stat, values := range s.series() {
			row["stats/"+name+"/"+stat] = values
		}
		row["stats/"+name+"/count"] = []float64{float64(s.Count)}
		if f.DType == videoType {
			at := "videos/" + name
			row[at+"/chunk_index"] = chunk
			row[at+"/file_index"] = file
			row[at+"/from_timestamp"] = 0.0
			row[at+"/to_timestamp"] = float64(e.Frames) / float64(set.FPS)
		}
	}
	return row
}

// readInfo reads meta/info.json and returns an error for values that are not valid.
func readInfo(dir string) (*infoFile, error) {
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

// loadable matches the versions that LeRobot's loader accepts as v3.0: versions with the same number before the dot.
var loadable = regexp.MustCompile(`^v?3(\.\d+)*$`)

func parseInfo(data []byte) (*infoFile, error) {
	i := &infoFile{ // LeRobot's defaults
		DataPath:    dataPath,
		VideoPath:   new(videoPath),
		ChunksSize:  chunksSize,
		DataFileMB:  dataFileMB,
		VideoFileMB: videoFileMB,
	}
	if err := userfile.ParseJSON(data, i); err != nil {
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
	if len(videosOf(i.Features)) > 0 && i.VideoPath == nil {
		return nil, refuse("%s: there are videos, and no video_path", infoPath)
	}
	return i, nil
}

// features returns the features of a dataset of the run r.
func features(r *run, cfg *Config) map[string]Feature {
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
	for _, word := range cfg.Columns {
		f[optional[word].name] = one(optional[word].dtype)
	}
	for _, name := range r.cams {
		s := r.sizes[name]
		f[imagePrefix+name] = Feature{
			DType: videoType,
			Shape: []int{s.h, s.w, 3},
			Names: []string{"height", "width", "channels"},
			Info: map[string]any{
				"video.height": s.h, "video.width": s.w, "video.codec": cfg.VCodec, "video.pix_fmt": "yuv420p",
				"video.fps": r.fps, "video.channels": 3,
				"has_audio": false, "video.g": 2, "video.crf": cfg.CRF, "video.preset": codecs[cfg.VCodec].preset,
				"video.fast_decode":   0,
				"video.video_backend": "pyav", "video.extra_options": map[string]any{}, "is_depth_map": false,
			},
		}
	}
	return f
}

// columns returns the columns of the data files of a dataset with these features.
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
