package record

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

var testSession = &Session{
	ID:       "s-1",
	Epoch:    3,
	Service:  "@lerobot/a/b/c",
	ServerID: "box",
	Model:    "demo/x",
	Revision: "ma\"in\n",
	SHA256:   strings.Repeat("ab", 32),
}

func fillTick(m *Tick, at rt.Instant, step int64) {
	*m = Tick{
		At:           at,
		Lateness:     123_456,
		Skipped:      2,
		Step:         step,
		Source:       at - 50_000_000,
		Seq:          math.MaxUint64 >> 1,
		Epoch:        3,
		Episode:      2,
		Index:        7,
		Delay:        4,
		Dropped:      5,
		RangeClipped: 1,
		StepClipped:  1 << 31,
		Read:         1_500_000,
		Act:          20_000,
		Merge:        3000,
		Ask:          4000,
		RunState:     2,
		Queue:        31,
		TooOld:       true,
		BusSilent:    true,
		Paused:       true,
		NoPicture:    true,
		NoSession:    true,
		Stale:        2,
		Frozen:       4,
		Held:         8,
		OverrunOwn:   17_000_000,
		OverrunHost:  1,
		Suspended:    -1,
		Intervention: true,
		Stolen:       10_000_000,
		Retried:      3,
		Lost:         2,
		Spoilt:       1,
	}
	m.State.Set([]float32{1, -2.5})
	m.Goal.Set([]float32{1e-7, 1e9})
	m.Action.Set([]float32{float32(math.Inf(1)), 3})
}

// recorderAt returns a recorder with its own folder, on a fake clock.
func recorderAt(t *testing.T, cfg Config) (*Recorder, *rttest.Clock) {
	t.Helper()
	clock := rttest.NewClock(1_000_000_000)
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Size == 0 {
		cfg.Size = 1 << 30
	}
	cfg.Clock, cfg.ID = clock, "arm"
	cfg.Now = func() time.Time {
		return time.Date(2026, 11, 24, 14, 3, 20, 0, time.UTC).Add(time.Duration(clock.Now()))
	}
	r := rttest.Must(New(cfg))(t)
	return r, clock
}

// send puts a message into a lane.
func send[T any](l *Lane[T], m T) {
	*l.Put() = m
	l.Commit()
}

// tick puts one tick into the lane of ticks, and lets the recorder collect it.
func tick(r *Recorder, at rt.Instant, step int64) {
	fillTick(r.Ticks.Put(), at, step)
	r.Ticks.Commit()
	r.Collect()
}

// starve does the same as tick for a tick on which an action was due and no action ran.
func starve(r *Recorder, at rt.Instant, step int64) {
	m := r.Ticks.Put()
	fillTick(m, at, step)
	m.Starved = true
	r.Ticks.Commit()
	r.Collect()
}

// pass lets a tenth of a second pass, with a tick, a picture if picture is not nil, and a step of the
// writing thread.
func pass(r *Recorder, step int64, picture []byte) {
	now := r.cfg.Clock.Now().Add(100 * time.Millisecond)
	r.cfg.Clock.SleepUntil(now)
	tick(r, now, step)
	if picture != nil {
		r.Image(0, now, Bytes{A: picture})
	}
	write(r, now, false)
}

// put writes a file.
func put(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	rttest.WriteFile(t, dir, name, data)
}

// putOld writes n files of a robot, from the year 1970 on.
func putOld(t *testing.T, dir, id string, n int, data []byte) {
	t.Helper()
	for i := range n {
		put(t, dir, nameAt(id, time.Unix(int64(i), 0)), data)
	}
}

// load returns the content of a file.
func load(t *testing.T, path string) []byte {
	t.Helper()
	return rttest.Must(os.ReadFile(path))(t)
}

// write runs one step of the writing thread, as Write does.
func write(r *Recorder, now rt.Instant, ended bool) {
	w := &r.writer
	if err := w.step(now, ended); err != nil {
		w.fail(now, err, ended)
	}
	if ended {
		w.end()
	}
}

// endRun runs the last step of the writing thread.
func endRun(r *Recorder) { write(r, r.cfg.Clock.Now(), true) }

