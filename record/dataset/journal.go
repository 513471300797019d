package dataset

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// journalPath is the file with the origin of each episode and everything from which meta/ is made.
// LeRobot's loader ignores it.
const journalPath = "meta/edge_rt_journal.jsonl"

// settings is the journal's first line. All episodes of a dataset share them.
type settings struct {
	Robot    string             `json:"robot"`
	own      string             // edge-rt's name of the robot; older journals have it as Robot; empty: unknown
	Units    string             `json:"units,omitempty"` // units of the joints; empty in older journals
	FPS      int                `json:"fps"`
	VCodec   string             `json:"vcodec"`
	CRF      int                `json:"crf"`
	Features map[string]Feature `json:"features"`
}

// entry is one episode: every further line of the journal.
type entry struct {
	Key          string                  `json:"key"` // identity of the episode in its record
	Record       string                  `json:"record"`
	Number       uint32                  `json:"number,omitempty"`
	Outcome      string                  `json:"outcome,omitempty"`
	Task         string                  `json:"task"`
	Frames       int                     `json:"frames"`
	Held         int                     `json:"held,omitempty"`
	PictureAgeMS float64                 `json:"picture_age_ms"` // of the oldest picture
	Intervention int                     `json:"intervention"`   // frames
	Rules        *rules                  `json:"rules,omitempty"`
	Stats        map[string]featureStats `json:"stats"`
}

// rules are the options with which an export selects episodes and cuts them. The episodes of a dataset may have
// different ones; those of an older edge-rt have none.
type rules struct {
	Task          string        `json:"task,omitempty"`
	Only          []string      `json:"only,omitempty"`
	MaxGap        time.Duration `json:"max_gap_ns"`
	MaxPictureAge time.Duration `json:"max_picture_age_ns"`
	Missing       string        `json:"missing_pictures"`
}

// journal is an open journal.
type journal struct {
	path     string
	settings settings
	entries  []entry
	known    map[string]bool
	tasks    []string
	frames   int
	size     int64 // bytes of the complete lines
}

// readJournal reads the journal of a dataset. It omits a last entry whose line is incomplete.
func readJournal(dir string) (*journal, error) {
	j := &journal{path: filepath.Join(dir, journalPath), known: map[string]bool{}}
	data, err := userfile.Read(j.path, maxText*16)
	if err != nil {
		return nil, err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	lines := bytes.Split(whole, []byte("\n"))
	if len(lines) < 2 {
		return nil, fmt.Errorf("%s has no beginning", j.path)
	}
	if err := json.Unmarshal(lines[0], &j.settings); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path, err)
	}
	if err := checkFeatures(j.settings.Features); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path, err)
	}
	for i, line := range lines[1 : len(lines)-1] {
		var e entry
		if err := cmp.Or(json.Unmarshal(line, &e), e.check(j.settings.Features)); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", j.path, i+2, err)
		}
		j.take(e)
	}
	j.size = int64(len(whole))
	return j, nil
}

// check returns an error for an episode that no export has written.
func (e *entry) check(features map[string]Feature) error {
	if e.Frames < 1 || e.Frames > maxTableRows {
		return fmt.Errorf("an episode of %d frames", e.Frames)
	}
	for name, f := range features {
		want, s := f.size(), e.Stats[name]
		if f.DType == videoType {
			want = 3 // colours
		}
		for i, field := range s.fields() {
			if f.DType != stringType && len(*field) != want {
				return fmt.Errorf("the %s of %s has %d numbers, want %d", statNames[i], name, len(*field), want)
			}
		}
	}
	return nil
}

// mend cuts off an incomplete last line.
func (j *journal) mend() error { return os.Truncate(j.path, j.size) }

// newJournal writes a new journal with the entries of existing episodes.
func newJournal(f *folder, s settings, entries []entry) (*journal, error) {
	j := &journal{path: filepath.Join(f.dir, journalPath), settings: s, known: map[string]bool{}}
	for _, e := range entries {
		j.take(e)
	}
	return j, f.write(journalPath, func(file *os.File) error {
		enc := json.NewEncoder(file)
		err := enc.Encode(s)
		for _, e := range entries {
			err = errors.Join(err, enc.Encode(e))
		}
		return err
	})
}

func (j *journal) take(e entry) {
	j.entries = append(j.entries, e)
	j.known[e.Key] = true
	j.frames += e.Frames
	j.task(e.Task)
}

// task returns the number of a task; a new task gets the next number.
func (j *journal) task(text string) int {
	if i := slices.Index(j.tasks, text); i >= 0 {
		return i
	}
	j.tasks = append(j.tasks, text)
	return len(j.tasks) - 1
}

// add appends an episode whose files are on the disk.
func (j *journal) add(e entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		j.take(e)
	}
	return err
}

// fits returns an error for settings that differ from the journal's settings. The error's text has name for s, other
// for the journal, and an advice (parameter instead) at its end.
func (j *journal) fits(s settings, name, other, instead string) error {
	if was := j.settings; was.Robot == s.own || s.Robot == was.own {
		s.Robot = was.Robot
	}
	a, b := normal(j.settings), normal(s)
	all := maps.Clone(a)
	maps.Copy(all, b)
	keys := slices.Sorted(maps.Keys(all))
	slices.SortStableFunc(keys, func(x, y string) int { return rank(x) - rank(y) })
	for _, key := range keys {
		if key == "units" && a[key] == nil && j.path != "" {
			instead = fmt.Sprintf(`if the dataset's joints have the same, write "units": %s, into the first line of %s`,
				brief(b[key]), j.path)
		}
		if !reflect.DeepEqual(a[key], b[key]) {
			return refuse("%s of %s is %s, and %s has %s: one dataset has one; %s", key, name, brief(b[key]), other,
				brief(a[key]), instead)
		}
	}
	return nil
}

// rank sorts causes before their effects: a difference in rate or codec also appears in each
// video's feature, and a record without cameras has no age of pictures.
func rank(key string) int {
	if i := slices.Index([]string{"robot", "fps", "vcodec", "crf"}, key); i >= 0 {
		return i - 5
	}
	if strings.HasPrefix(key, "feature "+imagePrefix) {
		return -1
	}
	return 0
}

// normal returns settings as JSON decodes them, each feature under its own key.
func normal(s settings) (out map[string]any) {
	text, _ := json.Marshal(s)
	json.Unmarshal(text, &out)
	features, _ := out["features"].(map[string]any)
	delete(out, "features")
	for name, f := range features {
		out["feature "+name] = f
	}
	return out
}

// brief formats a setting for an error. For a feature it formats only the fields that can differ between two
// datasets with the same rate and codec.
func brief(v any) string {
	if v == nil {
		return "none"
	}
	if f, ok := v.(map[string]any); ok {
		text := fmt.Sprintf("%v %v", f["dtype"], f["shape"])
		if f["names"] != nil && f["dtype"] != videoType {
			text += fmt.Sprintf(" %v", f["names"])
		}
		return text
	}
	text, _ := json.Marshal(v)
	return string(text)
}
