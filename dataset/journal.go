package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"edgert/internal/capped"
)

// journalPath holds what each episode came from, and all that meta is made of. LeRobot
// passes it over.
const journalPath = "meta/edge_rt_journal.jsonl"

// settings are the journal's first line: all episodes of a dataset have them.
type settings struct {
	Robot    string             `json:"robot"`
	FPS      int                `json:"fps"`
	VCodec   string             `json:"vcodec"`
	CRF      int                `json:"crf"`
	Features map[string]Feature `json:"features"`
}

// entry is a further line: an episode.
type entry struct {
	Key          string           `json:"key"` // of the episode in its record
	Record       string           `json:"record"`
	Number       uint32           `json:"number,omitempty"`
	Outcome      string           `json:"outcome,omitempty"`
	Task         string           `json:"task"`
	Frames       int              `json:"frames"`
	Held         int              `json:"held,omitempty"`
	PictureAgeMS float64          `json:"picture_age_ms"` // of the oldest
	Intervention int              `json:"intervention"`   // frames
	Stats        map[string]Stats `json:"stats"`
}

// journal is an open one.
type journal struct {
	path     string
	settings settings
	entries  []entry
	known    map[string]bool
	tasks    []string
	frames   int
	size     int64 // of what is whole
	torn     bool
}

// readJournal reads the one of a dataset, but for an entry that was not written to its end.
func readJournal(dir string) (*journal, error) {
	j := &journal{path: filepath.Join(dir, journalPath), known: map[string]bool{}}
	data, err := capped.ReadFile(j.path, maxText*16)
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
	for i, line := range lines[1 : len(lines)-1] {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", j.path, i+2, err)
		}
		j.take(e)
	}
	j.size, j.torn = int64(len(whole)), len(whole) != len(data)
	return j, nil
}

// mend cuts off what was not written to its end.
func (j *journal) mend() error {
	if !j.torn {
		return nil
	}
	j.torn = false
	return os.Truncate(j.path, j.size)
}

// newJournal begins one.
func newJournal(dir string, s settings) (*journal, error) {
	j := &journal{path: filepath.Join(dir, journalPath), settings: s, known: map[string]bool{}}
	if err := os.MkdirAll(filepath.Dir(j.path), 0o777); err != nil {
		return nil, err
	}
	return j, j.line(s)
}

func (j *journal) take(e entry) {
	j.entries = append(j.entries, e)
	j.known[e.Key] = true
	j.frames += e.Frames
	j.task(e.Task)
}

// task returns the number of a task, a new one's too.
func (j *journal) task(text string) int {
	for i, t := range j.tasks {
		if t == text {
			return i
		}
	}
	j.tasks = append(j.tasks, text)
	return len(j.tasks) - 1
}

// add keeps an episode that is on the disk.
func (j *journal) add(e entry) error {
	if err := j.line(e); err != nil {
		return err
	}
	j.take(e)
	return nil
}

func (j *journal) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// fits refuses settings that the journal's episodes do not have, and says what to do then.
func (j *journal) fits(s settings, name, other, instead string) error {
	a, b := normal(j.settings), normal(s)
	keys := slices.Sorted(maps.Keys(a))
	for key := range b {
		if _, both := a[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.SortStableFunc(keys, func(x, y string) int { return rank(x) - rank(y) })
	for _, key := range keys {
		if !reflect.DeepEqual(a[key], b[key]) {
			return refuse("%s of %s is %s, and %s has %s: one dataset has one; %s", key, name, brief(b[key]), other, brief(a[key]), instead)
		}
	}
	return nil
}

// rank puts first what other differences come from: rate and codec are in each video's too.
func rank(key string) int {
	if i := slices.Index([]string{"robot", "fps", "vcodec", "crf"}, key); i >= 0 {
		return i - 4
	}
	return 0
}

// normal has settings as JSON brings them back, features each under its own name.
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

// brief is a setting in a sentence: of a feature what two of the same rate and codec may differ in.
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

// linkTree has the files of a dataset in another folder too, but for those that an export
// writes again. They never change, so a link is enough; where there is none, a copy.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, path)
		if err = errors.Join(err, relErr); err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel == "meta":
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o777)
		case !d.Type().IsRegular():
			return nil
		}
		if os.Link(path, filepath.Join(to, rel)) == nil {
			return nil
		}
		return copyFile(path, filepath.Join(to, rel))
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return writeFile(to, func(out *os.File) error {
		_, err := io.Copy(out, in)
		return err
	})
}

// writeFile makes a file whole, and forces it to the disk, or makes none.
func writeFile(path string, fill func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f), f.Sync(), f.Close()); err != nil {
		os.Remove(f.Name())
		return err
	}
	return os.Rename(f.Name(), path)
}
