package dataset

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// needFFmpeg skips a test on a machine without ffmpeg; `make test` installs it.
func needFFmpeg(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(ffmpeg); err != nil {
		t.Skip("needs ffmpeg, which make setup installs: ", err)
	}
}

func exporting(t *testing.T, cfg Config) *Report {
	t.Helper()
	return rttest.Must(Export(t.Context(), cfg))(t)
}

// data exports and returns the report and the data that LeRobot would read.
func data(t *testing.T, cfg Config) exported {
	t.Helper()
	r := exporting(t, cfg)
	d := read(t, cfg.Out)
	d.Report = r
	return d
}

// refused checks that an export returns an InputError with all words, and makes no dataset where there
// was none.
func refused(t *testing.T, cfg Config, words ...string) {
	t.Helper()
	_, before := os.Lstat(cfg.Out)
	_, err := Export(t.Context(), cfg)
	if !errors.As(err, new(InputError)) {
		t.Fatalf("the error is %v, want one about the input", err)
	}
	for _, w := range words {
		rttest.Fails(t, err, w)
	}
	if before != nil {
		absent(t, cfg.Out)
	}
}

// absent checks that there is no file or folder at a path.
func absent(t *testing.T, path string) {
	t.Helper()
	rttest.FailsAs(t, rttest.Err(os.Lstat(path)), fs.ErrNotExist)
}

// An operator's marks make the episodes. An episode's frames are the ticks from its first action
// on, and frame n has the time n/fps.
func TestEpisodesAreTheOperators(t *testing.T) {
	s := &scene{seconds: 5, first: 3}
	s.episodes = []record.Episode{
		begin(1, 0, "pick"), end(1, 1, record.Success),
		begin(2, 1, "pick"), end(2, 2, record.Discard),
		begin(3, 2, "pick"), end(3, 3, record.Rerecord),
		begin(4, 3, "place"), end(4, 4, record.Failure),
		begin(5, 4.5, "place"), // the run ends in this episode
	}
	cfg := s.config(t)
	r := exporting(t, cfg)
	same(t, "report", []int{r.Episodes, r.Frames, r.Tasks, r.Left["episodes that were to be left out (discard)"],
		r.Left["episodes that were to be left out (rerecord)"]}, []int{3, 27 + 30 + 15, 2, 1, 1})
	d := read(t, cfg.Out)
	ticks := append(append(counted(3, 27, 1), counted(90, 30, 1)...), counted(135, 15, 1)...)
	same(t, "states", d.firsts(stateName), ticks)
	for i := range ticks {
		ticks[i] += 0.25
	}
	same(t, "actions", d.firsts(actionName), ticks)
	frames := append(append(counted(0, 27, 1), counted(0, 30, 1)...), counted(0, 15, 1)...)
	same(t, "frame indices", d.firsts(frameIndex), frames)
	same(t, "indices", d.firsts(index), counted(0, 72, 1))
	for i, v := range d.firsts(timestamp) {
		if want := float64(float32(frames[i] / 30)); v != want {
			t.Fatalf("frame %d is at %v, want %v", i, v, want)
		}
	}
	same(t, "outcomes", d.at(outcomeName, 0, 27, 71),
		[]float64{1, 0, -1})
	same(t, "tasks", d.at(taskIndex, 0, 27, 71),
		[]float64{0, 1, 1})
	same(t, "request, epoch, row, age", []float64{d.firsts(seqName)[12], d.firsts(epochName)[12],
		d.firsts(chunkIndexName)[12], d.firsts(sourceAgeName)[12]}, []float64{2, 3, 5, 20})

	cfg.Out, cfg.Only = filepath.Join(t.TempDir(), "only"), []string{record.Success}
	if r := exporting(t, cfg); r.Episodes != 1 || r.Left["episodes of another outcome (none)"] != 1 {
		t.Errorf("only success is %+v", r)
	}
}

// A timeout is not an outcome, because the operator has not judged the episode.
func TestATimeoutIsNoOutcome(t *testing.T) {
	s := &scene{seconds: 4, task: "x"}
	s.episodes = []record.Episode{begin(1, 0.1, "x"), end(1, 1.5, record.Timeout), begin(2, 2, "x"),
		end(2, 3.5, record.Success)}
	cfg := s.config(t)
	cfg.Only = []string{"none"}
	if r := exporting(t, cfg); r.Episodes != 1 || r.Left["episodes of another outcome (success)"] != 1 {
		t.Errorf("only none is %+v, want the timeout", r)
	}
}

