package record

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// noise returns bytes that cannot be compressed.
func noise() []byte {
	b := make([]byte, 300_000)
	rand.Read(b)
	return b
}

// shoot records a picture that does not compress, and writes it.
func shoot(r *Recorder) {
	now := r.cfg.Clock.Now()
	r.Image(0, now, Bytes{A: noise()})
	write(r, now, false)
}

// shootFile calls shoot and ends the file.
func shootFile(t *testing.T, r *Recorder) {
	t.Helper()
	shoot(r)
	rttest.Do(t, r.writer.close(r.cfg.Clock.Now()))
}

// Two robots record into one folder: neither deletes the records of the other's run with episodes
// while that run continues.
func TestRobotsOfOneFolderSpareEpisodes(t *testing.T) {
	const size = 12 << 20
	dir := t.TempDir()
	var failed error
	kept, _ := recorderAt(t, Config{Mode: All, Dir: dir, Size: size, Cameras: []string{"top"}})
	other, clock := recorderAt(t, Config{
		Mode:    All,
		Dir:     dir,
		Size:    size,
		Cameras: []string{"top"},
		Report: func(m Report) {
			if m.Err != nil {
				failed = m.Err
			}
		},
	})
	kept.cfg.Clock = clock
	other.cfg.ID = "b"
	shootOften := func(r *Recorder, n int) {
		for range n {
			clock.Advance(100 * time.Millisecond)
			shoot(r)
		}
	}
	kept.Keep()
	shootOften(kept, 20)
	first := filepath.Join(dir, kept.writer.first)
	rttest.Do(t, kept.writer.close(clock.Now()))
	shootOften(other, 150)
	if _, err := os.Stat(first); err != nil {
		t.Errorf("the other robot deleted an episode: %v", err)
	}
	if other.Stats().Deleted == 0 || failed != nil {
		t.Errorf("%d files of its own deleted, %v, want some and no error", other.Stats().Deleted, failed)
	}
	endRun(kept)
	shootOften(other, 150)
	if _, err := os.Stat(first); err == nil {
		t.Error("the run has ended, and its files stay for ever")
	}
}

// All robots that record into a folder share its size. Each robot lists the folder again before it has written a whole
// file.
func TestRobotsOfOneFolderShareItsSize(t *testing.T) {
	const size = 64 << 20
	dir := t.TempDir()
	var robots []*Recorder
	for _, id := range []string{"a", "b", "c"} {
		r, _ := recorderAt(t, Config{Mode: All, Dir: dir, Size: size, Cameras: []string{"top"}})
		r.cfg.ID = id
		if robots = append(robots, r); id != "a" {
			r.cfg.Clock = robots[0].cfg.Clock
		}
	}
	most := int64(0)
	for range 150 {
		for _, r := range robots {
			r.cfg.Clock.SleepUntil(r.cfg.Clock.Now().Add(30 * time.Millisecond))
			shoot(r)
		}
		_, total, err := robots[0].writer.folder.list()
		rttest.Do(t, err)
		most = max(most, total)
	}
	if limit := int64(size + 3*(size/listShare+chunkRoom)); most < size*3/4 || most > limit {
		t.Errorf("%d bytes in the folder, want nearly %d and at most %d", most, size, limit)
	}
}

// Protected files stay when they fill the folder, and the error reports the lack of room.
func TestNoRoomBesideEpisodes(t *testing.T) {
	_, whole := writeChunks(t, 1)
	dir := t.TempDir()
	name := nameAt("a", time.Unix(5, 0))
	for _, n := range []string{nameAt("a", time.Unix(4, 0)), name, nameAt("a", time.Unix(6, 0)),
		nameAt("b", time.Unix(9, 0))} {
		put(t, dir, n, whole)
	}
	d := folder{dir, int64(len(whole)), diskOf}
	f := rttest.Must(d.reserve(name))(t)
	if _, _, deleted, err := d.makeRoom(1, none); len(deleted) != 2 || !errors.Is(err, errReserved) {
		t.Errorf("deleted %v, %v, want the file before the reservation and the other robot's, and %v", deleted, err,
			errReserved)
	}
	release(f)
	if _, _, deleted, err := d.makeRoom(1, none); len(deleted) != 2 || err != nil {
		t.Errorf("released: deleted %v, %v, want both that were reserved", deleted, err)
	}
}

// When two robots begin an episode at the same time, both get a reservation, however often other
// recorders list the reservations.
func TestReservationsAtOnce(t *testing.T) {
	d := folder{dir: t.TempDir()}
	var stop atomic.Bool
	var looks sync.WaitGroup
	looks.Go(func() {
		for !stop.Load() {
			d.reservations()
		}
	})
	for i := range 300 {
		f, err := d.reserve(nameAt("a", time.Unix(int64(i), 0)))
		if err != nil || !exists(f) {
			t.Fatalf("reservation %d: %v", i, err)
		}
		release(f)
	}
	stop.Store(true)
	looks.Wait()
}

