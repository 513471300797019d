package dataset

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// LeRobot's own loader, statistics, editing tools and training script accept an exported dataset.
// `make dataset-test` runs this test; DATASET_JUDGE names the Python that has LeRobot.
func TestLeRobotTakesIt(t *testing.T) {
	python := os.Getenv("DATASET_JUDGE")
	if python == "" {
		t.Skip("make dataset-test runs it")
	}
	for codec := range codecs {
		t.Run(codec, func(t *testing.T) {
			s := &scene{seconds: 8, cameras: []string{"top", "wrist"}, w: 128, h: 96, first: 3}
			for i := range 4 {
				s.episodes = append(s.episodes, begin(i+1, float64(2*i), []string{"pick", "place"}[i%2]),
					end(i+1, float64(2*i)+1+0.2*float64(i), record.Success))
			}
			cfg := s.config(t)
			cfg.VCodec = codec
			if codec == "av1" { // with h264, the judge's own writer writes no strings
				cfg.Columns = []string{"session", "episode", "model"}
			}
			exporting(t, cfg)
			if v := verdict(t, cfg.Out); !v.Whole() {
				t.Fatalf("%+v", v)
			}
			pictures := t.TempDir()
			shown(t, s, cfg.Out, pictures)
			args := []string{"../../tools/dataset/judge.py", cfg.Out, pictures}
			made := filepath.Join(t.TempDir(), "made")
			if codec == "h264" {
				args = append(args, "--tools", "--keep", made)
			}
			var said bytes.Buffer
			cmd := exec.CommandContext(t.Context(), python, args...)
			cmd.Stderr = &said
			out, err := cmd.Output()
			t.Logf("%s", out)
			if err != nil {
				t.Fatalf("%v: %s", err, said.String())
			}
			if codec == "h264" {
				checkTheirs(t, made)
			}
		})
	}
}

// checkTheirs checks the datasets of LeRobot's own tools and writer. LeRobot's loader has loaded
// all of them, so the check must accept them.
func checkTheirs(t *testing.T, made string) {
	t.Helper()
	dirs, err := os.ReadDir(made)
	if err != nil || len(dirs) < 14 {
		t.Fatalf("%d datasets of LeRobot's, %v", len(dirs), err)
	}
	for _, d := range dirs {
		v, err := Check(t.Context(), filepath.Join(made, d.Name()), true)
		if err != nil || !v.Whole() {
			t.Errorf("%s, which LeRobot has made: %v, %+v", d.Name(), err, v)
			continue
		}
		t.Logf("%s: whole, notes %q", d.Name(), v.Notes)
	}
}

// shown writes the scene's picture for each frame of a dataset. The frame's state, which is the
// tick's number, identifies the picture.
func shown(t *testing.T, s *scene, dir, to string) {
	t.Helper()
	d := read(t, dir)
	for k, name := range s.cameras {
		for i, tick := range d.firsts(stateName) {
			number, _ := s.shown(int(tick))
			rttest.WriteFile(t, filepath.Join(to, name), fmt.Sprintf("%06d.jpg", i),
				testPicture(t, number+100*k, s.w, s.h))
		}
	}
}