// contents reads all files of a recorder's folder.
func contents(t *testing.T, dir string) (steps []int64, events []string, pictures int, infos []Info) {
	t.Helper()
	infos = rttest.Must(ReadFolder(dir, Visitor{
		Tick:  func(m *Tick) error { steps = append(steps, m.Step); return nil },
		Event: func(e *Event) error { events = append(events, e.Kind+": "+e.Text.String()); return nil },
		Image: func(m *Image) error {
			if !bytes.HasPrefix(m.Data.A, []byte("picture ")) {
				return fmt.Errorf("a picture of %q", m.Data.A)
			}
			pictures++
			return nil
		},
	}))(t)
	return steps, events, pictures, infos
}

// Every field of every message reads back as it was written.
func TestEveryFieldIsReadAsItWasWritten(t *testing.T) {
	r, clock := recorderAt(t, Config{Mode: All, Cameras: []string{"top", "wrist"}})
	r.SetRun(map[string]string{"joints": "a,b"})
	now := clock.Now()
	var want Tick
	fillTick(&want, now, 41)
	want.Starved = true
	send(r.Ticks, want)
	request := Request{
		At:      now,
		Seq:     9,
		Epoch:   3,
		Episode: 2,
		Start:   true,
		Step:    -1,
		Delay:   4,
		Rows:    6,
		Runway:  500,
		Session: testSession,
	}
	send(r.Requests, request)
	sent := Sent{At: now + 1, Seq: 9, Epoch: 3, Observed: now - 5, Bytes: 1234, Outcome: "sent"}
	send(r.Sent, sent)
	chunk := Chunk{
		At:         now + 2,
		Seq:        9,
		Epoch:      3,
		Episode:    2,
		Outcome:    "joined",
		Step:       42,
		Rows:       50,
		Dropped:    4,
		RTT:        5,
		QueueWait:  6,
		Inference:  7,
		Superseded: 8,
		Observed:   now - 5,
		Jump:       9,
		Session:    testSession,
	}
	send(r.Merges, chunk)
	foreign := Chunk{At: now + 3, Seq: 10, Outcome: "foreign"}
	send(r.Refused, foreign)
	r.NoteSession(now+4, testSession)
	r.NoteEvent(now+5, "bus", LevelWarning, 5, -1, 2, []byte("motors do not answer"))
	r.Collect()
	r.Image(1, now+6, Bytes{[]byte("picture "), "of ", []byte("three parts")})
	write(r, now, false)
	write(r, now, true)

	seen := map[string]int{}
	is := func(what string, got, want any) error {
		seen[what]++
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s is\n%+v, want\n%+v", what, got, want)
		}
		return nil
	}
	chunks := []Chunk{chunk, foreign}
	infos, err := ReadFolder(r.cfg.Dir, Visitor{
		Tick: func(m *Tick) error { return is("tick", *m, want) },
		Request: func(m *Request) error {
			s := *m.Session
			m.Session = nil
			request.Session = nil
			is("request", *m, request)
			return is("its session", s.ID+s.SHA256, "s-1"+testSession.SHA256)
		},
		Sent: func(m *Sent) error { return is("sent", *m, sent) },
		Chunk: func(m *Chunk) error {
			want := chunks[seen["chunk"]]
			if want.Session != nil {
				is("its server", m.Session.ServerID+m.Session.Model+m.Session.Revision, `boxdemo/xma"in\n`)
			}
			m.Session, want.Session = nil, nil
			return is("chunk", *m, want)
		},
		Session: func(m *Session) error {
			want := *testSession
			want.Revision = `ma"in\n` // the newline is escaped, for a terminal
			return is("session", *m, want)
		},
		Event: func(e *Event) error {
			if e.Kind == "link" {
				return is("session's event", e.Text.String(), "session open")
			}
			text := e.Text.String()
			e.Text = Text{}
			is("text", text, "motors do not answer")
			return is("event", *e, Event{At: now + 5, Kind: "bus", Level: LevelWarning, Code: 5, A: -1, B: 2})
		},
		Image: func(m *Image) error {
			return is("image", fmt.Sprint(m.At, string(m.Data.A), m.Format, m.Camera),
				fmt.Sprint(now+6, "picture of three parts", "jpeg", "wrist"))
		},
	})
	if err != nil || len(infos) != 1 || infos[0].Torn || infos[0].Run["joints"] != "a,b" ||
		infos[0].Run["why"] != "--record all" {
		t.Errorf("%+v, %v", infos, err)
	}
	for what, n := range map[string]int{"tick": 1, "request": 1, "sent": 1, "chunk": 2, "session": 1, "event": 1,
		"image": 1} {
		rttest.Want(t, seen[what], n, "times %s", what)
	}
	if s := r.Stats(); s.Files != 1 || s.Messages != 10 || s.Pictures != 1 || s.Lost != 0 || s.LostPictures != 0 ||
		s.Saves != 0 || s.Bytes == 0 || s.Error != "" {
		t.Errorf("stats %+v", s)
	}
}