// The recorder records into a folder even if it cannot reserve its files there, and reports the
// failure.
func TestRecordsWithoutAReservation(t *testing.T) {
	var said []Report
	r, _ := recorderAt(t, Config{Mode: All, Cameras: []string{"top"}, Report: func(m Report) {
		said = append(said, m)
	}})
	r.Keep()
	shoot(r) // begins the first file
	dir := r.writer.folder.dir
	r.writer.folder.dir = filepath.Join(dir, "away")
	r.writer.reserveAt = 0
	release(r.writer.reserved)
	r.writer.reserved = nil
	said = nil
	for range 3 {
		shoot(r)
	}
	if len(said) != 1 || said[0].Why != Unreserved || said[0].Err == nil || r.Stats().LostPictures != 0 {
		t.Errorf("reports %v, %d pictures lost; want one report and no lost picture", said, r.Stats().LostPictures)
	}
	r.writer.folder.dir = dir
	r.cfg.Clock.SleepUntil(r.cfg.Clock.Now().Add(retryEvery))
	if shoot(r); r.writer.reserved == nil {
		t.Error("no second try")
	}
	endRun(r)
}

// A reservation is valid only while its process runs, and no recorder removes a reservation that another process is
// making.
func TestReservationsOfTheDead(t *testing.T) {
	d := folder{dir: filepath.Join(t.TempDir(), "a[b]*")}
	dead := rttest.WriteFile(t, d.dir, ".reserved-1", nameAt("a", time.Unix(5, 0))+"\n")
	alive := rttest.Must(d.reserve(nameAt("b", time.Unix(6, 0))))(t)
	defer release(alive)
	if got := d.reservations(); len(got) != 1 || got[0] != nameAt("b", time.Unix(6, 0)) {
		t.Errorf("reservations %v, want that of b", got)
	}
	if _, err := os.Stat(dead); err == nil {
		t.Error("the reservation of a dead process stays")
	}
	if !exists(alive) {
		t.Error("the reservation of a living process was removed")
	}
	if err := os.Remove(alive.Name()); err != nil || exists(alive) {
		t.Errorf("a removed file exists: %v", err)
	}
}

// After a folder was emptied, the next file brings a new reservation.
func TestReservationOfAnEmptiedFolder(t *testing.T) {
	r, clock := recorderAt(t, Config{Mode: All, Cameras: []string{"top"}})
	r.Keep()
	shootFile(t, r)
	rttest.Do(t, os.RemoveAll(r.cfg.Dir))
	clock.Advance(time.Second)
	shoot(r)
	rttest.Want(t, len(r.writer.folder.reservations()), 1, "reservations")
	endRun(r)
	if got, err := filepath.Glob(filepath.Join(r.cfg.Dir, reservationName+"*")); err != nil || len(got) != 0 {
		t.Errorf("%v remain after the run, %v", got, err)
	}
}

// After the time of day was set back, the run still protects its own files.
func TestReservationOfAClockThatIsSetBack(t *testing.T) {
	r, clock := recorderAt(t, Config{Mode: All, Cameras: []string{"top"}})
	r.Keep()
	shootFile(t, r)
	now := r.cfg.Now
	r.cfg.Now = func() time.Time { return now().Add(-time.Hour) }
	clock.Advance(time.Second)
	shoot(r)
	shoot(r)
	entries, _, err := r.writer.folder.list()
	firsts := r.writer.folder.reservations()
	if err != nil || len(entries) != 2 || len(firsts) != 1 || r.writer.first != entries[0].name {
		t.Fatalf("files %v, reservations %v, %v", entries, firsts, err)
	}
	for _, e := range entries {
		if !r.writer.own(e.name) || !ofRun(firsts[0], e.name) {
			t.Errorf("%s is no file of the run with the first file %s", e.name, r.writer.first)
		}
	}
	endRun(r)
}

func TestFilesOfARun(t *testing.T) {
	first := nameAt("a-b", time.Unix(5, 0))
	for name, want := range map[string]bool{
		first:                            true,
		nameAt("a-b", time.Unix(6, 0)):   true,
		nameAt("a-b", time.Unix(4, 0)):   false,
		nameAt("a", time.Unix(6, 0)):     false,
		nameAt("a-b-c", time.Unix(6, 0)): false,
		"notes.mcap":                     false,
	} {
		if ofRun(first, name) != want {
			t.Errorf("ofRun(%s, %s) = %v", first, name, !want)
		}
	}
}
