package recording

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"golang.org/x/sys/unix"
)

// config returns the configuration of a record without a run.
func config(mode record.Mode, dir string) Config {
	return Config{
		Mode:   mode,
		Dir:    dir,
		Size:   MinSize,
		ID:     "arm",
		Robot:  "so101",
		Joints: 6,
		Clock:  rt.KernelClock(),
		Log:    slog.New(slog.DiscardHandler),
	}
}

// opened opens a record.
func opened(t *testing.T, cfg Config) *Recording {
	t.Helper()
	return rttest.Must(Open(cfg))(t)
}

// written makes a record write its content, and reads the record's folder.
func written(t *testing.T, r *Recording, dir string, v record.Visitor) {
	t.Helper()
	var stop atomic.Bool
	stop.Store(true)
	r.Recorder.Collect()
	r.Recorder.Write(&stop)
	rttest.Must(record.ReadFolder(dir, v))(t)
}

// Goal: with --record all the log reports once that files of this run are deleted; the summary
// counts them.
func TestWhatIsDeletedIsSaid(t *testing.T) {
	for _, mode := range []record.Mode{record.All, record.Ring} {
		var said strings.Builder
		cfg := config(mode, t.TempDir())
		cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
		r := opened(t, cfg)
		for range 2 {
			r.report(record.Report{File: "arm-1.mcap", Why: record.Deleted})
		}
		want := map[record.Mode]int{record.All: 1}[mode]
		if got := strings.Count(said.String(), "level=WARN msg=\"--record-size is reached"); got != want {
			t.Errorf("%v: said %d times, want %d: %s", mode, got, want, &said)
		}
	}
	if got, want := Line(&record.Stats{
		Mode:         "all",
		Deleted:      7,
		Lost:         1,
		LostPictures: 2,
	}), "lost 1 messages and 2 pictures; 7 old files deleted for --record-size"; !strings.HasSuffix(got, want) {
		t.Errorf("the summary says %q, want %q at its end", got, want)
	}
}

// Goal: opened and closed connections are on record. Of failures in a row for the same reason, only the first is on
// record.
func TestConnectionsAreRecorded(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.ECONNREFUSED)}
	cfg := config(record.All, t.TempDir())
	r := opened(t, cfg)
	note := r.Links()
	for _, l := range []zenoh.LinkEvent{
		{Up: true}, {Err: link.ErrEOF}, {Err: refused}, {Err: refused},
		{Err: fmt.Errorf("no link: %w", unix.EHOSTUNREACH)}, {Up: true},
		{Err: link.ErrExpired}, {Up: true}, {Err: &link.CloseError{Reason: codec.CloseExpired}}, {Up: true},
		{Err: &link.CloseError{Reason: codec.CloseGeneric}}, {Err: io.ErrClosedPipe},
	} {
		note(l)
	}
	r.Notice(wire.Event{Code: wire.EventDraining, Text: "open elsewhere", Seq: 7})
	r.Operator("reset", errors.New("the tick does not answer"))
	var got []string
	written(t, r, cfg.Dir, record.Visitor{Event: func(m *record.Event) error {
		got = append(got, fmt.Sprint(m.Kind, " ", event.Code(m.Code) == event.LinkUp, " ", m.A, " ", m.B))
		return nil
	}})
	down := func(why event.Why) string { return fmt.Sprint("link false ", int64(why), " 0") }
	up := "link true 0 0"
	want := []string{up, down(event.WhyClosed), down(event.WhyRefused), down(event.WhyUnreachable), up,
		down(event.WhySilent), up, down(event.WhySilent), up,
		down(event.WhyClosed), down(event.WhyOther), fmt.Sprint("server false ", int64(event.NoticeDraining), " 7"),
		fmt.Sprint("operator false ", int64(event.WordReset), " 1")}
	rttest.Equal(t, got, want, "got")
}

