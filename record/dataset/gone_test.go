package dataset

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Deleting files of a record after an export, as a recorder deletes its oldest, removes no frame
// from the dataset and adds no frame twice.
func TestAppendAfterARecordIsDeleted(t *testing.T) {
	for what, c := range map[string]struct {
		before [][2]int // ticks of the files that are exported first
		gone   int      // number of these files to delete
		more   [][2]int // ticks of the files that follow
		frames int
		left   bool
	}{
		"the beginning":                      {[][2]int{{0, 60}, {60, 120}}, 1, nil, 120, true},
		"the beginning, and the run goes on": {[][2]int{{0, 60}, {60, 120}}, 1, [][2]int{{120, 300}}, 120, true},
		"all, and the run goes on":           {[][2]int{{0, 60}}, 1, [][2]int{{60, 160}}, 160, false},
		"the middle, and the run goes on": {[][2]int{{60, 120}, {0, 60}, {120, 180}}, 1, [][2]int{{180, 400}},
			180, true},
		"nothing, and the run goes on":          {[][2]int{{0, 60}}, 0, [][2]int{{60, 160}}, 160, false},
		"the beginning, the rest is once there": {[][2]int{{0, 60}, {60, 120}}, 1, [][2]int{{60, 120}}, 120, true},
	} {
		dir := t.TempDir()
		var files []string
		add := func(spans [][2]int) {
			for _, span := range spans {
				s := &scene{from: span[0], seconds: float64(span[1]) / 30, task: "x"}
				files = append(files, s.write(t, dir, string(rune('a'+len(files)))+".mcap"))
			}
		}
		add(c.before)
		cfg := testConfig(t, files...)
		exporting(t, cfg)
		for _, file := range files[:c.gone] {
			rttest.Do(t, os.Remove(file))
		}
		add(c.more)
		cfg.Records, cfg.Append = files[c.gone:], true
		r := exporting(t, cfg)
		if r.Frames != c.frames || (len(r.Left) > 0) != c.left {
			t.Errorf("%s: %d frames, %v; want %d, and to say what is left out: %v", what, r.Frames, r.Left, c.frames,
				c.left)
		}
		seen := map[float64]bool{}
		set := read(t, cfg.Out)
		for _, x := range set.firsts(stateName) { // the state is the number of the tick
			if seen[x] {
				t.Errorf("%s: tick %v is there twice", what, x)
				break
			}
			seen[x] = true
		}
		checked(t, cfg.Out)
	}
}

// No frame shows a picture whose size differs from the camera's other pictures. Wherever such a
// picture is, the export of the folder succeeds. The most frequent size is the camera's.
func TestAPictureOfAnotherSize(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	odd := func(at ...int) func(string, int) (int, int) {
		return func(camera string, i int) (int, int) {
			if camera == "wrist" && i >= at[0] && i <= at[len(at)-1] {
				return 128, 96
			}
			return 64, 48
		}
	}
	for what, c := range map[string]struct {
		size   func(string, int) (int, int)
		frames int
		count  int
	}{
		"the first":            {odd(0), 59, 1}, // the first frame has no earlier picture
		"one in the middle":    {odd(30), 60, 1},
		"the last":             {odd(59), 60, 1},
		"from the middle on":   {odd(40, 59), 47, 20}, // 40 frames, and 7 within 250 ms after the last picture
		"all until the middle": {odd(0, 12), 47, 13},
	} {
		cfg := (&scene{cameras: []string{"top", "wrist"}, task: "x", size: c.size}).config(t)
		cfg.Missing = cutEpisode
		r := exporting(t, cfg)
		if r.Frames != c.frames || len(r.Torn) != 1 || r.Torn[0].Camera != "wrist" || r.Torn[0].Count != c.count ||
			r.Torn[0].OtherSize != c.count {
			t.Errorf("%s: %d frames, %+v; want %d and %d pictures of camera wrist", what, r.Frames, r.Torn, c.frames,
				c.count)
		}
		checked(t, cfg.Out)
		if shape := read(t, cfg.Out).info.Features[imagePrefix+"wrist"].Shape; shape[0] != 48 || shape[1] != 64 {
			t.Errorf("%s: the video has the shape %v, want that of most pictures", what, shape)
		}
	}
	cfg := (&scene{cameras: []string{"wrist"}, task: "x", size: odd(40, 59)}).config(t)
	refused(t, cfg, "no episode is left", "20 pictures of camera wrist have another size")
}