// Mode Ring writes nothing until an incident. The file then covers the ten minutes before the incident and five
// seconds after it. Its pictures begin ten seconds before the incident.
func TestRingWritesWhatWasBefore(t *testing.T) {
	r, clock := recorderAt(t, Config{Mode: Ring, Cameras: []string{"top"}})
	step := int64(0)
	run := func(d time.Duration) {
		for end := clock.Now().Add(d); clock.Now() < end; step++ {
			pass(r, step, []byte("picture "))
		}
	}
	run(12 * time.Minute)
	if found, _ := os.ReadDir(r.cfg.Dir); len(found) != 0 {
		t.Fatalf("%v exists before an incident", found)
	}
	starve(r, clock.Now(), step)
	first := step
	step++
	run(30 * time.Second)
	steps, _, pictures, infos := contents(t, r.cfg.Dir)
	if len(infos) != 1 || infos[0].Torn || infos[0].Run["why"] != starved {
		t.Fatalf("files %+v, want one, for a starved tick", infos)
	}
	if before, after := first-steps[0], steps[len(steps)-1]-first; before < 5990 || before > 6001 || after < 49 ||
		after > 55 {
		t.Errorf("%d ticks before and %d after, want ten minutes and five seconds", before, after)
	}
	if !slices.IsSorted(steps) || len(steps) != int(steps[len(steps)-1]-steps[0])+1 {
		t.Errorf("%d ticks between steps %d and %d", len(steps), steps[0], steps[len(steps)-1])
	}
	if pictures < 148 || pictures > 155 {
		t.Errorf("%d pictures, want those of fifteen seconds", pictures)
	}

	// A second incident within the minute must wait. No message is written twice.
	r.Save(&starved, false)
	run(20 * time.Second)
	if _, _, _, infos := contents(t, r.cfg.Dir); len(infos) != 1 {
		t.Fatalf("%d files within a minute, want one", len(infos))
	}
	run(40 * time.Second)
	all, _, _, infos := contents(t, r.cfg.Dir)
	if len(infos) != 2 || len(all) != int(all[len(all)-1]-all[0])+1 {
		t.Errorf("%d files with %d ticks between steps %d and %d, want two without a gap", len(infos), len(all), all[0],
			all[len(all)-1])
	}
	asked := "a person asked"
	r.ChangeRun("model_sha256", "n3w")
	r.Save(&asked, true)
	run(time.Second)
	if _, _, _, infos := contents(t, r.cfg.Dir); len(infos) != 3 || infos[2].Run["why"] != asked ||
		infos[2].Run["model_sha256"] != "n3w" || infos[1].Run["model_sha256"] != "" {
		t.Errorf("%d files, want a third at once, with the model of now", len(infos))
	}
	if s := r.Stats(); s.Saves != 3 || s.Lost != 0 || s.LostPictures != 0 {
		t.Errorf("stats %+v", s)
	}
}

// A robot that starves all the time writes less and less often, and no tick is missing in its
// files. After a time without starvation the next save comes soon again.
func TestRingNeverWritesSteadily(t *testing.T) {
	r, clock := recorderAt(t, Config{Mode: Ring})
	step, open := int64(0), 0
	run := func(d time.Duration, tick func(*Recorder, rt.Instant, int64)) {
		for end := clock.Now().Add(d); clock.Now() < end; step++ {
			clock.Advance(100 * time.Millisecond)
			tick(r, clock.Now(), step)
			write(r, clock.Now(), false)
			if r.writer.file != nil {
				open++
			}
		}
	}
	run(10*time.Minute, starve)
	if s := r.Stats(); s.Saves != 4 {
		t.Errorf("%d saves in the first ten minutes, want those after 0, 1, 2 and 4 minutes", s.Saves)
	}
	run(50*time.Minute, starve)
	if share := float64(open) / float64(step); share > 0.1 || r.Stats().Saves < 9 {
		t.Errorf("a file is open for %.2f of the time in %d saves, want less than a tenth", share, r.Stats().Saves)
	}
	if steps, _, _, _ := contents(t, r.cfg.Dir); len(steps) != int(steps[len(steps)-1]-steps[0])+1 {
		t.Errorf("%d ticks between steps %d and %d, want no gap", len(steps), steps[0], steps[len(steps)-1])
	}
	run(20*time.Minute, tick)
	for range 2 {
		before := r.Stats().Saves
		run(time.Second, starve)
		run(65*time.Second, tick)
		if n := r.Stats().Saves; n != before+1 {
			t.Errorf("%d saves, want one more than %d at once", n, before)
		}
	}
}

