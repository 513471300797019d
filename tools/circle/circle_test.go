package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
)

// The teacher takes over when the policy errs, and also after a fixed time, but never before the
// policy's first chunk.
func TestWhenTheTeacherTakesOver(t *testing.T) {
	near, far := sim.Point{X: 0.05}, sim.Point{X: 0.2}
	for _, tt := range []struct {
		name string
		s    sight
		want string
	}{
		{"well on its way", sight{tip: far, leg: 2 * time.Second, since: 5 * time.Second}, ""},
		{"its first chunk", sight{tip: near, leg: 0, since: 500 * time.Millisecond}, ""},
		{"at the post", sight{tip: near, leg: time.Second, since: 2 * time.Second}, "too near to the post"},
		{"stuck", sight{tip: far, leg: 4 * time.Second, since: 4 * time.Second}, "too long on its way"},
		{"never wrong", sight{tip: far, leg: time.Second, since: 13 * time.Second}, "without need"},
	} {
		rttest.Want(t, trouble(tt.s), tt.want, "%s", tt.name)
	}
}

// Every joint moves in the teacher's episodes, because the policy divides by the joint's standard
// deviation.
func TestTheTeacherMovesEveryJoint(t *testing.T) {
	var teacher sim.Teacher
	w := sim.NewWorld(firstSeed, 1)
	low, high := w.Q(), w.Q()
	for range 20 * 60 {
		q := w.Q()
		goal := liftToo(teacher.Goal(sim.TipAt(q[0], q[2]), w.Target(), w.Post(), q[5]))
		w.Step(goal[:])
		for j, v := range w.Q() {
			low[j], high[j] = min(low[j], v), max(high[j], v)
		}
	}
	for j := range low {
		if high[j]-low[j] < 3 {
			t.Errorf("joint %d moves from %.1f to %.1f only", j, low[j], high[j])
		}
	}
	if r, c, o := w.Legs(); r < 8 || c+o > 0 {
		t.Errorf("%d targets reached, %d after touching the post, %d given up", r, c, o)
	}
}

func TestSharesAreAllEpisodes(t *testing.T) {
	for _, p := range []plan{full, short, {worlds: 4, episodes: 5}, {worlds: 3, episodes: 40}} {
		n := 0
		for i := range p.worlds {
			if p.share(i) < 1 {
				t.Errorf("%d episodes in %d worlds: none in world %d", p.episodes, p.worlds, i)
			}
			n += p.share(i)
		}
		rttest.Want(t, n, p.episodes, "%d episodes in %d worlds together", p.episodes, p.worlds)
	}
}