// Goal: if a run ends with an error, the end is on disk with its reason. A requested end leaves no file.
func TestTheEndIsRecorded(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{exit.Errorf(exit.Fault, "a motor's encoder complains"), "code 6: a motor's encoder complains"},
	} {
		cfg := config(record.Ring, t.TempDir())
		r := opened(t, cfg)
		r.Start()
		r.event(event.Event{
			At:   cfg.Clock.Now(),
			Code: event.StateChanged,
			A:    1,
			B:    2,
		}, slog.LevelInfo, []slog.Attr{slog.String("from", "A"), slog.Int64("n", 3)})
		r.Operator("pause", errors.New("the tick does not answer"))
		if err, stuck := r.End(tt.err); err != tt.err || stuck {
			t.Fatal(err, stuck)
		}
		var said []string
		infos := rttest.Must(record.ReadFolder(cfg.Dir, record.Visitor{Event: func(m *record.Event) error {
			said = append(said, m.Kind+": "+m.Text.String())
			return nil
		}}))(t)
		if tt.want == "" {
			if len(infos) != 0 || r.Stats().Files != 0 {
				t.Errorf("a good end leaves %v, want nothing", infos)
			}
			continue
		}
		want := []string{"state: state  from A  n 3", "operator: pause: the tick does not answer", "exit: " + tt.want}
		if len(infos) != 1 || infos[0].Run["why"] != savedExit || !slices.Equal(said, want) {
			t.Errorf("%v, %q, want one file with %q", infos, said, want)
		}
	}
}

// Goal: a fault makes the recorder save the time before the fault. A change of state does not.
func TestFaultsSave(t *testing.T) {
	for code := event.StateChanged; code <= event.LeaderBack; code++ {
		cfg := config(record.Ring, t.TempDir())
		r := opened(t, cfg)
		r.event(event.Event{At: cfg.Clock.Now(), Code: code}, slog.LevelWarn, nil)
		written(t, r, cfg.Dir, record.Visitor{})
		faults := []event.Code{event.TickOverrun, event.BusLost, event.JointFrozen, event.JointHeld,
			event.JointOverloaded, event.JointBlind, event.JointLimp, event.JointStalled}
		if saved := r.Stats().Saves; saved != 0 != slices.Contains(faults, code) || code.Kind() == "" {
			t.Errorf("%s (%s): saved %d times", code, code.Kind(), saved)
		}
	}
}

// Goal: a hanging disk does not block the end of the run, and the error names the cause.
func TestRecordThatHangsEndsTheRun(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("waits for a thread that is stuck")
	}
	cfg := config(record.All, filepath.Join(t.TempDir(), "records"))
	release := make(chan struct{})
	defer close(release)
	cfg.Log = slog.New(slog.NewTextHandler(hangs{release}, nil)) // the writing thread hangs in its log line
	r := opened(t, cfg)
	rttest.Do(t, os.RemoveAll(cfg.Dir))
	// a file is in the place of the folder, which must be reported
	if err := os.WriteFile(cfg.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.Start()
	r.Operator("pause", nil)
	rttest.Eventually(t, "the thread that writes hangs", func() bool { return r.Stats().Error != "" })
	if err, stuck := r.End(nil); exit.Of(err) != exit.Clean || !rttest.Says(err, "--record-dir hangs") || !stuck {
		t.Errorf("%v, code %d, stuck %v, want what hangs and code 0", err, exit.Of(err), stuck)
	}
}

// Goal: the repair of an earlier run's file, which takes many seconds of a slow disk, delays neither this run's
// file nor its end.
func TestRepairDelaysNothing(t *testing.T) {
	cfg := config(record.All, t.TempDir())
	earlier := opened(t, cfg)
	earlier.Operator("pause", nil)
	written(t, earlier, cfg.Dir, record.Visitor{})
	torn := rttest.Must(record.Files(cfg.Dir, ""))(t)[0]
	rttest.Do(t, os.Truncate(torn, 3000))
	release := make(chan struct{})
	cfg.Log = slog.New(slog.NewTextHandler(hangs{release}, nil)) // the repair hangs in its last log line
	r := opened(t, cfg)
	r.Start()
	r.Operator("resume", nil)
	rttest.Eventually(t, "repaired", func() bool { return r.Stats().Repaired == 1 })
	rttest.Eventually(t, "written", func() bool { return r.Stats().Messages > 0 })
	if err, stuck := r.End(nil); err != nil || stuck {
		t.Errorf("%v, stuck %v, want the end", err, stuck)
	}
	close(release)
}