// A disk that accepts no data only interrupts the writing. When it accepts data again, the recorder continues in a new
// file, with all messages that are not in the first file.
func TestDiskThatFails(t *testing.T) {
	var said []Report
	r, clock := recorderAt(t, Config{Mode: All, Cameras: []string{"top"},
		Report: func(x Report) { said = append(said, x) }})
	full := errors.New("no space left")
	real := r.writer.create
	broken := false
	r.writer.create = func(id string, at time.Time) (*os.File, error) {
		if broken {
			return nil, &fs.PathError{Op: "open", Path: nameAt(id, at), Err: full}
		}
		return real(id, at)
	}
	step := int64(0)
	run := func(d time.Duration) {
		for end := clock.Now().Add(d); clock.Now() < end; step++ {
			pass(r, step, []byte("picture "))
		}
	}
	run(5 * time.Second)
	broken = true
	r.writer.file.os.Close() // the disk fails under an open file
	run(5 * time.Second)
	if s := r.Stats(); s.Error == "" || len(said) != 2 || !errors.Is(said[1].Err, full) {
		t.Fatalf("stats %+v, said %v, want each error once", s, said)
	}
	reports := len(said)
	broken = false
	run(10 * time.Second)
	last := r.writer.file.os
	rttest.Must(syscall.Dup(int(last.Fd())))(t) // the duplicate stays open, as in a child between fork and exec
	endRun(r)
	if f := rttest.Must(os.Open(last.Name()))(t); Written(f) {
		t.Error("the run has ended, and its record is locked")
	}
	steps, _, pictures, infos := contents(t, r.cfg.Dir)
	if s := r.Stats(); s.Error != "" || s.Lost != 0 || s.Messages != uint64(step) || len(said) != reports+1 ||
		said[reports].Err != nil || len(infos) != 2 || !infos[0].Torn || infos[1].Torn {
		t.Errorf("stats %+v, said %v, files %+v; want no error any more, and two files", s, said, infos)
	}
	for i, got := range steps {
		if got != int64(i) || len(steps) != int(step) || pictures != int(step) {
			t.Fatalf("tick %d of %d is %d, and %d pictures; want all %d once", i, len(steps), got, pictures, step)
		}
	}
}

// A save that the disk breaks off, in a chunk or at its end, is tried again at once, and no message gets into two
// files. At the run's end, the file keeps the messages that the disk has accepted.
func TestASaveThatFails(t *testing.T) {
	for _, breaks := range []int64{75, 108} {
		r, _ := recorderAt(t, Config{Mode: Ring})
		r.Save(&starved, false)
		for step := range int64(200) {
			pass(r, step, nil)
			switch _, _, _, infos := contents(t, r.cfg.Dir); step {
			case 0:
				rttest.Want(t, infos[0].Cause, errBegun, "infos[0].Cause")
			case 60, 195:
				r.Save(&starved, true)
			case breaks, 199:
				r.writer.buffer.Reset(io.MultiWriter(r.writer.file.os, (*os.File)(nil))) // writes all, and fails
			}
		}
		endRun(r)
		repairIn(t, r.cfg.Dir)
		steps, _, _, infos := contents(t, r.cfg.Dir)
		if len(infos) != 4 || infos[1].Torn || !infos[1].Repaired || !slices.IsSorted(steps) || len(steps) != 200 ||
			r.Stats().Lost == 0 {
			t.Errorf("break at %d: %d ticks, %+v, %+v; want 200 in 4 files", breaks, len(steps), infos, r.Stats())
		}
	}
}