// A run without marks is one episode, from its first action to its last.
func TestARunIsAnEpisode(t *testing.T) {
	s := &scene{first: 10, task: "stir"}
	cfg := s.config(t)
	if r := exporting(t, cfg); r.Episodes != 1 || r.Frames != 50 {
		t.Errorf("%+v", r)
	}
	cfg.Out += "2"
	s.task = ""
	cfg.Records = []string{s.write(t, t.TempDir(), "a.mcap")}
	refused(t, cfg, "--task")
	cfg.Task = "stir"
	exporting(t, cfg)
}

// Goal: when the ticks are more frequent than the frames, each frame begins on a tick on which an action begins.
func TestFewerFramesThanTicks(t *testing.T) {
	s := &scene{rate: 30, multiplier: 2, seconds: 1, first: 4, task: "x"}
	cfg := s.config(t)
	d := data(t, cfg)
	same(t, "30 of 60", d.firsts(stateName), counted(4, 28, 2))
	same(t, "their actions", d.firsts(seqName)[0], 1)

	cfg.Out, cfg.FPS = cfg.Out+"60", 60
	d = data(t, cfg)
	same(t, "60 of 60", d.firsts(stateName), counted(4, 55, 1))
	same(t, "an action and a goal", d.firsts(actionName)[:2], []float64{4.25, 5.5})
	same(t, "only the former has a request", d.firsts(seqName)[:2], []float64{1, -1})

	cfg.Out, cfg.FPS = cfg.Out+"10", 10
	d = data(t, cfg)
	same(t, "10 of 60", d.firsts(stateName), counted(4, 10, 6))

	// After a starved tick, actions begin between two frames. A frame then takes the action that begins next.
	slipped := &scene{rate: 30, multiplier: 2, seconds: 1, slip: 20, task: "x"}
	late := slipped.config(t)
	d = data(t, late)
	same(t, "states", d.firsts(stateName)[9:12], []float64{18, 20, 22})
	same(t, "actions", d.firsts(actionName)[9:12], []float64{18.25, 21.25, 23.25})

	cfg.Out, cfg.FPS = cfg.Out+"25", 25
	refused(t, cfg, "60 ticks per second", "--fps 25")
}

// When the gate (edge-rt's limits of goals) keeps a joint from an action, as at a change of control, the frame has the
// joint's goal on the last tick of that action.
func TestTheActionIsWhatWasSent(t *testing.T) {
	for _, clipped := range []uint32{1, 0} { // the gate limited the joint in speed, or held it
		s := &scene{seconds: 1, held: [2]int{10, 12}, clipped: clipped, task: "x"}
		cfg := s.config(t)
		d := data(t, cfg)
		same(t, "actions", d.firsts(actionName)[9:13], []float64{9.25, 10.5, 11.5, 12.25})
	}
	s := &scene{rate: 30, multiplier: 2, seconds: 1, held: [2]int{11, 12}, clipped: 1, task: "x"}
	cfg := s.config(t)
	d := data(t, cfg)
	same(t, "actions of two ticks", d.firsts(actionName)[4:7], []float64{8.25, 11.5, 12.25})
	cfg.Out, cfg.FPS = cfg.Out+"60", 60
	d = data(t, cfg)
	same(t, "a frame for each tick", d.firsts(actionName)[9:13], []float64{9.5, 10.25, 11.5, 12.25})
}

