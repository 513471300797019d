package edge

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"edgert/edge/event"
	"edgert/internal/exit"
	"edgert/record"
	"edgert/rt"
	"edgert/rt/rttest"
	"edgert/servo/robot"
)

// recordingEdge is an edge of which nothing but the record runs.
func recordingEdge(t *testing.T, mode record.Mode) *Edge {
	t.Helper()
	return recordingInto(t, mode, t.TempDir())
}

func recordingInto(t *testing.T, mode record.Mode, dir string) *Edge {
	t.Helper()
	so101, err := robot.ByName("so101")
	if err != nil {
		t.Fatal(err)
	}
	e := &Edge{
		cfg: Config{Record: mode, RecordDir: dir, RecordSize: MinRecordSize}, clock: rt.KernelClock(), log: slog.New(slog.DiscardHandler),
		robot: so101, identity: &identity{ID: "arm"}, joints: jointLists(so101),
	}
	return e
}

// An end that is not as asked is on disk with its reason; one that is leaves nothing.
func TestTheEndIsRecorded(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{exit.Errorf(exit.Fault, "a motor's encoder complains"), "code 6: a motor's encoder complains"},
	} {
		e := recordingEdge(t, record.Ring)
		if err := e.openRecord(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.startRecord()
		e.recordEvent(event.Event{At: e.clock.Now(), Code: event.StateChanged, A: 1, B: 2}, slog.LevelInfo, []slog.Attr{slog.String("from", "A"), slog.Int64("n", 3)})
		e.noteOperator("pause", errors.New("the tick does not answer"))
		if err := e.endRecord(tt.err); err != tt.err {
			t.Fatal(err)
		}
		var said []string
		infos, err := record.ReadFolder(e.cfg.RecordDir, record.Visitor{Event: func(m *record.Event) error {
			said = append(said, m.Kind+": "+m.Text.String())
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if tt.want == "" {
			if len(infos) != 0 || e.recordStats().Files != 0 {
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

// A fault saves what was before it; a change of state does not.
func TestFaultsSave(t *testing.T) {
	for code := event.StateChanged; code <= event.LeaderBack; code++ {
		e := recordingEdge(t, record.Ring)
		if err := e.openRecord(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.recordEvent(event.Event{At: e.clock.Now(), Code: code}, slog.LevelWarn, nil)
		e.recording.writing.Store(true) // no tick to collect behind
		var stop atomic.Bool
		stop.Store(true)
		e.record.Collect()
		e.record.Write(&stop)
		faults := []event.Code{event.TickOverrun, event.BusLost, event.JointFrozen, event.JointHeld, event.JointOverloaded, event.JointBlind, event.JointLimp, event.JointStalled}
		if saved := e.recordStats().Saves; saved != 0 != slices.Contains(faults, code) || code.Kind() == "" {
			t.Errorf("%s (%s): saved %d times", code, code.Kind(), saved)
		}
	}
}

// A disk that hangs does not keep the run from ending, and the run says what hangs.
func TestRecordThatHangsEndsTheRun(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("waits for a thread that is stuck")
	}
	e := recordingInto(t, record.All, filepath.Join(t.TempDir(), "records"))
	if err := e.openRecord(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(e.cfg.RecordDir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.cfg.RecordDir, nil, 0o600); err != nil { // no folder can be made: it is reported
		t.Fatal(err)
	}
	release := make(chan struct{})
	defer close(release)
	e.log = slog.New(slog.NewTextHandler(hangs{release}, nil)) // on the thread that writes
	e.startRecord()
	e.noteOperator("pause", nil)
	rttest.Eventually(t, "the thread that writes hangs", func() bool { return e.recordStats().Error != "" })
	if err := e.endRecord(nil); err == nil || exit.Of(err) != exit.Clean || !strings.Contains(err.Error(), "--record-dir hangs") || !e.stuck {
		t.Errorf("%v, code %d, stuck %v, want what hangs and code 0", err, exit.Of(err), e.stuck)
	}
}

type hangs struct{ until chan struct{} }

func (h hangs) Write(b []byte) (int, error) { <-h.until; return io.Discard.Write(b) }

// A folder that cannot be written ends a run of all before it begins, and no other.
func TestOnlyAllWantsAFolderAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, fails := range map[record.Mode]bool{record.Off: false, record.Ring: false, record.All: true} {
		e := recordingInto(t, mode, filepath.Join(file, "records"))
		if err := e.openRecord(t.Context()); err != nil != fails {
			t.Errorf("%s: %v", mode, err)
		}
		if e.record == nil != (mode == record.Off) {
			t.Errorf("%s: recorder %v", mode, e.record != nil)
		}
	}
}

// A run that only keeps the ring begins without a look at the disk, which may hang, and
// with more joints than a record keeps: a default ends nobody's run.
func TestTheRingHoldsUpNoStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	e := recordingInto(t, record.Ring, dir)
	if err := e.openRecord(t.Context()); err != nil || e.record == nil {
		t.Fatalf("openRecord = %v, record %v", err, e.record)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder was looked for before the run began: %v", err)
	}
	e.startRecord()
	if err := e.endRecord(nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the thread that writes has not tried the folder: %v", err)
	}
	wide := e.robot
	for len(wide.Motors) <= record.MaxJoints {
		wide.Motors = append(slices.Clip(wide.Motors), wide.Motors[0])
	}
	for mode, want := range map[record.Mode]exit.Code{record.Ring: 0, record.All: exit.Usage} {
		e := recordingInto(t, mode, dir)
		e.robot = wide
		if err := e.openRecord(t.Context()); exit.Of(err) != want || e.record != nil {
			t.Errorf("%s, %d joints: %v, want code %d and no record", mode, len(wide.Motors), err, want)
		}
	}
}

// A mistake in the recorder costs the record, not the run.
func TestAPanicInTheRecordIsNotTheRuns(t *testing.T) {
	e := recordingEdge(t, record.Ring)
	if err := e.openRecord(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.withoutPanic(func() { panic("a mistake") })
	for _, end := range []error{nil, exit.Errorf(exit.Fault, "a motor's encoder complains")} {
		if err := e.endRecord(end); err == nil || exit.Of(err) != exit.Of(end) || !strings.Contains(err.Error(), "a mistake") || end != nil && !strings.Contains(err.Error(), end.Error()) {
			t.Errorf("%v, code %d; want the mistake beside %v, and its code", err, exit.Of(err), end)
		}
	}
}
