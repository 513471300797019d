// Package dataset makes LeRobotDatasets (v3.0) of a flight recorder's files, and checks
// such datasets, its own and others' (docs/dataset.md).
//
// A record takes this way:
//
//	run.go      files of one run, read once: its ticks, its episodes, when there was a picture
//	episode.go  which ticks are an episode's frames, and which picture each of them shows
//	export.go   read again: pictures go to ffmpeg (video.go), numbers into tables (table.go),
//	            both to the statistics (stats.go); what an episode became is a line of the
//	journal.go  journal, from which an export that was interrupted goes on
//	meta.go     and what LeRobot reads first is made of the journal, at the end
//
// check.go reads a dataset as LeRobot's loader does and compares it with what it says of
// itself.
package dataset

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version is the layout that is written and read.
const Version = "v3.0"

// Bounds of what is made and read.
const (
	maxFPS      = 1000
	maxSide     = 8192 // of a picture
	maxEpisodes = 1_000_000
	maxText     = 64 << 20 // bytes of a JSON file, or of a journal
)

// Types of a feature's numbers, as info.json names them.
const (
	float32Type = "float32"
	int64Type   = "int64"
	boolType    = "bool"
	videoType   = "video"
)

// Names of features that LeRobot fixes.
const (
	stateName    = "observation.state"
	actionName   = "action"
	imagePrefix  = "observation.images."
	timestamp    = "timestamp"
	frameIndex   = "frame_index"
	episodeIndex = "episode_index"
	index        = "index"
	taskIndex    = "task_index"

	intervention = "intervention" // as LeRobot's strategy dagger names it

	// Where a frame's action came from. LeRobot has no names for these; a policy takes
	// none of them as input, since they begin neither with observation nor with action.
	outcomeName    = "edge_rt.outcome"       // 1 success, 0 failure, -1 nobody said
	seqName        = "edge_rt.seq"           // the action's request; -1: no action began in the frame
	epochName      = "edge_rt.epoch"         // of that session
	chunkIndexName = "edge_rt.chunk_index"   // row of the chunk
	sourceAgeName  = "edge_rt.source_age_ms" // of what the action was computed from
	pictureAgeName = "edge_rt.picture_age_ms"
)

// Feature is an entry of info.json's features.
type Feature struct {
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Names any    `json:"names"`
	Info  any    `json:"info,omitempty"`
}

// size is how many numbers a frame has of the feature; 0 where that makes no sense.
func (f Feature) size() int {
	n := 1
	for _, side := range f.Shape {
		if side < 1 || side > 1<<20 || n > 1<<20 {
			return 0
		}
		n *= side
	}
	return n
}

// picture is the size of a feature's pictures, and how many channels they have: LeRobot has
// both orders, and says which in the names.
func (f Feature) picture() (h, w, channels int) {
	if len(f.Shape) != 3 {
		return 0, 0, 3
	}
	first := f.Shape[0] <= 4 && f.Shape[2] > 4
	if names, ok := f.Names.([]any); ok && len(names) == 3 {
		name, _ := names[0].(string)
		first = strings.HasPrefix(name, "channel")
	}
	if first {
		return f.Shape[1], f.Shape[2], f.Shape[0]
	}
	return f.Shape[0], f.Shape[1], f.Shape[2]
}

// Info is meta/info.json.
type Info struct {
	Codebase     string             `json:"codebase_version"`
	FPS          float64            `json:"fps"`
	Features     map[string]Feature `json:"features"`
	Episodes     int                `json:"total_episodes"`
	Frames       int                `json:"total_frames"`
	Tasks        int                `json:"total_tasks"`
	ChunksSize   float64            `json:"chunks_size"`
	DataFileMB   float64            `json:"data_files_size_in_mb"`
	VideoFileMB  float64            `json:"video_files_size_in_mb"`
	DataPath     string             `json:"data_path"`
	VideoPath    *string            `json:"video_path"`
	RobotType    *string            `json:"robot_type"`
	Splits       map[string]string  `json:"splits"`
	sortedVideos []string
}

// videos are the names of the features that are videos, sorted.
func (i *Info) videos() []string {
	if i.sortedVideos == nil {
		for name, f := range i.Features {
			if f.DType == videoType {
				i.sortedVideos = append(i.sortedVideos, name)
			}
		}
		slices.Sort(i.sortedVideos)
	}
	return i.sortedVideos
}

// LeRobot's settings of the layout.
const (
	chunksSize  = 1000 // files in a folder
	dataFileMB  = 100
	videoFileMB = 200
	dataPath    = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
	videoPath   = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
	episodePath = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
	infoPath    = "meta/info.json"
	statsPath   = "meta/stats.json"
	tasksPath   = "meta/tasks.parquet"
)

// field is one of a template of info.json, as Python's format has it.
var field = regexp.MustCompile(`\{(video_key|chunk_index|file_index)(?::(?:0?(\d{1,2}))?d)?\}`)

// fill puts numbers and the name of a video into a template of info.json.
func fill(template, video string, chunk, file int64) string {
	return field.ReplaceAllStringFunc(template, func(text string) string {
		m := field.FindStringSubmatch(text)
		width, _ := strconv.Atoi(m[2])
		switch m[1] {
		case "chunk_index":
			return fmt.Sprintf("%0*d", width, chunk)
		case "file_index":
			return fmt.Sprintf("%0*d", width, file)
		}
		return video
	})
}