// A hanging disk does not delay the threads that fill the lanes, and displaced messages are
// counted.
func TestDiskThatHangs(t *testing.T) {
	rttest.RealTime(t)
	release := make(chan struct{})
	r := rttest.Must(New(Config{Mode: All, Dir: t.TempDir(), Size: 1 << 30, ID: "arm", Clock: rt.KernelClock()}))(t)
	hung := make(chan struct{}, 8)
	r.writer.create = func(string, time.Time) (*os.File, error) {
		hung <- struct{}{}
		<-release
		return nil, errors.New("gone")
	}
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() { r.Write(&stop); close(ended) }()
	now := rt.KernelClock().Now()
	tick(r, now, 0)
	<-hung
	const ticks = 100_000 // more than memory holds
	for step := range int64(ticks) {
		tick(r, now.Add(time.Duration(step)), step)
	}
	stop.Store(true)
	close(release)
	<-ended
	if s := r.Stats(); s.Messages != 0 || s.Lost != ticks+1 {
		t.Errorf("%d written and %d lost, want all %d lost", s.Messages, s.Lost, ticks+1)
	}
}

// A full lane counts its lost messages. A message that is too large is counted, too.
func TestLanesNeverWait(t *testing.T) {
	r, _ := recorderAt(t, Config{Mode: Ring, Cameras: []string{"top"}})
	for range tickSlots + 10 {
		if m := r.Ticks.Put(); m != nil {
			r.Ticks.Commit()
		}
	}
	for range otherSlots + 3 {
		r.Note(1, "operator", LevelInfo, "pause")
	}
	r.Image(0, 1, Bytes{A: make([]byte, scratchBytes)})
	if s := r.Stats(); s.Lost != 13 || s.LostPictures != 1 {
		t.Errorf("%d and %d lost, want 13 and 1", s.Lost, s.LostPictures)
	}
	var none *Recorder
	none.Note(1, "operator", LevelInfo, "pause")
	none.NoteEvent(1, "bus", LevelInfo, 1, 2, 3, nil)
	none.NoteSession(1, testSession)
	none.Save(&starved, true)
	none.ChangeRun("model_sha256", "n3w")
}

func TestRecorderNoAlloc(t *testing.T) {
	r, _ := recorderAt(t, Config{Mode: Ring, Cameras: []string{"top"}})
	picture, step := make([]byte, 40_000), int64(0)
	rttest.NoAllocs(t, "%v allocations, want 0", 2000, func() {
		step++
		at := rt.Instant(step) * 16_666_667
		fillTick(r.Ticks.Put(), at, step)
		r.Ticks.Commit()
		send(r.Requests, Request{At: at, Session: testSession})
		send(r.Merges, Chunk{At: at, Session: testSession, Outcome: "joined"})
		send(r.Sent, Sent{At: at, Outcome: "sent"})
		r.Note(at, "operator", LevelInfo, "pause")
		r.Save(&starved, false)
		r.Collect()
		r.Image(0, at, Bytes{picture, "table", picture})
	})
}

func none(string) bool { return false }

// In a run with episodes the recorder deletes only the files of earlier runs. When their room is used up, too, it drops
// new messages, counts them and reports them.
func TestEpisodesAreNotDeleted(t *testing.T) {
	const size = 12 << 20
	var reports []Report
	r, _ := recorderAt(t, Config{
		Mode:    All,
		Size:    size,
		Cameras: []string{"top"},
		Report:  func(m Report) { reports = append(reports, m) },
	})
	_, whole := writeChunks(t, 1)
	older := rttest.WriteFile(t, r.cfg.Dir, nameAt(r.cfg.ID, time.Unix(0, 0)), whole)
	r.Keep()
	for step := range int64(150) {
		pass(r, step, noise())
	}
	endRun(r)
	s := r.Stats()
	entries, total, err := r.writer.folder.list()
	if err != nil || total > size || len(entries) == 0 || entries[0].name != r.writer.first {
		t.Errorf("%d bytes of %d, %d files, %v, want the run's first file still there", total, size, len(entries), err)
	}
	if _, err := os.Stat(older); err == nil || s.Deleted != 1 {
		t.Errorf("%d files deleted, %v, want the one of an earlier run", s.Deleted, err)
	}
	if s.LostPictures == 0 || len(reports) == 0 || !errors.Is(reports[len(reports)-1].Err, errOwnFiles) {
		t.Errorf("stats %+v, reports %v, want pictures lost for %v", s, reports, errOwnFiles)
	}
}

