package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/recordtest"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

// plainRun is a run with a task and a length in seconds.
func plainRun(instance string, seconds float64, cameras ...string) *scene {
	return &scene{
		instance: instance,
		seconds:  seconds,
		task:     "x",
		cameras:  cameras,
	}
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	rttest.Want(t, rttest.ReadFile(t, path), want, "%s", path)
}

// checked fails the test if a check of the dataset finds a fault.
func checked(t *testing.T, dir string) {
	t.Helper()
	v, err := Check(t.Context(), dir, true)
	if err != nil || !v.Whole() {
		t.Errorf("%s: %v, %+v", dir, err, v)
	}
}

// --append through a link extends the dataset at the link's target, and the link stays.
func TestAppendThroughALink(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(t, plainRun("one", 1).write(t, dir, "a.mcap"))
	exporting(t, cfg)
	link := filepath.Join(dir, "link")
	second := filepath.Join(dir, "second")
	for from, to := range map[string]string{second: cfg.Out, link: second} {
		rttest.Do(t, os.Symlink(to, from))
	}
	cfg.Records = append(cfg.Records, plainRun("two", 1).write(t, dir, "b.mcap"))
	real := cfg.Out
	cfg.Out, cfg.Append = link, true
	if r := exporting(t, cfg); r.Episodes != 2 || r.Added != 1 {
		t.Errorf("%+v", r)
	}
	for _, path := range []string{link, second} {
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSymlink {
			t.Errorf("%s is no link any more: %v", path, err)
		}
	}
	if info, err := readInfo(real); err != nil || info.Episodes != 2 {
		t.Errorf("%+v, %v", info, err)
	}
	checked(t, real)
	for _, out := range []string{filepath.Join(dir, "nowhere"), "/"} {
		os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "nowhere"))
		cfg.Out = out
		refused(t, cfg)
	}
}

// A person's files in a dataset survive --append with their modes, including files that appeared during the export.
func TestAppendKeepsAPersonsFiles(t *testing.T) {
	needFFmpeg(t)
	dir := t.TempDir()
	cfg := testConfig(t, plainRun("one", 1, "top").write(t, dir, "a.mcap"))
	exporting(t, cfg)
	mine := []string{
		"README.md", ".git/config", ".gitattributes", "meta/notes.txt", "meta/sub/deep.json", "meta/episodes/notes.txt",
		"meta/info.json.new", "meta/stats.json.new",
		"data/chunk-000/notes.txt", "data/chunk-000/file-000.parquet.bak", "videos/extra/chunk-000/file-000.mp4",
		"videos/" + imagePrefix + "top/chunk-000/cover.jpg", "new", "data.bak/x",
	}
	for _, rel := range mine {
		rttest.WriteFile(t, cfg.Out, rel, rel)
	}
	for _, err := range []error{
		os.Mkdir(filepath.Join(cfg.Out, "empty"), 0o750), os.Symlink("README.md", filepath.Join(cfg.Out, "READ")),
		os.Chmod(filepath.Join(cfg.Out, "README.md"), 0o444),
		os.Chmod(cfg.Out, 0o710), os.Remove(filepath.Join(cfg.Out, "data.bak/x")),
	} {
		rttest.Do(t, err)
	}
	mine = slices.DeleteFunc(mine, func(s string) bool { return s == "data.bak/x" })
	editJSON(infoPath, func(info map[string]any) { info["license"] = "CC0" })(t, cfg.Out)
	cfg.Records = append(cfg.Records, plainRun("two", 1, "top").write(t, dir, "b.mcap"))
	cfg.Append = true
	late := false
	cfg.Progress = func(Progress) {
		if !late {
			late = true
			rttest.WriteFile(t, cfg.Out, "meta/late.txt", "late")
			rttest.WriteFile(t, cfg.Out, "meta/notes.txt.tmp", "changed")
			os.Rename(filepath.Join(cfg.Out, "meta/notes.txt.tmp"), filepath.Join(cfg.Out, "meta/notes.txt"))
		}
	}
	if r := exporting(t, cfg); r.Episodes != 2 || r.Kept != "" {
		t.Errorf("%+v", r)
	}
	for _, rel := range mine {
		if want := rel; rel == "meta/notes.txt" {
			holds(t, filepath.Join(cfg.Out, rel), "changed")
		} else {
			holds(t, filepath.Join(cfg.Out, rel), want)
		}
	}
	holds(t, filepath.Join(cfg.Out, "meta/late.txt"), "late")
	rttest.Want(t, rttest.Must(os.Readlink(filepath.Join(cfg.Out, "READ")))(t), "README.md", "the link leads to")
	for rel, want := range map[string]fs.FileMode{"README.md": 0o444, "empty": 0o750 | fs.ModeDir,
		"data.bak": 0o777&^umask() | fs.ModeDir, ".": 0o710 | fs.ModeDir} {
		if info, err := os.Stat(filepath.Join(cfg.Out, rel)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", rel, info.Mode(), err, want)
		}
	}
	var info map[string]any
	if err := readJSON(filepath.Join(cfg.Out, infoPath), &info); err != nil || info["license"] != "CC0" ||
		info["total_episodes"] != 2.0 {
		t.Errorf("info.json is %v, %v", info, err)
	}
	absent(t, filepath.Join(cfg.Out, marker))
	absent(t, partialOf(cfg.Out))
	checked(t, cfg.Out)
}