type hangs struct{ until chan struct{} }

func (h hangs) Write(b []byte) (int, error) { <-h.until; return io.Discard.Write(b) }

// Goal: a folder that cannot be written ends only a run with --record all, before it begins.
func TestOnlyAllWantsAFolderAtTheStart(t *testing.T) {
	file := rttest.WriteFile(t, t.TempDir(), "file", "")
	for mode, fails := range map[record.Mode]bool{record.Off: false, record.Ring: false, record.All: true} {
		r, err := Open(config(mode, filepath.Join(file, "records")))
		if err != nil != fails {
			t.Errorf("%s: %v", mode, err)
		}
		if r == nil != (mode == record.Off) {
			t.Errorf("%s: recorder %v", mode, r != nil)
		}
	}
}

// Goal: a run that only keeps the ring begins without access to the disk, which may hang. It begins even with more
// joints than a record keeps, because the default mode must not end a run.
func TestTheRingHoldsUpNoStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	r := opened(t, config(record.Ring, dir))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder was looked for before the run began: %v", err)
	}
	r.Start()
	if err, _ := r.End(nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the thread that writes has not tried the folder: %v", err)
	}
	for mode, want := range map[record.Mode]exit.Code{record.Ring: 0, record.All: exit.Usage} {
		cfg := config(mode, dir)
		cfg.Joints = record.MaxJoints + 1
		if r, err := Open(cfg); exit.Of(err) != want || r != nil {
			t.Errorf("%s, %d joints: %v, want code %d and no record", mode, cfg.Joints, err, want)
		}
	}
}

// Goal: a panic in the recorder ends the record, not the run.
func TestAPanicInTheRecordIsNotTheRuns(t *testing.T) {
	r := opened(t, config(record.Ring, t.TempDir()))
	r.withoutPanic(func() { panic("a mistake") })
	for _, end := range []error{nil, exit.Errorf(exit.Fault, "a motor's encoder complains")} {
		if err, _ := r.End(end); exit.Of(err) != exit.Of(end) || !rttest.Says(err, "a mistake") || end != nil &&
			!rttest.Says(err, end.Error()) {
			t.Errorf("%v, code %d; want the mistake beside %v, and its code", err, exit.Of(err), end)
		}
	}
}

// Goal: the page gets a run's messages with --record off, too, from a recorder that keeps nothing.
func TestWatchedWithoutARecord(t *testing.T) {
	cfg := Config{
		Mode:   record.Off,
		Dir:    filepath.Join(t.TempDir(), "none"),
		Joints: 6,
		Clock:  rt.KernelClock(),
		Log:    slog.New(slog.DiscardHandler),
	}
	if r, err := Open(cfg); r != nil || err != nil {
		t.Fatalf("nobody looks: %v, %v; want no recorder", r, err)
	}
	cfg.Watched = true
	r, err := Open(cfg)
	if err != nil || r.Lanes() == nil || r.Stats() != nil {
		t.Fatalf("%v, %v, %+v", r, err, r.Stats())
	}
	ticks := 0
	events := 0
	episodes := 0
	r.Recorder.Visit(record.Visitor{
		Episode: func(m *record.Episode) error { episodes++; return nil },
		Tick:    func(*record.Tick) error { ticks++; return nil },
		Event:   func(m *record.Event) error { events++; return nil },
	})
	r.Start()
	*r.Recorder.Ticks.Put() = record.Tick{At: 1}
	r.Recorder.Ticks.Commit()
	r.Operator("pause", nil)
	r.Recorder.NoteEpisode(2, 1, true, record.Success, "")
	rttest.Fails(t, r.Save(), "--record off")
	if err, stuck := r.End(nil); err != nil || stuck || ticks != 1 || events != 2 || episodes != 1 {
		t.Errorf("%v, stuck %v, %d ticks, %d events and %d episodes, want 1, 2 and 1", err, stuck, ticks, events,
			episodes)
	}
	if _, err := os.Stat(cfg.Dir); !os.IsNotExist(err) {
		t.Errorf("its folder: %v, want none", err)
	}
}
