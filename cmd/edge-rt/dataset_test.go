package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/recordtest"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The real binary exports a record to a dataset, finds that dataset whole, and finds a damaged copy
// faulty.
func TestDataset(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, out := filepath.Join(dir, "a.mcap"), filepath.Join(dir, "set")
	f := recordtest.Create(t, path, map[string]string{"joints": "a.pos,b.pos", "fps": "30",
		"instance": "i", "robot": "so101"})
	for i := range 40 {
		m := &record.Tick{At: 1_000_000_000 + 33_333_333*rt.Instant(i)}
		m.State.Set([]float32{float32(i), 0})
		m.Goal = m.State
		m.Action = m.State
		f.Tick(m)
	}
	f.Close()
	says := func(want int, words string, args ...string) string {
		t.Helper()
		code, stdout, stderr := edgeRT(t, append([]string{"dataset"}, args...)...)
		if code != want || !strings.Contains(stdout+stderr, words) {
			t.Errorf("dataset %v ends with %d, want %d and %q:\n%s%s", args, code, want, words, stdout, stderr)
		}
		return stdout
	}
	says(2, "after them the dataset's folder", "export", path)
	says(2, "want a whole number", "export", path, out, "--fps", "29.5")
	says(2, "--crf is 99", "export", path, out, "--crf", "99")
	says(2, "--max-picture-age is 0s", "export", path, out, "--max-picture-age", "0s")
	says(3, "--task", "export", path, out)
	says(3, "no whole divisor", "export", path, out, "--task", "x", "--fps", "20")
	says(3, "no dataset", "check", dir)
	says(0, "1 episodes of 40 frames", "export", path, out, "--task", "x")
	says(3, "--append", "export", path, out, "--task", "x")
	var report struct {
		There int `json:"episodes_there"`
	}
	if text := says(0, "", "export", path, out, "--task", "x", "--append", "--json",
		"-"); json.Unmarshal([]byte(text), &report) != nil || report.There != 1 {
		t.Errorf("the report is %s", text)
	}
	says(0, "robot so101, 1 episodes, 40 frames at 30", "info", out)
	says(0, "is whole: 1 episodes, 40 frames", "check", out)
	rttest.Do(t, os.Remove(filepath.Join(out, "meta/stats.json")))
	says(3, "meta/stats.json", "check", out)
}