func umask() fs.FileMode {
	old := unix.Umask(0)
	unix.Umask(old)
	return fs.FileMode(old)
}

// --append refuses a dataset whose meta/ a person or a tool has edited, and a dataset that has a
// file at the path of a future episode, or a folder in place of a file.
func TestAppendRefusesWhatItWouldLose(t *testing.T) {
	for what, c := range map[string]struct {
		change edit
		says   string
	}{
		"another robot": {editJSON(infoPath, func(v map[string]any) {
			v["robot_type"] = "mine"
		}), "robot_type differs"},
		"another feature": {editJSON(infoPath, func(v map[string]any) {
			v["features"].(map[string]any)["x"] = Feature{DType: float32Type, Shape: []int{1}}
		}), "features differs"},
		"statistics": {editJSON(statsPath, func(v map[string]any) {
			v[stateName].(map[string]any)["mean"] = []any{1, 2, 3}
		}), "observation.state differs"},
		"no statistics in the journal": {replace(journalPath, `"q99":`, `"x":`), "the q99 of action has 0 numbers, want 3"},
		"no frames":                    {replace(journalPath, `"frames":30`, `"frames":-30`), "an episode of -30 frames"},
		"more statistics":              {editJSON(statsPath, func(v map[string]any) { v["x"] = 1 }), "more features"},
		"another task":                 {again(func(j *journal) { j.tasks = []string{"y"} }), "tasks.parquet"},
		"an episode too many": {func(t *testing.T, dir string) {
			rttest.WriteFile(t, dir, fill(dataPath, "", 0, 1), "mine")
		}, "has the place of a future file"},
		"an episode too few": {func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, fill(dataPath, "", 0, 0)))
		}, "it was edited"},
		"a pipe": {func(t *testing.T, dir string) {
			unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600)
		}, "neither a file nor a folder"},
		"a link for data":      {elsewhere("data"), "an export writes into it"},
		"a link for its chunk": {elsewhere("data/chunk-000"), "an export writes into it"},
		"a link for meta":      {elsewhere("meta"), "an export writes into it"},
	} {
		dir := t.TempDir()
		cfg := testConfig(t, plainRun("one", 1).write(t, dir, "a.mcap"))
		exporting(t, cfg)
		c.change(t, cfg.Out)
		before := tree(t, cfg.Out)
		cfg.Records = append(cfg.Records, plainRun("two", 1).write(t, dir, "b.mcap"))
		cfg.Append = true
		refused(t, cfg, c.says)
		rttest.Want(t, tree(t, cfg.Out), before, "%s: the dataset was\n%s, and is", what, before)
	}
}

// elsewhere moves a folder away and leaves a link to it.
func elsewhere(rel string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		to := filepath.Join(t.TempDir(), "there")
		rttest.Do(t, errors.Join(os.Rename(filepath.Join(dir, rel), to),
			os.Symlink(to, filepath.Join(dir, rel))))
	}
}

// tree returns the paths and contents of all files of a folder.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	rttest.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		b.WriteString(strings.TrimPrefix(path, dir) + " " + d.Type().String())
		if d.Type().IsRegular() {
			data := rttest.ReadFile(t, path)
			b.WriteString(" " + data[:min(len(data), 40)] + " " + string(rune(len(data))))
		}
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}