// No frame shifts in time after missing ticks, or after ticks on which the arm did not answer. The export fills a short
// gap with held frames. It cuts the episode at a long gap, and where the machine was suspended.
func TestGaps(t *testing.T) {
	s := &scene{seconds: 5.1, lost: map[int]bool{10: true, 11: true}, silent: [2]int{60, 70}, slept: 119}
	s.episodes = []record.Episode{begin(1, 0, "x"), end(1, 5, record.Success)}
	cfg := s.config(t)
	d := data(t, cfg)
	want := append(append(counted(0, 10, 1), 9, 9), counted(12, 48, 1)...)
	same(t, "states", d.firsts(stateName), append(append(want, counted(70, 49, 1)...), counted(120, 30, 1)...))
	same(t, "what is held has the goal", d.firsts(actionName)[9:12], []float64{9.25, 9.5, 9.5})
	same(t, "episodes, held", []int{d.Episodes, d.Held, d.Left["gaps longer than 100ms, at which an episode was cut"]},
		[]int{3, 2, 2})
	same(t, "frame after the cut", d.firsts(frameIndex)[60], 0)
	same(t, "the last part is the success", d.at(outcomeName, 60, 110),
		[]float64{-1, 1})

	for i := 60; i < 130; i++ { // 20 frames remain after the gap: too few
		s.lost[i] = true
	}
	cfg.Out, cfg.Records = cfg.Out+"2", []string{s.write(t, t.TempDir(), "b.mcap")}
	if r := exporting(t, cfg); r.Episodes != 1 || r.Left["parts shorter than 1s of episodes that were cut"] != 1 {
		t.Errorf("%+v", r)
	}
}

// --append with another --max-gap keeps the parts of an episode: the record has not changed.
func TestAnotherGapMakesNoEpisodeAnew(t *testing.T) {
	s := &scene{seconds: 6, task: "x", lost: map[int]bool{}}
	for i := 60; i < 70; i++ {
		s.lost[i] = true
	}
	cfg := s.config(t)
	exporting(t, cfg)
	cfg.Append, cfg.MaxGap = true, time.Second
	if r := exporting(t, cfg); r.Episodes != 2 || r.Replaced != 0 || r.Added != 0 {
		t.Errorf("%+v, want the two parts", r)
	}
	cfg.Append, cfg.Out = false, cfg.Out+"2"
	exporting(t, cfg)
	cfg.Append, cfg.MaxGap = true, defaultGap
	if r := exporting(t, cfg); r.Episodes != 1 || r.Replaced != 0 || r.Added != 0 {
		t.Errorf("%+v, want the whole", r)
	}
}

// An interrupted export is not continued with options that would have selected or cut its episodes otherwise.
func TestAnInterruptedExportHasItsOptions(t *testing.T) {
	s := &scene{seconds: 3, episodes: []record.Episode{begin(1, 0, "x"), end(1, 1, record.Failure), begin(2, 1, "x"),
		end(2, 2, record.Success)}}
	cfg := s.config(t)
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Progress = func(Progress) { cancel() }
	rttest.Fails(t, rttest.Err(Export(ctx, cfg)), "1 episodes are whole")
	cfg.Progress = nil
	for _, change := range []func(*Config){
		func(c *Config) { c.Only = []string{record.Success} },
		func(c *Config) { c.Task = "y" },
		func(c *Config) { c.MaxGap = time.Second },
		func(c *Config) { c.Missing = cutEpisode },
	} {
		other := cfg
		change(&other)
		refused(t, other, "had another --task, --only")
	}
	if r := exporting(t, cfg); r.Resumed != 1 || r.Episodes != 2 {
		t.Errorf("%+v, want both episodes", r)
	}
}

// A person's actions are marked in the same way as by LeRobot's strategy dagger, and have no
// request.
func TestInterventions(t *testing.T) {
	s := &scene{seconds: 1, task: "x", taken: [2]int{10, 20}}
	cfg := s.config(t)
	if r := exporting(t, cfg); r.Intervention != 10 {
		t.Errorf("%+v", r)
	}
	d := read(t, cfg.Out)
	same(t, "intervention", d.firsts(intervention)[9:21], []float64{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0})
	same(t, "its type", d.info.Features[intervention].DType, "bool")
	same(t, "requests", []float64{d.firsts(seqName)[9], d.firsts(seqName)[10], d.firsts(chunkIndexName)[19],
		d.firsts(seqName)[20]}, []float64{1, -1, -1, 3})
	same(t, "actions", d.firsts(actionName)[10], 10.25)

	cfg.Out, cfg.Plain = cfg.Out+"2", true
	exporting(t, cfg)
	if d := read(t, cfg.Out); len(d.info.Features) != 7 || d.data[intervention] != nil {
		t.Errorf("--plain has %v", d.info.Features)
	}
}