// All files together stay below the size. The oldest are deleted, and a stranger's file stays.
func TestFilesStayBelowTheSize(t *testing.T) {
	const size = 12 << 20
	var gone []string
	r, _ := recorderAt(t, Config{Mode: All, Size: size, Cameras: []string{"top"}, Report: func(m Report) {
		if m.Why == Deleted {
			gone = append(gone, m.File)
		}
	}})
	_, whole := writeChunks(t, 1)
	putOld(t, r.cfg.Dir, "other", 1, whole)
	stranger := rttest.WriteFile(t, r.cfg.Dir, "arm-20200101T000000.000Z.mcap", bytes.Repeat([]byte("mine"), 1000))
	most := int64(0)
	for step := range int64(150) {
		pass(r, step, append([]byte("picture "), noise()...))
		_, total, err := r.writer.folder.list()
		rttest.Do(t, err)
		most = max(most, total)
	}
	endRun(r)
	s := r.Stats()
	if most > size || s.Deleted == 0 || s.Lost != 0 || s.Error != "" || s.Bytes < 2*size {
		t.Errorf("at most %d bytes of %d, stats %+v", most, size, s)
	}
	if uint64(len(gone)) != s.Deleted-1 || !slices.IsSorted(gone) || filepath.Base(gone[0]) != r.writer.first {
		t.Errorf("reported as deleted: %q, want the run's own of %d, from %s on", gone, s.Deleted, r.writer.first)
	}
	rttest.Want(t, len(rttest.ReadFile(t, stranger)), 4000, "bytes of a stranger's file")
	steps := []int64{}
	entries, _, _ := r.writer.folder.list()
	for _, e := range entries[1:] { // leaves out the stranger's file, which is the oldest
		f := rttest.Must(os.Open(filepath.Join(r.cfg.Dir, e.name)))(t)
		info, err := Read(f, Visitor{Tick: func(m *Tick) error { steps = append(steps, m.Step); return nil }})
		f.Close()
		if err != nil || info.Torn {
			t.Errorf("%s: %+v, %v", e.name, info, err)
		}
	}
	if len(steps) < 20 || steps[len(steps)-1] != 149 || steps[0] == 0 || !slices.IsSorted(steps) {
		t.Errorf("steps %v, want the newest", steps)
	}

	// When a stranger's files fill the folder, nothing is written, and the error gives the reason.
	full, clock := recorderAt(t, Config{Mode: All, Size: 2 << 20})
	put(t, full.cfg.Dir, "arm-20200101T000000.000Z.mcap", make([]byte, 2<<20))
	tick(full, clock.Now(), 1)
	endRun(full)
	if s := full.Stats(); s.Error != errNoRoom.Error() || s.Lost != 1 {
		t.Errorf("stats %+v, want no room", s)
	}
}

// The window counts entries that it dropped before they were read, for all sizes. It refuses an entry that is too large
// for the memory, and skips an entry that is too large for the reader.
func TestWindowCountsDroppedEntries(t *testing.T) {
	const size = 1000
	random := rand.New(rand.NewPCG(5, 6))
	w, c := newWindow(size, time.Hour), &cursor{}
	put := uint64(0)
	read := uint64(0)
	room := make([]byte, 600)
	var last rt.Instant
	for range 2000 {
		for range random.IntN(12) {
			if message := make([]byte, random.IntN(300)); w.put(uint16(len(message)), rt.Instant(put+1), message) {
				put++
			}
		}
		for entries := room[:w.read(c, room)]; ; {
			channel, at, message, rest, ok := nextEntry(entries)
			if !ok {
				break
			}
			if entries = rest; at <= last || int(channel) != len(message) {
				t.Fatalf("entry %d of %d bytes, marked %d, after entry %d", at, len(message), channel, last)
			}
			read, last = read+1, at
		}
	}
	if read+c.lost+w.waits(c) != put || c.lost == 0 || read < put/10 {
		t.Errorf("%d put, %d read, %d lost, %d wait", put, read, c.lost, w.waits(c))
	}
	if w.put(1, 1, make([]byte, size)) {
		t.Error("a message as large as the memory was kept")
	}
	for n := 1; n > 0; {
		n = w.read(c, room)
	}
	c.keep()
	w.put(1, 1, make([]byte, 700))
	if n := w.read(c, room); n != 0 || c.lost != 1 || w.waits(c) != 0 {
		t.Errorf("a message larger than the reader's room: %d bytes, %d lost, want it passed over", n, c.lost)
	}
	c.keep()
	for range 3 {
		w.put(1, 1, make([]byte, 500)) // each message takes the place of its predecessor
	}
	for range 2 { // before and after a failed write
		w.read(c, room)
		rttest.Want(t, c.lost, 2, "lost entries")
		w.rewind(c)
	}
}