// A folder, a file or a link named OUT.partial stays as it is, unless it is the work of an export.
func TestAForeignPartialStays(t *testing.T) {
	set := testConfig(t, plainRun("zero", 1).write(t, t.TempDir(), "z.mcap"))
	exporting(t, set)
	for what, make := range map[string]func(t *testing.T, partial string){
		"a dataset of another program": func(t *testing.T, p string) {
			for _, rel := range []string{"data/chunk-000/file-000.parquet", "videos/x/chunk-000/file-000.mp4",
				"meta/info.json"} {
				rttest.WriteFile(t, p, rel, rel)
			}
		},
		"its data alone":       func(t *testing.T, p string) { rttest.WriteFile(t, p, "data/mine", "x") },
		"a dataset of edge-rt": func(t *testing.T, p string) { os.CopyFS(p, os.DirFS(set.Out)) },
		"a file":               func(t *testing.T, p string) { rttest.WriteFile(t, "", p, "x") },
		"a link": func(t *testing.T, p string) {
			to := t.TempDir()
			rttest.WriteFile(t, to, "data/mine", "x")
			os.Symlink(to, p)
		},
	} {
		cfg := plainRun("one", 1).config(t)
		make(t, partialOf(cfg.Out))
		before := tree(t, partialOf(cfg.Out))
		refused(t, cfg, "set.partial is ")
		rttest.Want(t, tree(t, partialOf(cfg.Out)), before, "%s: it was\n%s, and is", what, before)
	}
	// An export continues in the folder of an interrupted export, but not while a person's file is in
	// that folder.
	cfg := plainRun("one", 1).config(t)
	rttest.WriteFile(t, filepath.Join(partialOf(cfg.Out), marker), "new", "half a file")
	rttest.WriteFile(t, partialOf(cfg.Out), fill(dataPath, "", 0, 3), "half a file")
	rttest.WriteFile(t, partialOf(cfg.Out), "data/mine", "x")
	refused(t, cfg, "data/mine was not made by an export")
	holds(t, filepath.Join(partialOf(cfg.Out), "data/mine"), "x")
	os.Remove(filepath.Join(partialOf(cfg.Out), "data/mine"))
	exporting(t, cfg)
	checked(t, cfg.Out)
}

// A folder that another program makes at the final place during the export stays.
func TestWhatAppearsMeanwhileStays(t *testing.T) {
	cfg := plainRun("one", 1).config(t)
	cfg.Progress = func(Progress) { rttest.WriteFile(t, cfg.Out, "mine", "x") }
	if _, err := Export(t.Context(), cfg); !errors.As(err, new(InputError)) ||
		!rttest.Says(err, "was made by another program meanwhile") {
		t.Errorf("%v", err)
	}
	holds(t, filepath.Join(cfg.Out, "mine"), "x")
	os.RemoveAll(cfg.Out)
	cfg.Progress = nil
	rttest.Want(t, exporting(t, cfg).Resumed, 1, "exporting(t, cfg).Resumed (the episode that was whole)")
}