// The files of one process are one run, even if they overlap. Runs in one dataset need the same
// settings.
func TestRuns(t *testing.T) {
	dir := t.TempDir()
	a := &scene{seconds: 1, task: "x", units: "degrees"}
	b := &scene{seconds: 1, task: "x", units: "degrees", start: testStart + 500_000_000 + 5}
	first, second := a.write(t, dir, "b.mcap"), b.write(t, dir, "a.mcap")
	cfg := testConfig(t, dir)
	d := data(t, cfg)
	r := d.Report
	same(t, "episodes", []int{r.Runs, r.Records, r.Episodes, r.Frames, r.Left["ticks that another record has too"]},
		[]int{1, 2, 1, 45, 15})
	same(t, "states", d.firsts(stateName), append(counted(0, 30, 1), counted(15, 15, 1)...))

	other := &scene{seconds: 1, task: "x", instance: "two", rate: 60, units: "degrees"}
	cfg.Out, cfg.Records = cfg.Out+"2", []string{first, second, other.write(t, dir, "c.mcap")}
	refused(t, cfg, "fps of", "c.mcap is 60", "b.mcap has 30")
	cfg.FPS = 30
	if r := exporting(t, cfg); r.Runs != 2 || r.Episodes != 2 {
		t.Errorf("%+v", r)
	}
	joints := &scene{seconds: 1, task: "x", instance: "three", robot: "koch"}
	cfg.Out, cfg.Records = cfg.Out+"3", []string{first, joints.write(t, dir, "d.mcap")}
	refused(t, cfg, "robot of", `"koch"`, `"so101"`)
	shares := &scene{seconds: 1, task: "x", instance: "seven", units: "range_m100_100"}
	cfg.Records[1] = shares.write(t, dir, "e.mcap")
	refused(t, cfg, "units of", "e.mcap is \"range_m100_100\"", "degrees")
	larger := &scene{seconds: 1, task: "x", instance: "four", cameras: oneCamera, w: 128, h: 96}
	smaller := &scene{seconds: 1, task: "x", instance: "five", cameras: oneCamera, rate: 60}
	cfg.Records = []string{larger.write(t, dir, "f.mcap"),
		smaller.write(t, dir, "g.mcap")}
	refused(t, cfg, "feature observation.images.top of", "g.mcap is video [48 64 3], and",
		"f.mcap has video [96 128 3]: one dataset has one; make them alike with --fps, --cameras, --plain, --columns,")
	cfg.FPS = 0
	refused(t, cfg, "fps of", "g.mcap is 60")
	blind := &scene{seconds: 1, task: "x", instance: "six"}
	cfg.Records = []string{larger.write(t, dir, "h.mcap"), blind.write(t, dir, "i.mcap")}
	refused(t, cfg, "feature observation.images.top of", "i.mcap is none, and",
		"or export each kind by its files or folder")
	cfg.Records = []string{dir + "/none"}
	refused(t, cfg, "none")
	rttest.WriteFile(t, dir, "e.mcap", "no record")
	cfg.Records = []string{filepath.Join(dir, "e.mcap")}
	refused(t, cfg, "e.mcap")
}

// A copy of a file, such as a backup, adds nothing: no episode is in the dataset twice.
func TestACopyOfARecord(t *testing.T) {
	s := &scene{seconds: 3}
	s.episodes = []record.Episode{begin(1, 0, "x"), end(1, 1, record.Success), begin(2, 1, "x"),
		end(2, 2, record.Success), end(1, 2.5, record.Failure)}
	cfg := s.config(t)
	cfg.Records = append(cfg.Records, s.write(t, t.TempDir(), "copy.mcap"))
	d := data(t, cfg)
	same(t, "episodes, frames", []int{d.Episodes, d.Frames}, []int{2, 60})
	same(t, "outcomes", d.at(outcomeName, 0, 59), []float64{0, 1})
}

// An export that failed before its first episode does not bind the next export to its settings.
func TestARefusedExportHasNoEffect(t *testing.T) {
	s := &scene{rate: 60}
	cfg := s.config(t)
	refused(t, cfg, "--task")
	cfg.FPS, cfg.Task = 30, "stir"
	if r := exporting(t, cfg); r.FPS != 30 || r.Resumed != 0 {
		t.Errorf("%+v, want an export of its own", r)
	}
}

