// Package dataset writes LeRobotDatasets (v3.0) from the files of a flight recorder, and checks
// such datasets, its own and other programs' (docs/dataset.md).
//
// An export reads a record twice:
//
//	run.go      first reading: the files of one run, its ticks, its episodes, the times of its pictures
//	episode.go  which ticks are an episode's frames, and which picture each frame shows
//	export.go   second reading: pictures go to ffmpeg (video.go), numbers into tables (table.go),
//	            both into the statistics (stats.go); each finished episode is one line of the
//	journal.go  journal, from which an interrupted export continues
//	meta.go     at the end: the files in meta/, made from the journal
//
// check.go reads a dataset as LeRobot's loader does and compares its data with its metadata.
package dataset

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version is the layout that this package writes and reads.
const Version = "v3.0"

// Bounds of datasets, written or read.
const (
	maxFPS      = 1000
	maxSide     = 8192 // largest height or width of a picture
	maxEpisodes = 1_000_000
	maxText     = 64 << 20 // largest size of a JSON file or a journal in bytes
)

// DTypes of features, as in info.json.
const (
	float32Type = "float32"
	int64Type   = "int64"
	boolType    = "bool"
	videoType   = "video"
	stringType  = "string"
)

// Feature names that LeRobot fixes.
const (
	stateName    = "observation.state"
	actionName   = "action"
	imagePrefix  = "observation.images."
	timestamp    = "timestamp"
	frameIndex   = "frame_index"
	episodeIndex = "episode_index"
	index        = "index"
	taskIndex    = "task_index"

	intervention = "intervention" // LeRobot's strategy dagger uses this name

	// The origin of a frame's action. LeRobot has no names for these features. No policy takes them
	// as input, since their names begin neither with observation nor with action.
	outcomeName = "edge_rt.outcome" // 1 success, 0 failure, -1 unknown
	// Number of the request that the action answers; -1: no action of a policy began in the frame.
	seqName        = "edge_rt.seq"
	epochName      = "edge_rt.epoch"         // session of that request
	chunkIndexName = "edge_rt.chunk_index"   // row of the action in its chunk
	sourceAgeName  = "edge_rt.source_age_ms" // age of the observation from which the action was computed
	pictureAgeName = "edge_rt.picture_age_ms"

	// Features of Config.Columns.
	sessionName   = "edge_rt.session"      // id of the session of the request; empty if seqName is -1
	runEpisode    = "edge_rt.episode"      // number of the episode in its run; 0: the record has no episodes
	modelHashName = "edge_rt.model_sha256" // digest of that session's policy
)

// optional are the features of Config.Columns, by the words that the flag --columns accepts.
var optional = map[string]struct{ name, dtype string }{
	"session": {sessionName, stringType},
	"episode": {runEpisode, int64Type},
	"model":   {modelHashName, stringType},
}

// Feature is an entry of info.json's features.
type Feature struct {
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Names any    `json:"names"`
	Info  any    `json:"info,omitempty"`
}

// size returns how many numbers of the feature a frame has; 0 if the shape is not valid.
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

// pictures reports whether the feature has pictures, which LeRobot keeps in videos or in the tables.
func (f Feature) pictures() bool { return f.DType == videoType || f.DType == "image" }

// picture returns the size of a feature's pictures and their number of channels. LeRobot writes shapes with the
// channels first and with the channels last; the feature's names show the order.
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

// infoFile is meta/info.json.
type infoFile struct {
	Codebase    string             `json:"codebase_version"`
	FPS         float64            `json:"fps"`
	Features    map[string]Feature `json:"features"`
	Episodes    int                `json:"total_episodes"`
	Frames      int                `json:"total_frames"`
	Tasks       int                `json:"total_tasks"`
	ChunksSize  float64            `json:"chunks_size"`
	DataFileMB  float64            `json:"data_files_size_in_mb"`
	VideoFileMB float64            `json:"video_files_size_in_mb"`
	DataPath    string             `json:"data_path"`
	VideoPath   *string            `json:"video_path"`
	RobotType   *string            `json:"robot_type"`
	Splits      map[string]string  `json:"splits"`
}

// videosOf returns the names of the video features, sorted.
func videosOf(features map[string]Feature) (names []string) {
	for name, f := range features {
		if f.DType == videoType {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
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

// field matches one placeholder of a template in info.json, in Python's format syntax.
var field = regexp.MustCompile(`\{(video_key|chunk_index|file_index)(?::(?:0?(\d{1,2}))?d)?\}`)

// pathOf returns the path of a file that an export makes for episode n: the file of this video, or,
// if video is empty, the file of the episode's numbers.
func pathOf(video string, n int) string {
	template := videoPath
	if video == "" {
		template = dataPath
	}
	return fill(template, video, int64(n/chunksSize), int64(n%chunksSize))
}

// fill replaces the placeholders of an info.json template by the name of a video and the two
// indices.
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