// --append completes an episode whose run continued, removes a discarded episode, and updates an episode whose outcome
// an operator changed. All other episodes stay.
func TestAppendFollowsTheRecord(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "a.mcap")
	run := func(seconds float64, marks ...record.Episode) {
		s := &scene{seconds: seconds, cameras: oneCamera, task: "x", episodes: marks}
		s.write(t, "", file)
	}
	run(3)
	other := &scene{instance: "two", seconds: 2, cameras: oneCamera, task: "y", phase: 50}
	second := other.write(t, dir, "b.mcap")
	cfg := testConfig(t, file, second)
	r := exporting(t, cfg)
	same(t, "episodes and frames", []int{r.Episodes, r.Frames}, []int{2, 150})
	cfg.Append = true

	// The run continues: the dataset has 90 of 270 frames.
	run(9)
	r = exporting(t, cfg)
	same(t, "episodes, frames, added, there, replaced, removed",
		[]int{r.Episodes, r.Frames, r.Added, r.There, r.Replaced, r.Removed}, []int{2, 330, 1, 1, 1, 0})
	checked(t, cfg.Out)
	d := read(t, cfg.Out)
	same(t, "states", d.firsts(stateName), append(counted(0, 60, 1), counted(0, 270, 1)...))
	same(t, "tasks", d.at(taskIndex, 0, 60), []float64{0, 1})
	if r = exporting(t, cfg); r.Added != 0 || r.Replaced != 0 || r.There != 2 {
		t.Errorf("again: %+v", r)
	}

	// The run now has marked episodes.
	three := []record.Episode{begin(1, 0.5, "x"), end(1, 2, record.Success), begin(2, 3, "x"),
		end(2, 5, record.Success), begin(3, 6, "z")}
	run(9, three...)
	r = exporting(t, cfg)
	same(t, "episodes, frames, replaced", []int{r.Episodes, r.Frames, r.Replaced}, []int{4, 60 + 45 + 60 + 90, 1})
	checked(t, cfg.Out)

	// The operator discards episode 1 and turns episode 2 into a failure; episode 3 continues.
	three = append(three, end(1, 9, record.Discard), end(2, 9.1, record.Failure), end(3, 10, record.Success))
	run(12, three...)
	r = exporting(t, cfg)
	same(t, "episodes, frames, replaced, removed", []int{r.Episodes, r.Frames, r.Replaced, r.Removed},
		[]int{3, 60 + 60 + 120, 2, 1})
	checked(t, cfg.Out)
	d = read(t, cfg.Out)
	same(t, "outcomes", d.at(outcomeName, 0, 60, 120),
		[]float64{-1, 0, 1})
	whole := cfg
	whole.Append, whole.Out = false, whole.Out+"-whole"
	whole.Records = []string{second, file}
	exporting(t, whole)
	sameFiles(t, cfg.Out, whole.Out)

	// With --only success, episode 2 leaves the dataset when the operator turns it into a failure.
	only := cfg
	only.Append = false
	only.Out = only.Out + "-only"
	only.Only = []string{record.Success}
	three = append(three, end(2, 10.5, record.Success))
	run(12, three...)
	exporting(t, only)
	three = append(three, end(2, 10.6, record.Failure))
	run(12, three...)
	only.Append = true
	if r := exporting(t, only); r.Episodes != 1 || r.Replaced != 1 {
		t.Errorf("%+v, want the third alone", r)
	}
	checked(t, only.Out)
}

// An interrupted export starts anew if its run has continued since.
func TestAnInterruptedExportFollowsTheRecord(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.mcap")
	plainRun("one", 3).write(t, "", file)
	cfg := testConfig(t, file)
	cfg.Progress = func(Progress) { rttest.WriteFile(t, cfg.Out, "mine", "x") }
	if _, err := Export(t.Context(), cfg); err == nil {
		t.Fatal("the export was not interrupted")
	}
	os.RemoveAll(cfg.Out)
	cfg.Progress = nil
	plainRun("one", 5).write(t, "", file)
	if r := exporting(t, cfg); r.Frames != 150 || r.Resumed != 0 {
		t.Errorf("%+v, want all frames", r)
	}
}

// The report counts a run that is still being recorded.
func TestARunInProgressIsCounted(t *testing.T) {
	file := plainRun("one", 2).write(t, t.TempDir(), "a.mcap")
	rttest.Do(t, os.Truncate(file, int64(len(load(t, file))-9)))
	f := rttest.Must(os.Open(file))(t)
	rttest.Do(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	cfg := testConfig(t, file)
	if r := exporting(t, cfg); r.Recording != 1 {
		t.Errorf("%+v, want one run that goes on", r)
	}
	f.Close()
	cfg.Append = true
	if r := exporting(t, cfg); r.Recording != 0 {
		t.Errorf("%+v, want none that goes on", r)
	}
}

// No name in a foreign record or dataset leads out of the folder.
func TestNamesLeadNowhere(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"x/../../../victim", "/etc/victim", "..", "a\x00b", strings.Repeat("n", 300),
		"a\x1b[2Jb"} {
		file := filepath.Join(dir, "hostile.mcap")
		f := recordtest.Create(t, file, map[string]string{"instance": "i", "robot": "so101", "joints": "a.pos",
			"fps": "30", "task": "x", "cameras": name})
		for i := range 30 {
			at := testStart + rt.Instant(i)*33_333_333
			f.Image(&record.Image{
				At:     at,
				Data:   record.Bytes{A: testPicture(t, i, 64, 48)},
				Format: "jpeg",
				Camera: name,
			})
			m := &record.Tick{At: at}
			m.State.Set([]float32{1})
			m.Goal, m.Action = m.State, m.State
			f.Tick(m)
		}
		f.Close()
		cfg := testConfig(t, file)
		refused(t, cfg, "camera")
		if _, err := Export(t.Context(), cfg); strings.ContainsAny(err.Error(), "\x1b\x00") {
			t.Errorf("%q reaches the terminal", err)
		}
		// Now the name is that of a camera's feature in an existing dataset.
		cfg = testConfig(t, plainRun("one", 1).write(t, dir, "a.mcap"))
		exporting(t, cfg)
		journal := filepath.Join(cfg.Out, journalPath)
		data := load(t, journal)
		key, _ := json.Marshal(imagePrefix + name)
		data = bytes.Replace(data, []byte(`"features":{`),
			[]byte(`"features":{`+string(key)+`:{"dtype":"video","shape":[48,64,3]},`), 1)
		rttest.WriteFile(t, "", journal, data)
		cfg.Append = true
		refused(t, cfg)
	}
	rttest.Fails(t, rttest.Err((&folder{dir: dir}).makeFor("../x")))
}