func TestTheVerdict(t *testing.T) {
	for _, tt := range []struct {
		name          string
		whole         bool
		before, after judged
		bad           bool
	}{
		{"better", true, judged{Reached: 10, TimedOut: 10}, judged{Reached: 11, TimedOut: 5}, false},
		{"equal", true, judged{Reached: 10, Collided: 10}, judged{Reached: 5, TimedOut: 5}, false},
		{"worse", true, judged{Reached: 10, TimedOut: 10}, judged{Reached: 10, TimedOut: 11}, true},
		{"worse, not judged", false, judged{Reached: 10}, judged{TimedOut: 10}, false},
		{"no leg ended", true, judged{}, judged{}, false},
	} {
		r := &round{plan: plan{whole: tt.whole}}
		r.Found.Judged = [3]judged{1: tt.before, 2: tt.after}
		if err := r.verdict(); (err != nil) != tt.bad {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	rttest.Want(t, judged{Reached: 3, Collided: 1, TimedOut: 2}.String(),
		"50 % (3 of 6 legs; 1 touched the post, 2 took longer than 6 s)", "it says")
}

// A dataset that differs from the recording is refused, with both numbers.
func TestWhatIsWrongWithADataset(t *testing.T) {
	cut := map[string]int{"gaps longer than 100ms, at which an episode was cut": 2,
		"parts shorter than 1s of episodes that were cut": 1, "ticks before the first action or after the last": 4}
	gone := map[string]int{"gaps longer than 100ms, at which an episode was cut": 1,
		"parts shorter than 1s of episodes that were cut": 2}
	good := exported{Episodes: 40, Frames: 2000, FPS: 30, Cameras: []string{"top"}}
	with := exported{Episodes: 45, Frames: 2300, FPS: 30, Cameras: []string{"top"}, Added: 5, Intervention: 300}
	for _, tt := range []struct {
		n      int
		change func(*exported)
		says   string
	}{
		{1, func(*exported) {}, ""},
		{2, func(*exported) {}, ""},
		{1, func(e *exported) { e.Episodes = 39 }, "39 episodes, recorded were 40"},
		{1, func(e *exported) { e.Episodes = 41 }, "41 episodes, recorded were 40"},
		{1, func(e *exported) { e.Episodes, e.Left = 41, cut }, ""},
		{1, func(e *exported) { e.Left = cut }, "of which cuts made 1 more"},
		{1, func(e *exported) { e.Episodes, e.Left = 39, gone }, "39 episodes, recorded were 40"},
		{2, func(e *exported) { e.Episodes, e.Added, e.Left = 46, 6, cut }, ""},
		{1, func(e *exported) { e.Frames = 1199 }, "1199 frames"},
		{1, func(e *exported) { e.FPS = 60 }, "60 frames a second"},
		{1, func(e *exported) { e.Cameras = nil }, "want top"},
		{1, func(e *exported) { e.Intervention = 1 }, "marked"},
		{2, func(e *exported) { e.Added = 4 }, "4 episodes were added"},
		{2, func(e *exported) { e.Intervention = 149 }, "149 frames are interventions"},
	} {
		e, want := good, 40
		if tt.n == 2 {
			e, want = with, 45
		}
		tt.change(&e)
		err := e.check(tt.n, want, 5)
		checkSays(t, fmt.Sprintf("dataset %d %+v", tt.n, e), err, tt.says)
	}
}

func TestAJointThatStandsStillIsRefused(t *testing.T) {
	for _, tt := range []struct {
		std  []float64
		says string
	}{
		{[]float64{30, 2, 20, 8, 30, 40}, ""},
		{[]float64{30, 0, 20, 8, 30, 40}, "shoulder_lift does not move"},
		{[]float64{30, 2, 20}, "3 joints"},
	} {
		dir := t.TempDir()
		rttest.Do(t, os.Mkdir(filepath.Join(dir, "meta"), 0o700))
		writeJSON(t, filepath.Join(dir, "meta", "stats.json"),
			map[string]any{"action": map[string]any{"std": tt.std}, "observation.state": map[string]any{"std": tt.std},
				"observation.images.top": map[string]any{"std": [][][]float64{{{0.1}}}}})
		err := checkMoves(dir)
		checkSays(t, fmt.Sprint(tt.std), err, tt.says)
	}
}

func TestWhatIsWrongWithATraining(t *testing.T) {
	for _, tt := range []struct {
		name          string
		n             int
		first, second trained
		says          string
	}{
		{"it learns", 1, trained{First: 2, Last: 1}, trained{}, ""},
		{"it does not", 1, trained{First: 1, Last: 1}, trained{}, "did not fall"},
		{"it diverges", 1, trained{First: 1, Last: math.NaN()}, trained{}, "NaN"},
		{"on from the checkpoint", 2, trained{First: 2, Last: 1, SHA256: "a"},
			trained{First: 1.1, Last: 1.2, SHA256: "b"}, ""},
		{"from nothing", 2, trained{First: 2, Last: 1, SHA256: "a"}, trained{First: 2.1, Last: 1, SHA256: "b"},
			"did not begin with the checkpoint"},
		{"nothing was learned", 2, trained{First: 2, Last: 1, SHA256: "a"}, trained{First: 1, Last: 1, SHA256: "a"},
			"first one's weights"},
	} {
		r := &round{plan: plan{whole: true}}
		r.Found.Trained = [3]trained{1: tt.first, 2: tt.second}
		err := r.checkTraining(tt.n)
		checkSays(t, tt.name, err, tt.says)
	}
}

func TestWhatACheckpointBeganWith(t *testing.T) {
	dir := t.TempDir()
	writeJSON(t, filepath.Join(dir, "train_config.json"),
		map[string]any{"policy": map[string]any{"type": "act", "pretrained_path": "/first"}})
	rttest.Do(t, checkBegin(dir, "/first"))
	rttest.Fails(t, checkBegin(dir, "/other"), `"/first"`) // another checkpoint
	writeJSON(t, filepath.Join(dir, "train_config.json"),
		map[string]any{"policy": map[string]any{"type": "act", "pretrained_path": nil}})
	rttest.Do(t, checkBegin(dir, ""))
	rttest.Fails(t, checkBegin(dir, "/first"))
}

func TestLossesOfALog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	write := func(text string) {
		rttest.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	bar := strings.Repeat("Training: 50%\r", 10_000) // a progress bar, which begins no new line
	write("INFO step:2 smpl:16 loss:1.498 grdn:77.3 lr:1.0e-04\n" + bar + "INFO step:20 loss:0.794 grdn:1\nEnd\n")
	if first, last, err := losses(file); err != nil || first != 1.498 || last != 0.794 {
		t.Errorf("losses() = %v, %v, %v", first, last, err)
	}
	write("INFO step:2 loss:nan grdn:nan\n")
	if _, last, err := losses(file); err != nil || !math.IsNaN(last) {
		t.Errorf("a loss that is none: %v, %v", last, err)
	}
	write("no step\n")
	if _, _, err := losses(file); err == nil {
		t.Error("a log without a loss is taken")
	}
}

func TestWhatLeanServerCheckSays(t *testing.T) {
	sha := strings.Repeat("0a", 32)
	rttest.Want(t, rttest.Must(servedSHA("  bundle     x\n             sha256 "+sha+", golden sets reproduced\n"))(t),
		sha, "servedSHA()")
	rttest.Fails(t, rttest.Err(servedSHA("             sha256 "+sha+"\n")))
}

// A bundle that does not fit its data is refused.
func TestWhatIsWrongWithABundle(t *testing.T) {
	arm := rttest.Must(robot.ByName(robotName))(t)
	for _, tt := range []struct {
		name   string
		change func(bundle, report map[string]any)
		says   string
	}{
		{"good", func(_, _ map[string]any) {}, ""},
		{"another answer", func(_, r map[string]any) { r["worst"] = map[string]any{"max": 2e-4} }, "0.0002 deviations"},
		{"a wider limit", func(_, r map[string]any) { r["limit"] = 0.1 }, "allowed are 0.1"},
		{"another rate", func(b, _ map[string]any) { b["fps"] = 60 }, "at 60 per second"},
		{"another chunk", func(b, _ map[string]any) { b["chunk_size"] = 50 }, "chunks of 50"},
		{"other joints", func(b, _ map[string]any) { b["action_names"] = []string{"x"} }, "joints [x]"},
		{"another camera", func(b, _ map[string]any) {
			b["cameras"] = []any{map[string]any{"name": "top", "width": 160, "height": 120}}
		}, "cameras"},
	} {
		dir := t.TempDir()
		bundle := map[string]any{
			"fps": fps, "chunk_size": 30, "action_names": arm.ActionNames(),
			"cameras": []any{map[string]any{"name": "top", "width": 80, "height": 60}},
		}
		report := map[string]any{"worst": map[string]any{"max": 1e-6}, "limit": 1e-4,
			"t_of_b": []any{map[string]any{"median_ms": 9.5}}}
		tt.change(bundle, report)
		writeJSON(t, filepath.Join(dir, "bundle.json"), bundle)
		writeJSON(t, filepath.Join(dir, "report.json"), report)
		b, err := readBundle(dir, 30)
		checkSays(t, tt.name, err, tt.says)
		if err == nil && b.MS != 9.5 {
			t.Errorf("%s: %+v", tt.name, b)
		}
	}
}

func TestWhatIsWrongWithARun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "summary.json")
	for _, tt := range []struct{ name, text, says string }{
		{"good", `{"fps": 30, "targets_reached": 5, "collisions": 1, "targets_timed_out": 2, "chunks": 9, "actions": 90, "exit": {"code": 0}}`, ""},
		{"no chunk", `{"fps": 30, "targets_timed_out": 2, "chunks": 0, "actions": 0}`, "0 chunks"},
		{"its end", `{"fps": 30, "chunks": 9, "actions": 90, "exit": {"code": 3, "reason": "refused"}}`,
			"code 3: refused"},
		{"another rate", `{"fps": 60, "chunks": 9, "actions": 90}`, "60 ticks a second"},
	} {
		rttest.Do(t, os.WriteFile(file, []byte(tt.text), 0o600))
		j, err := readSummary(file)
		checkSays(t, tt.name, err, tt.says)
		if err == nil && j.legs() != 8 {
			t.Errorf("%s: %+v", tt.name, j)
		}
	}
}