// Each frame has the newest picture taken no later than the frame.
func TestPictures(t *testing.T) {
	needFFmpeg(t)
	s := &scene{seconds: 3, cameras: []string{"top", "wrist"}, cameraFPS: 20, shutter: 3_000_000, task: "x", first: 30}
	cfg := s.config(t)
	d := data(t, cfg)
	r := d.Report
	for i, age := range d.firsts(pictureAgeName) {
		_, taken := s.shown(30 + i)
		if want := float64(s.tick(30+i).At-taken) / 1e6; age-want > 1e-3 || want-age > 1e-3 {
			t.Fatalf("frame %d has a picture %v ms old, want %v", i, age, want)
		}
	}
	if r.WorstPictureMS < 40 || r.WorstPictureMS > 50 {
		t.Errorf("the worst is %v ms old", r.WorstPictureMS)
	}
	for _, name := range []string{"top", "wrist"} {
		v, err := probe(t.Context(), filepath.Join(cfg.Out, fill(videoPath, imagePrefix+name, 0, 0)))
		if err != nil || len(v.Times) != 60 || v.FPS != 30 || v.Uneven != 0 || v.Codec != "h264" ||
			v.PixelFormat != "yuv420p" || v.W != 64 || v.H != 48 {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	cfg.Out, cfg.Cameras = cfg.Out+"2", []string{"wrist", "wrist"}
	if r := exporting(t, cfg); len(r.Cameras) != 1 {
		t.Errorf("%+v", r)
	}
	cfg.Out, cfg.Cameras = cfg.Out+"3", []string{"front"}
	refused(t, cfg, `"front"`, "top")
}

// A late tick, and the held frames for the missing ticks after it, show no older picture than the previous
// frame.
func TestPicturesOfALateTick(t *testing.T) {
	needFFmpeg(t)
	s := &scene{
		rate:      60,
		seconds:   2,
		cameras:   oneCamera,
		cameraFPS: 60,
		task:      "x",
		late:      80_000_000,
		lost:      map[int]bool{40: true, 41: true, 42: true, 43: true, 44: true},
	}
	cfg := s.config(t)
	if r := exporting(t, cfg); r.Frames != 120 || r.Held != 5 {
		t.Errorf("%+v", r)
	}
	d := read(t, cfg.Out)
	for i, age := range d.firsts(pictureAgeName)[38:48] {
		if age < 0 || age > 17 {
			t.Errorf("frame %d has a picture %v ms old", 38+i, age)
		}
	}
}

// The export leaves out an episode that has frames without a picture, or cuts these frames out of the
// episode.
func TestMissingPictures(t *testing.T) {
	needFFmpeg(t)
	s := &scene{seconds: 5, cameras: oneCamera, task: "x", blind: [2]float64{2, 3}, mode: "ring"}
	cfg := s.config(t)
	refused(t, cfg, "no episode is left", "1 episodes with frames that have no picture of the last 250ms, as from "+
		"camera top", "--record all")
	cfg.Missing = cutEpisode
	d := data(t, cfg)
	r := d.Report
	same(t, "episodes", r.Episodes, 2)
	n := r.Left["frames without a picture of the last 250ms"]
	same(t, "states", d.firsts(stateName), append(counted(0, 90-n, 1), counted(90, 60, 1)...))
}

// An interrupted export continues with its unfinished episode, and the result equals the result of an export without an
// interruption.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	s := &scene{seconds: 6, cameras: oneCamera}
	for i := range 6 {
		s.episodes = append(s.episodes, begin(i+1, float64(i), "x"), end(i+1, float64(i)+0.9, record.Success))
	}
	cfg := s.config(t)
	whole := cfg
	whole.Out += "-whole"
	exporting(t, whole)
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Progress = func(p Progress) {
		if p.Episodes == 3 && p.Frames == 95 {
			cancel()
		}
	}
	if _, err := Export(ctx, cfg); !rttest.Says(err, "3 episodes are whole") {
		t.Fatalf("interrupted: %v", err)
	}
	absent(t, cfg.Out)
	// A power cut also leaves half a line.
	f := rttest.Must(os.OpenFile(filepath.Join(partialOf(cfg.Out), journalPath), os.O_APPEND|os.O_WRONLY, 0))(t)
	f.WriteString(`{"key": "one/4`)
	f.Close()
	first := filepath.Join(partialOf(cfg.Out), fill(videoPath, imagePrefix+"top", 0, 0))
	before := rttest.Must(os.Stat(first))(t)
	cfg.Progress = nil
	other := cfg
	other.CRF = 40
	refused(t, other, "the interrupted export")
	r := exporting(t, cfg)
	if r.Resumed != 3 || r.Added != 3 || r.Episodes != 6 {
		t.Errorf("%+v", r)
	}
	if after, err := os.Stat(filepath.Join(cfg.Out, fill(videoPath, imagePrefix+"top", 0, 0))); err != nil ||
		!after.ModTime().Equal(before.ModTime()) {
		t.Errorf("a finished episode was made again: %v", err)
	}
	sameFiles(t, cfg.Out, whole.Out)
	absent(t, partialOf(cfg.Out))
}

// --append adds only the episodes that the dataset lacks, and the dataset is complete at all times.
func TestAppend(t *testing.T) {
	needFFmpeg(t)
	dir := t.TempDir()
	a := &scene{seconds: 1, task: "x", cameras: oneCamera}
	b := &scene{seconds: 1, task: "y", cameras: oneCamera, instance: "two", phase: 50}
	a.write(t, dir, "a.mcap")
	cfg := testConfig(t, dir)
	cfg.Append = true
	refused(t, cfg, "does not exist")
	cfg.Append = false
	exporting(t, cfg)
	refused(t, cfg, "--append")
	b.write(t, dir, "b.mcap")
	whole := cfg
	whole.Out += "-whole"
	exporting(t, whole)
	cfg.Append = true
	r := exporting(t, cfg)
	if r.Episodes != 2 || r.Added != 1 || r.There != 1 || r.Tasks != 2 {
		t.Errorf("%+v", r)
	}
	sameFiles(t, cfg.Out, whole.Out)
	if r := exporting(t, cfg); r.Added != 0 || r.Episodes != 2 {
		t.Errorf("again: %+v", r)
	}
	c := &scene{seconds: 1, task: "z", cameras: oneCamera, instance: "three", units: "degrees"}
	cfg.Records = []string{c.write(t, t.TempDir(), "c.mcap")}
	refused(t, cfg, `"degrees", and `, `has none: one dataset has one; if`, `write "units": "degrees", into the first`)
	os.Remove(filepath.Join(cfg.Out, journalPath))
	refused(t, cfg, "lerobot-edit-dataset")
}

// Of two exports into one place the second is refused.
func TestTwoAtOnce(t *testing.T) {
	s := &scene{task: "x"}
	cfg := s.config(t)
	second := cfg
	cfg.Progress = func(Progress) { refused(t, second, "another export") }
	exporting(t, cfg)
}

// Without ffmpeg the export fails before it makes a file, and the error names the package to
// install.
func TestWithoutFFmpeg(t *testing.T) {
	s := &scene{task: "x", cameras: oneCamera}
	cfg := s.config(t)
	t.Setenv("PATH", t.TempDir())
	refused(t, cfg, "apt-get install ffmpeg")
	script := "#!/bin/sh\necho ' V..... libx264rgb'\n"
	bin := t.TempDir()
	for _, name := range []string{ffmpeg, ffprobe} {
		rttest.WriteFile(t, bin, name, script)
	}
	t.Setenv("PATH", bin)
	refused(t, cfg, "no encoder libx264", "--vcodec av1")
	// When ffmpeg fails, the error contains its output.
	script = "#!/bin/sh\n[ $2 = -encoders ] && echo ' V..... libx264' && exit\necho it broke >&2\nexit 3\n"
	rttest.WriteFile(t, bin, ffmpeg, script)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rttest.Fails(t, rttest.Err(Export(ctx, cfg)), "its output: it broke")
}

// sameFiles compares two folders byte by byte.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	out, err := exec.Command("diff", "-rq", a, b).CombinedOutput()
	if err != nil {
		t.Errorf("%s%v", out, err)
	}
}