// Only users who may read the records may read the dataset.
func TestModesAreTheRecords(t *testing.T) {
	needFFmpeg(t)
	for _, c := range []struct {
		record, file, sub fs.FileMode
		umask             int
	}{
		{0o640, 0o640, 0o750, 0o022},
		{0o644, 0o644, 0o755, 0o022},
		{0o600, 0o600, 0o700, 0o022},
		{0o666, 0o600, 0o700, 0o077},
		{0o660, 0o640, 0o750, 0o027},
		{0o440, 0o640, 0o750, 0o000},
	} {
		cfg := plainRun("one", 1, "top").config(t)
		rttest.Do(t, os.Chmod(cfg.Records[0], c.record))
		old := unix.Umask(c.umask)
		_, err := Export(t.Context(), cfg)
		unix.Umask(old)
		rttest.Do(t, err)
		n := 0
		filepath.WalkDir(cfg.Out, func(path string, d fs.DirEntry, _ error) error {
			info := rttest.Must(d.Info())(t)
			want := c.file
			if d.IsDir() {
				want = c.sub
			}
			if n++; info.Mode().Perm() != want {
				t.Errorf("record %o, umask %o: %s is %o, want %o", c.record, c.umask, path, info.Mode().Perm(), want)
			}
			return nil
		})
		if n < 10 {
			t.Errorf("%d files", n)
		}
	}
}

// Tasks are complete and valid UTF-8: pandas reads no other encoding.
func TestTasksAreWhole(t *testing.T) {
	long := strings.Repeat("hebe den Würfel auf 把方块 ", 80)[:2000]
	s := &scene{seconds: 4, task: long}
	s.episodes = []record.Episode{begin(1, 0, long), end(1, 1.5, record.Success), begin(2, 2, "kurz"),
		end(2, 3.5, record.Success)}
	cfg := s.config(t)
	exporting(t, cfg)
	d, err := Describe(cfg.Out)
	if err != nil || len(d.Tasks) != 2 || d.Tasks[0].Task != long || d.Tasks[1].Task != "kurz" {
		t.Errorf("%+v, %v", d, err)
	}
	for _, task := range []string{"a\xffb", "a\x1bb", "a\nb", strings.Repeat("x", record.MaxTask+1)} {
		cfg.Out, cfg.Task = cfg.Out+"2", task
		refused(t, cfg, "task")
	}
	// An older edge-rt kept 240 bytes of a task. The run's own task completes the cut task if it
	// fits; otherwise the report counts the episode.
	cut := strings.Repeat("x", 239) + "ü"
	for run, want := range map[string]int{cut + " and more": 0, "another": 1} {
		old := &scene{seconds: 2, task: run}
		old.episodes = []record.Episode{begin(1, 0, cut[:240]), end(1, 1.5, record.Success)}
		cfg := old.config(t)
		r := exporting(t, cfg)
		d, err := Describe(cfg.Out)
		task := map[int]string{0: run, 1: cut[:239]}[want]
		if err != nil || len(d.Tasks) != 1 || d.Tasks[0].Task != task ||
			r.Left["episodes whose task the record has cut at 240 bytes (--task gives the whole)"] != want {
			t.Errorf("%q: %+v, %v, %+v", run, d.Tasks, err, r.Left)
		}
	}
}