// At a path that the export would write, the folder of an interrupted export may have a link. The
// export refuses this link, and leaves the link's target as it is.
func TestAPartialWithLinks(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	for _, rel := range []string{
		marker, "data", "data/chunk-000", "meta", "meta/episodes", "meta/episodes/chunk-000", journalPath,
		"videos", "videos/" + imagePrefix + "top", "videos/" + imagePrefix + "top/chunk-000",
	} {
		dir := t.TempDir()
		cfg := testConfig(t, plainRun("one", 1, "top").write(t, dir, "a.mcap"),
			plainRun("two", 1, "top").write(t, dir, "b.mcap"))
		interrupted(t, cfg)
		partial, there := partialOf(cfg.Out), filepath.Join(dir, "there")
		journal := load(t, filepath.Join(partial, journalPath))
		for _, mine := range []string{"new", "info.json", "file-001.parquet", "chunk-000/file-001.parquet",
			"file-001.mp4"} {
			rttest.WriteFile(t, there, mine, "mine")
		}
		to := there
		if rel == journalPath || rel == "meta" {
			rttest.WriteFile(t, there, filepath.Base(journalPath), journal)
		}
		if rel == journalPath {
			to = filepath.Join(there, filepath.Base(journalPath))
		}
		os.RemoveAll(filepath.Join(partial, rel))
		rttest.Do(t, errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(partial, rel)), 0o777),
			os.Symlink(to, filepath.Join(partial, rel))))
		before := tree(t, there)
		refused(t, cfg, "is no part of what an interrupted export has left", partial)
		rttest.Want(t, tree(t, there), before, "%s: the link led to\n%s, and there is", rel, before)
	}
}

// interrupted stops an export after its first episode.
func interrupted(t *testing.T, cfg Config) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	cfg.Progress = func(p Progress) {
		if p.Episodes == 1 {
			stop()
		}
	}
	rttest.Fails(t, rttest.Err(Export(ctx, cfg)))
}

// The export opens no pipe or device: opening a pipe would block, and no signal would end the wait.
func TestNoRecordButAFile(t *testing.T) {
	cfg := testConfig(t, os.DevNull)
	rttest.Fails(t, rttest.Err(Export(t.Context(), cfg)), "neither a record nor a folder")
}

// A record that a power cut has left empty, that has just begun, or whose run ended before its first action, does not
// prevent the export of the other records in its folder. If the command line names such a record, the export refuses
// it.
func TestARecordWithoutATick(t *testing.T) {
	dir := t.TempDir()
	good := plainRun("one", 1).write(t, dir, "a.mcap")
	whole := load(t, good)
	cfg := testConfig(t, dir)
	blind := &scene{instance: "two", cameras: oneCamera, blind: [2]float64{0, 9}, first: 999, task: "x"}
	ended := load(t, blind.write(t, t.TempDir(), "z.mcap"))
	for i, bytes := range [][]byte{ended, nil, whole[:5], whole[:8], whole[:20], whole[:60], whole[:len(whole)/3]} {
		size := len(bytes)
		rttest.WriteFile(t, dir, "z.mcap", bytes)
		cfg.Out = filepath.Join(t.TempDir(), "set")
		r, err := Export(t.Context(), cfg)
		if err != nil || r.Episodes != 1 || r.Left["records without an action"] != 1 {
			t.Errorf("file %d, of %d bytes: %+v, %v", i, size, r, err)
		}
		if size > 60 { // this file has its metadata, and counts as a run without an episode
			continue
		}
		named := cfg
		named.Out, named.Records = filepath.Join(t.TempDir(), "set"), []string{good, filepath.Join(dir, "z.mcap")}
		refused(t, named, "z.mcap")
	}
	rttest.Do(t, os.Remove(good))
	cfg.Out = filepath.Join(t.TempDir(), "set")
	refused(t, cfg, "1 records, all without an action")
}

// The export takes the readable part of a record with a damaged chunk. The summary reports the
// damage, and does not count this record among the records without an end.
func TestADamagedRecordIsNamed(t *testing.T) {
	needFFmpeg(t)
	s := &scene{seconds: 4, task: "x", cameras: oneCamera, w: 640, h: 480}
	path := s.write(t, t.TempDir(), "a.mcap")
	data := load(t, path)
	data[len(data)*7/10] ^= 0xff
	rttest.WriteFile(t, "", path, data)
	r := exporting(t, testConfig(t, path))
	if r.Frames == 0 || r.Frames >= 120 || r.Endless != 0 ||
		r.Left["records that are damaged before their end: what follows the damage is left out"] != 1 {
		t.Errorf("%+v, want some of 120 frames, and to say that more follow", r)
	}
}