// Messages that memory drops while a save fails count as lost. Messages that it dropped before the
// save do not.
func TestLostWhileASaveIsRetried(t *testing.T) {
	for _, breaks := range []int64{50, 90} {
		r, _ := recorderAt(t, Config{Mode: Ring})
		r.messages.span = 3 * time.Second
		create := r.writer.create
		for step := range int64(200) {
			switch step {
			case 50:
				r.Save(&starved, true)
			case breaks + 100:
				r.writer.create = create
			}
			if step == breaks {
				r.writer.create = func(string, time.Time) (*os.File, error) { return nil, errDeleted }
				if step > 50 {
					r.writer.file.os.Close()
				}
			}
			pass(r, step, nil)
		}
		endRun(r)
		steps, _, _, _ := contents(t, r.cfg.Dir)
		if lost := int(r.Stats().Lost); lost == 0 || lost+len(steps) != 180 { // memory still held 30 older messages
			t.Errorf("break at %d: %d lost and %d written, want 180 together", breaks, lost, len(steps))
		}
	}
}

// When the disk takes only the heads of files, each message of the run counts as lost once.
func TestLostOnADiskThatTakesHeads(t *testing.T) {
	r, _ := recorderAt(t, Config{Mode: All})
	r.messages.span = 3 * time.Second
	for step := range int64(200) {
		pass(r, step, nil)
		if f := r.writer.file; f != nil {
			f.os.Close() // the first chunk fails
		}
	}
	r.writer.create = func(string, time.Time) (*os.File, error) { return nil, errDeleted }
	endRun(r)
	rttest.Want(t, r.Stats().Lost, 200, "lost messages of 200")
}

// At the end of the run a whole chunk stays, even if the disk has not taken its indexes.
func TestTheLastChunkStays(t *testing.T) {
	noise, unindexed := make([]byte, fileBuffer), 0
	rttest.Must(rand.NewChaCha8([32]byte{}).Read(noise[copy(noise, "picture "):]))(t)
	for size := fileBuffer - 2500; size < fileBuffer-2200; size += 20 { // some end in the indexes
		r, clock := recorderAt(t, Config{Mode: All, Cameras: []string{"top"}})
		pass(r, 0, noise[:size])
		f := r.writer.file
		r.writer.buffer.Reset(io.MultiWriter(f.os, (*os.File)(nil))) // writes all, and fails
		err := r.writer.step(clock.Now(), true)
		before, _, _, _ := contents(t, r.cfg.Dir)
		r.writer.fail(clock.Now(), err, true)
		if after, _, _, _ := contents(t, r.cfg.Dir); len(after) != len(before) {
			t.Errorf("a picture of %d bytes: %d ticks, want %d", size, len(after), len(before))
		}
		if len(before) > len(f.mcap.ChunkIndexes) {
			unindexed++
		}
	}
	if unindexed == 0 {
		t.Error("every whole chunk has its indexes")
	}
}