// No frame shows a picture that does not decode, wherever in the record the picture is. The report counts such
// pictures, with their cameras and times.
func TestTornPictures(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	for what, c := range map[string]struct {
		torn  func(camera string, n int) bool
		count map[string]int
	}{
		"one": {func(camera string, n int) bool {
			return camera == "top" && n == 41
		}, map[string]int{"top": 1}},
		"the first": {func(camera string, n int) bool {
			return camera == "wrist" && n == 0
		}, map[string]int{"wrist": 1}},
		"three in a row": {func(camera string, n int) bool {
			return camera == "top" && n >= 30 && n < 33
		}, map[string]int{"top": 3}},
		"every second one": {func(camera string, n int) bool {
			return camera == "wrist" && n%2 == 1
		}, map[string]int{"wrist": 30}},
	} {
		s := &scene{seconds: 2, cameras: []string{"top", "wrist"}, task: "x", first: 3, torn: c.torn}
		cfg := s.config(t)
		r := exporting(t, cfg)
		if r.Episodes != 1 || r.Frames != 57 {
			t.Errorf("%s: %+v", what, r)
		}
		got := map[string]int{}
		for _, torn := range r.Torn {
			got[torn.Camera] = torn.Count
			if len(torn.Times) != min(torn.Count, maxTorn) || torn.When() == "" ||
				torn.Times[0].UnixNano() < recordtest.Wall {
				t.Errorf("%s: the times are %v", what, torn.Times)
			}
		}
		same(t, what+": torn pictures", got, c.count)
		d := read(t, cfg.Out)
		for i, age := range d.firsts(pictureAgeName) {
			tick := 3 + i
			oldest := 0.0
			for _, name := range s.cameras {
				n, _ := s.shown(tick)
				for n > 0 && c.torn(name, n) {
					n--
				}
				oldest = max(oldest, float64(s.tick(tick).At-(s.at(float64(n)/30)+s.shutter))/1e6)
			}
			if age-oldest > 1e-3 || oldest-age > 1e-3 {
				t.Errorf("%s: frame %d has a picture %v ms old, want %v", what, i, age, oldest)
				break
			}
		}
		checked(t, cfg.Out)
	}
	// If torn pictures leave frames without a picture, the export leaves out the episode of these frames and no other.
	// It leaves out only the frames before the first whole picture of a camera.
	s := &scene{seconds: 4, cameras: oneCamera, torn: func(_ string, n int) bool {
		return n < 12 || n > 65 && n < 85
	}}
	s.episodes = []record.Episode{begin(1, 0, "x"), end(1, 1.9, record.Success), begin(2, 2, "x"),
		end(2, 3.9, record.Success)}
	cfg := s.config(t)
	r := exporting(t, cfg)
	if r.Episodes != 1 || r.Left["episodes with frames that have no picture of the last 250ms, as from camera top "+
		"(--missing-pictures cut leaves out only the frames)"] != 1 ||
		r.Left["frames before the first picture of a camera"] != 12 || r.Torn[0].Count != 31 {
		t.Errorf("%+v", r)
	}
	cfg.Out, cfg.Missing = cfg.Out+"-cut", cutEpisode
	rttest.Want(t, exporting(t, cfg).Episodes, 2, "exporting(t, cfg).Episodes")
	cfg.Append = true
	if r := exporting(t, cfg); r.Episodes != 2 || r.Added != 0 || r.Replaced != 0 {
		t.Errorf("again: %+v", r)
	}
	cfg = (&scene{cameras: oneCamera, task: "x", torn: func(string, int) bool { return true }}).config(t)
	refused(t, cfg, "no picture of camera top that is whole")
}

// The exporter does not treat a folder's name as a pattern or as a protocol.
func TestFolderNamesAreNoPatterns(t *testing.T) {
	needFFmpeg(t)
	for _, name := range []string{"-a[b*", "pick:cubes %d"} {
		cfg := plainRun("one", 1, "top").config(t)
		cfg.Out = filepath.Join(t.TempDir(), name)
		exporting(t, cfg)
		checked(t, cfg.Out)
	}
}
