package operator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: the note that a bundle has run is for one arm with one calibration, and remains after the process has ended.
func TestWhichBundlesHaveRun(t *testing.T) {
	i := &Identity{ID: "black", Dir: t.TempDir()}
	const arm = `{"elbow_flex":{"id":3}}`
	if i.HasRun(arm, "aa") {
		t.Error("a bundle has run without a file")
	}
	for _, digest := range []string{"aa", "bb", "aa"} {
		rttest.Do(t, i.NoteRun(arm, digest))
	}
	again, other := &Identity{ID: "black", Dir: i.Dir}, &Identity{ID: "white", Dir: i.Dir}
	if !again.HasRun(arm, "aa") || !again.HasRun(arm, "bb") || again.HasRun(arm, "cc") || other.HasRun(arm, "aa") {
		t.Error("aa and bb have run on black alone")
	}
	if again.HasRun(arm+" ", "aa") {
		t.Error("a bundle has run with another calibration")
	}
	for n := range 2 * maxRan {
		rttest.Do(t, i.NoteRun(arm, fmt.Sprint(n)))
	}
	if n := len(i.ran(arm).Bundles); n != maxRan || i.HasRun(arm, "aa") || !i.HasRun(arm, fmt.Sprint(2*maxRan-1)) {
		t.Errorf("%d bundles are kept, want the newest %d", n, maxRan)
	}
	if err := i.NoteRun(arm+" ", "cc"); err != nil || i.HasRun(arm, "7") || !i.HasRun(arm+" ", "cc") {
		t.Errorf("after a calibration: %v", err)
	}
}

func TestAFileOfBundlesThatCannotBeUsed(t *testing.T) {
	i := &Identity{ID: "black", Dir: t.TempDir()}
	for _, text := range []string{"", "{", "[]", `{"bundles": "aa"}`, `{"bundles": ["aa"]}`,
		strings.Repeat(" ", maxRanBytes+1)} {
		rttest.Do(t, os.WriteFile(i.ranPath(), []byte(text), 0o600))
		if i.HasRun("", "aa") {
			t.Errorf("%.30q says that aa has run", text)
		}
		if err := i.NoteRun("", "bb"); err != nil || !i.HasRun("", "bb") {
			t.Errorf("%.30q: %v, and bb has run", text, err)
		}
	}
	i.Dir = filepath.Join(i.Dir, "missing")
	if err := i.NoteRun("", "aa"); err == nil || i.HasRun("", "aa") {
		t.Errorf("without a directory: %v, want an error", err)
	}
}