// The recorder does not make a new file on a full disk at each try, since these files would stay for ever. When a disk
// takes only a file's head, the recorder tries more and more rarely.
func TestFullDiskGetsNoEmptyFiles(t *testing.T) {
	for _, place := range []string{"/dev/full", "gone"} {
		var said error
		r, _ := recorderAt(t, Config{Mode: All, Report: func(x Report) { said = cmp.Or(x.Err, said) }})
		tries := 0
		r.writer.create = func(id string, at time.Time) (*os.File, error) {
			f, err := r.writer.folder.create(id, at)
			if err != nil {
				return nil, err
			}
			tries++
			if place == "gone" {
				return f, nil
			}
			f.Close()
			full, err := unix.Open(place, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			return os.NewFile(uintptr(full), f.Name()), err // a full disk with the name of the regular file
		}
		for step := range int64(700) {
			pass(r, step, nil)
			if f := r.writer.file; f != nil {
				f.os.Close() // the disk fails before the first chunk
			}
		}
		if found, err := os.ReadDir(r.cfg.Dir); err != nil || tries < 2 || len(found) > 1 ||
			place == "gone" && (tries > 11 || !rttest.Says(said, "the next file comes in 8s")) {
			t.Errorf("%s: %d files of %d tries, %v, %v, want none but the last", place, len(found), tries, err, said)
		}
	}
}

// A full folder of many small files is not listed for each chunk.
func TestRoomIsMadeInAdvance(t *testing.T) {
	_, whole := writeChunks(t, 1)
	dir := t.TempDir()
	putOld(t, dir, "old", 40, whole)
	one := int64(len(whole))
	d := folder{dir, 40 * one, diskOf}
	// makeRoom deletes as many files as needed and, in addition, a 32nd of the size. Then it
	// deletes no file until this room is used up.
	for try, want := range []int{3, 0, 3} {
		total, _, deleted, err := d.makeRoom(one, none)
		if err != nil || len(deleted) != want {
			t.Fatalf("try %d: %d deleted of %d bytes, %v, want %d", try, len(deleted), total, err, want)
		}
		if try == 1 {
			putOld(t, dir, "new", 3, whole)
		}
	}
}

// A record leaves the disk's reserve free: it shrinks below its allowed size by deleting its own oldest files, and
// reports when no such file remains.
func TestTheDiskKeepsSomeForOthers(t *testing.T) {
	const disk, chunk = 64 << 20, chunkBytes
	reserve := int64(disk / reserveShare)
	_, whole := writeChunks(t, 1)
	dir := t.TempDir()
	putOld(t, dir, "old", 4, whole)
	free := int64(0)
	d := folder{dir, disk, func(string) (int64, int64) { return free, disk }}
	free = reserve + chunk
	if _, _, deleted, err := d.makeRoom(chunk, none); len(deleted) != 0 || err != nil {
		t.Errorf("with room for a chunk %d files went, %v, want none", len(deleted), err)
	}
	free--
	if _, _, deleted, err := d.makeRoom(chunk, none); len(deleted) != 4 || err != nil {
		t.Errorf("with a byte less %d files went, %v, want all four, which make the room", len(deleted), err)
	}
	if _, _, _, err := d.makeRoom(chunk, none); !errors.Is(err, errDiskFull) {
		t.Errorf("with nothing to delete: %v, want %v", err, errDiskFull)
	}
	if large := (folder{dir, 4 << 30, func(string) (int64, int64) {
		return 3 << 30, 1 << 40
	}}).room(0); large != 2<<30 {
		t.Errorf("a large disk leaves %d bytes for records, want 2 GiB: 1 GiB is kept", large)
	}
}

// If the folder is deleted during a run, the recorder makes it again and begins a new file within a
// chunk or two.
func TestFolderThatVanishes(t *testing.T) {
	errs := 0
	r, _ := recorderAt(t, Config{Mode: All, Report: func(x Report) {
		if errors.Is(x.Err, errDeleted) {
			errs++
		}
	}})
	const steps = 100
	for step := range int64(steps) {
		pass(r, step, nil)
		if step == steps/2 {
			rttest.Do(t, os.RemoveAll(r.cfg.Dir))
		}
	}
	endRun(r)
	got, _, _, infos := contents(t, r.cfg.Dir)
	if s := r.Stats(); errs != 1 || len(infos) != 1 || len(got) < steps/4 || got[len(got)-1] != steps-1 ||
		s.Error != "" {
		t.Errorf("said %d times, files %+v with %d ticks, stats %+v; want a new file with the rest", errs, infos,
			len(got), s)
	}
}

// Only the owner and the group may read a record, since not every user of the machine may see pictures of a home.
func TestFilesAreForOwnerAndGroup(t *testing.T) {
	defer unix.Umask(unix.Umask(0))
	r, clock := recorderAt(t, Config{Mode: All, Dir: filepath.Join(t.TempDir(), "records")})
	tick(r, clock.Now(), 1)
	endRun(r)
	found, err := os.ReadDir(r.cfg.Dir)
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v, want a file", found, err)
	}
	for name, want := range map[string]fs.FileMode{".": folderMode, found[0].Name(): fileMode} {
		if info, err := os.Stat(filepath.Join(r.cfg.Dir, name)); err != nil || info.Mode().Perm() != want ||
			want&0o007 != 0 {
			t.Errorf("%s: %v, %v, want %o", name, info.Mode(), err, want)
		}
	}
}
