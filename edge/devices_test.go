package edge

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"edgert/servo"
	"edgert/servo/robot"
)

func TestSimCalibrationIsTheCommittedFile(t *testing.T) {
	r, err := robot.ByName("so101")
	if err != nil {
		t.Fatal(err)
	}
	file, err := servo.LoadCalibration(filepath.Join("..", "testdata", "demo", "so101.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got := simCalibration(r); !reflect.DeepEqual(got, file) {
		t.Errorf("simCalibration = %+v, want the file's %+v", got, file)
	}
}

func TestClaimGivesTwinsTheirOwnNames(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	first, err := claim("arm one")
	if err != nil {
		t.Fatal(err)
	}
	second, err := claim("arm one")
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	if first.ID != "arm-one" || second.ID != "arm-one-2" {
		t.Errorf("ids %q and %q, want arm-one and arm-one-2", first.ID, second.ID)
	}
	if a, b := first.nextEpoch(), first.nextEpoch(); a != 1 || b != 2 {
		t.Errorf("epochs %d, %d, want 1, 2", a, b)
	}
	first.release()
	again, err := claim("arm one")
	if err != nil || again.ID != "arm-one" {
		t.Fatalf("after release %v, %v, want arm-one", again, err)
	}
	if next := again.nextEpoch(); next != 3 {
		t.Errorf("epoch after a restart %d, want 3: an old token must not pass for a new one", next)
	}
	again.release()
}

func TestClaimWithoutAnIDMakesOneThatStays(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("STATE_DIRECTORY", dir)
	first, err := claim("")
	if err != nil {
		t.Fatal(err)
	}
	first.release()
	second, err := claim("")
	if err != nil {
		t.Fatal(err)
	}
	second.release()
	if first.ID != second.ID || !strings.HasPrefix(first.ID, "edge-") {
		t.Errorf("ids %q then %q, want the same edge-…", first.ID, second.ID)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "id")); strings.TrimSpace(string(b)) != first.ID {
		t.Errorf("file holds %q, want %q", b, first.ID)
	}
}

func TestClaimRefusesAnIDWithoutLetters(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	for _, id := range []string{"***", "server"} {
		if _, err := claim(id); err == nil || !strings.Contains(err.Error(), "--id") {
			t.Errorf("claim(%q) = %v, want an error that names --id", id, err)
		}
	}
}