// When ffmpeg exits with status 0 without a complete video, as on a full disk, the error contains its output, and how
// the export goes on.
func TestFFmpegOnAFullDisk(t *testing.T) {
	needFFmpeg(t)
	dir := t.TempDir()
	real := rttest.Must(exec.LookPath(ffmpeg))(t)
	script := "#!/bin/sh\ncase $* in *pipe:0*) cat >/dev/null; echo 'No space left on device' >&2;; *) exec " + real +
		" \"$@\";; esac\n"
	rttest.WriteFile(t, dir, ffmpeg, script)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s := &scene{seconds: 1, cameras: oneCamera, task: "x"}
	cfg := s.config(t)
	rttest.Fails(t, rttest.Err(Export(t.Context(), cfg)), "ffmpeg made no whole", "No space left on device",
		"0 episodes are whole in "+partialOf(cfg.Out)+", and the same command goes on")
}

// A data set has LeRobot's robot_type. Newer records have robot_type beside the robot's own name. Newer and older
// records of one robot fit into one data set, and newer records fit into an older data set.
func TestRobotType(t *testing.T) {
	write := func(robot, robotType string) string {
		s := &scene{seconds: 1, task: "x", robot: robot, robotType: robotType, instance: robot + robotType}
		s.episodes = []record.Episode{begin(1, 0, "x"), end(1, 1, record.Success)}
		return s.write(t, t.TempDir(), "a.mcap")
	}
	old, type1, type2 := write("so101", ""), write("so101", "so_follower"), write("so101", "mine")
	for _, tt := range []struct {
		records []string
		want    string // empty: refused
	}{
		{[]string{old}, "so101"},
		{[]string{type1}, "so_follower"},
		{[]string{old, type1}, "so_follower"},
		{[]string{type1, old}, "so_follower"},
		{[]string{type1, type2}, ""},
		{[]string{old, write("other", "so_follower")}, ""},
	} {
		cfg := testConfig(t, tt.records...)
		if tt.want == "" {
			rttest.Fails(t, rttest.Err(Export(t.Context(), cfg)), "robot of ")
			continue
		}
		exporting(t, cfg)
		if tt.want == "so101" {
			cfg.Records, cfg.Append = append(tt.records, type1), true
			exporting(t, cfg)
		}
		text := rttest.ReadFile(t, filepath.Join(cfg.Out, "meta", "info.json"))
		rttest.Contains(t, text, `"robot_type": "`+tt.want+`"`)
	}
}