// A round continues after the completed stages, and removes the files of all later stages.
func TestARoundGoesOn(t *testing.T) {
	p := short
	p.dir = t.TempDir()
	for _, tt := range []string{"nowhere", "train"} {
		rttest.Ends(t, rttest.Err(load(p, tt)), exit.Usage)
	}
	r := rttest.Must(load(p, ""))(t)
	for _, name := range []string{"demonstrations", "dataset-1", "training-1"} {
		rttest.Do(t, os.Mkdir(p.at(name), 0o700))
	}
	r.Seconds["demonstrate"], r.Seconds["export"] = 12, 3
	r.Found.Demonstrated.Episodes, r.Results["demonstrate"] = 4, "4 episodes"
	rttest.Do(t, r.save())
	rttest.Ends(t, rttest.Err(load(p, "")), exit.Usage, "--from") // the folder has a round already
	// --from bundle without a training
	rttest.Ends(t, rttest.Err(load(p, "bundle")), exit.Usage, "stage train has not ended")
	again, err := load(p, "train")
	if err != nil || again.Found.Demonstrated.Episodes != 4 {
		t.Fatalf("load() = %+v, %v", again, err)
	}
	rttest.Do(t, again.clear(stages[slices.Index(stageNames(), "train"):]))
	for name, want := range map[string]bool{"demonstrations": true, "dataset-1": true, "training-1": false} {
		if _, err := os.Stat(p.at(name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
	if text := again.markdown(errors.New("no more")); !strings.Contains(text, "| demonstrate |") ||
		!strings.Contains(text, "4 episodes") ||
		strings.Count(text, "not done") != len(stages)-2 || strings.Contains(text, "Success") ||
		!strings.Contains(text, "no more") {
		t.Errorf("the log of half a round:\n%s", text)
	}
}

// The command in the log works on other machines, since it names no folder of this machine.
func TestTheCommandOfALog(t *testing.T) {
	for _, tt := range []struct {
		given options
		want  string
	}{
		{options{}, "make circle"},
		{options{Out: "/somewhere", portable: portable{Short: true}}, "make circle CIRCLE='--short'"},
		{options{Bin: "/a/bin", portable: portable{Steps: 800, More: 400}},
			"make circle CIRCLE='--more 400 --steps 800'"},
	} {
		rttest.Want(t, tt.given.command(), tt.want, "%+v", tt.given)
	}
}

// checkSays fails the test unless the error has the text says; an empty text means no error.
func checkSays(t *testing.T, name string, err error, says string) {
	t.Helper()
	if (err != nil) != (says != "") || err != nil && !rttest.Says(err, says) {
		t.Errorf("%s: %v, want %q", name, err, says)
	}
}

func writeJSON(t *testing.T, file string, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	rttest.Do(t, err)
}