// Further columns name the session and the policy of each action, and the episode in its run. The check accepts these
// columns, and so does --append, also when it moves episodes to other places.
func TestColumns(t *testing.T) {
	s := &scene{first: 3, seconds: 6, taken: [2]int{40, 60}}
	s.episodes = []record.Episode{begin(7, 0, "pick"), end(7, 2, record.Success), begin(8, 2, "place"),
		end(8, 4, record.Success)}
	cfg := s.config(t)
	cfg.Plain, cfg.Columns = true, []string{"session", "episode", "model"}
	exporting(t, cfg)
	wantColumns := func(numbers ...float64) {
		t.Helper()
		row := 0
		for n, number := range numbers {
			read, _, err := readTable(filepath.Join(cfg.Out, pathOf("", n)), nil)
			rttest.Do(t, err)
			for i := range read[index].rows {
				session, model := read[sessionName].text(i)[0], read[modelHashName].text(i)[0]
				// frame 37 is tick 40, since the first frame is tick 3
				person := read[frameIndex].numbers[i] >= 37 && number == 7
				if read[runEpisode].numbers[i] != number || (session == "") != person || !person &&
					(session != testSession || model != testModel) {
					t.Fatalf("episode %d, frame %d: %q, %q of %v", n, i, session, model, read[runEpisode].numbers[i])
				}
				row++
			}
		}
		if v := verdict(t, cfg.Out); !v.Whole() || row == 0 {
			t.Errorf("%d rows, %+v", row, v)
		}
	}
	wantColumns(7, 8)
	s.episodes[1].Outcome = record.Discard
	s.episodes = append(s.episodes, begin(9, 4, "pick"), end(9, 6, record.Success))
	s.write(t, "", cfg.Records[0])
	cfg.Append = true
	exporting(t, cfg)
	wantColumns(8, 9)
	cfg.Columns = nil
	refused(t, cfg, "feature edge_rt.")
}

// Pictures that the encoder of AV1 would refuse are refused before the work begins. The error names the codec that
// accepts them.
func TestPicturesThatAnEncoderRefuses(t *testing.T) {
	for _, s := range []scene{{}, {rate: 250, w: 64, h: 64}} {
		s.cameras = oneCamera
		cfg := s.config(t)
		cfg.VCodec = "av1"
		refused(t, cfg, "--vcodec h264")
	}
}
