package why

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/foxglove/mcap/go/mcap"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/recordtest"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

// begin is the beginning of these tests' records, in a zone other than UTC.
var (
	zone  = time.FixedZone("there", 2*3600)
	begin = time.Date(2026, 11, 24, 14, 3, 0, 0, zone)
)

// write writes a record of twenty seconds that begins at the time from. A message is lost at second 10, and an
// operator pauses the run from second 15 to 17.
func write(t *testing.T, dir, id string, from time.Time) (name string) {
	t.Helper()
	clock := rttest.NewClock(100 * second)
	r := rttest.Must(record.New(record.Config{
		Mode:  record.All,
		Dir:   dir,
		Size:  1 << 30,
		ID:    id,
		Clock: clock,
		Now:   func() time.Time { return from.Add(time.Duration(clock.Now() - 100*second)) },
	}))(t)
	run := map[string]string{"instance": id}
	maps.Copy(run, storyRun)
	run["id"] = id
	r.SetRun(run)
	session := &record.Session{ID: "s-1", Epoch: 1, ServerID: "box-1"}
	r.NoteSession(clock.Now(), session)
	place := float32(0)
	asked, seq := rt.Instant(0), uint64(0)
	for n := range 1200 {
		at := 100*second + rt.Instant(n)*tickTime
		clock.SleepUntil(at)
		m := r.Ticks.Put()
		*m = record.Tick{
			At:      at,
			Seq:     seq,
			Epoch:   1,
			Episode: 1,
			Starved: n >= 600 && n < 606,
			Paused:  n >= 900 && n < 1020,
		}
		if !m.Starved && !m.Paused {
			place += 0.1
			m.Action.Set([]float32{place, 0})
		}
		r.Ticks.Commit()
		if n%20 == 0 && !m.Paused {
			asked, seq = at, seq+1
			*r.Requests.Put() = record.Request{
				At:      at,
				Seq:     seq,
				Epoch:   1,
				Episode: 1,
				Rows:    5,
				Runway:  int64(200 * millisecond),
				Session: session,
			}
			r.Requests.Commit()
			*r.Sent.Put() = record.Sent{At: at, Seq: seq, Epoch: 1, Outcome: "sent"}
			r.Sent.Commit()
		}
		if n%20 == 3 && !m.Paused && n != 583 {
			*r.Merges.Put() = record.Chunk{
				At:      at,
				Seq:     seq,
				Epoch:   1,
				Episode: 1,
				Outcome: "joined",
				Rows:    50,
				RTT:     int64(at - asked),
				Session: session,
			}
			r.Merges.Commit()
		}
		r.Collect()
	}
	r.NoteEvent(clock.Now(), "exit", record.LevelInfo, uint32(event.Ended), 0, 0, []byte("code 0: as asked"))
	r.Collect()
	var stop atomic.Bool
	stop.Store(true)
	r.Write(&stop)
	names, err := record.Files(dir, id)
	if err != nil || len(names) == 0 || r.Stats().Lost > 0 {
		t.Fatalf("%v, %v, %+v", names, err, r.Stats())
	}
	return names[len(names)-1]
}

func run(t *testing.T, cfg Config) (*Report, string) {
	t.Helper()
	cfg.Local = zone
	r := rttest.Must(Run(cfg))(t)
	var out bytes.Buffer
	rttest.Do(t, r.Write(&out))
	return r, out.String()
}

func causesOf(r *Report) (causes []Cause) {
	for _, f := range r.Findings {
		causes = append(causes, f.Cause)
	}
	return causes
}

func TestAFileIsExplained(t *testing.T) {
	dir := t.TempDir()
	name := write(t, dir, "arm", begin)
	r, text := run(t, Config{Path: name})
	if got := causesOf(r); !slices.Equal(got, []Cause{Lost, Paused}) {
		t.Fatalf("%v, want a loss and a pause\n%s", got, text)
	}
	rttest.Contains(t, text,
		"robot arm, 2026-11-24 14:03:00 to 14:03:19, 1200 ticks, 6 of them starved", "ended: code 0: as asked",
		"14:03:09.999  stutter, 6 ticks in 83 ms: lost", "14:03:09.666  request 30 asked with 200 ms of actions left",
		"14:03:14.999  hold, 120 ticks", "2 findings: stutter 1, hold 1", "causes: lost 1, paused 1")
	if r, _ := run(t, Config{Path: name, Last: true}); !slices.Equal(causesOf(r), []Cause{Paused}) {
		t.Errorf("the last: %v", causesOf(r))
	}
	var decoded map[string]any
	var out bytes.Buffer
	if err := errors.Join(r.WriteJSON(&out), json.Unmarshal(out.Bytes(), &decoded)); err != nil ||
		len(decoded["findings"].([]any)) != 2 {
		t.Errorf("%v, %s", err, &out)
	}
}

func TestAt(t *testing.T) {
	dir := t.TempDir()
	name := write(t, dir, "arm", begin)
	write(t, dir, "arm", begin.AddDate(0, 0, 1).Add(time.Hour)) // the next day, an hour later
	for _, tt := range []struct {
		at   string
		path string
		want []Cause
		says string
	}{
		{"14:03:10", "", []Cause{Lost}, ""},
		{"14:03:11.5", "", []Cause{Lost}, ""}, // people often note a time too late
		{"14:03", "", []Cause{Lost, Paused}, ""},
		{"2026-11-24T14:03:16", "", []Cause{Paused}, ""},
		{"2026-11-24 14:03:16", name, []Cause{Paused}, ""},
		{"2026-11-24T12:03:16Z", "", []Cause{Paused}, ""},
		{"15:03:10", "", []Cause{Lost}, "2026-11-25 15:03:00"},
		{"14:03:05", "", nil, "nothing went wrong at 14:03:05; the nearest:"},
	} {
		r, text := run(t, Config{Path: tt.path, Dirs: []string{dir}, At: tt.at})
		if got := causesOf(r); !slices.Equal(got, tt.want) || !strings.Contains(text, tt.says) {
			t.Errorf("--at %s: %v, want %v and %q\n%s", tt.at, got, tt.want, tt.says, text)
		}
	}
	for at, want := range map[string]string{
		"14:04:10": "is not on record: ", "2026-11-23T14:03:10": "2026-11-24 14:03:00 to 14:03:19",
		"noon": "want a time of day such as 14:03:20", "25:00": "want a time",
	} {
		rttest.Ends(t, rttest.Err(Run(Config{Dirs: []string{dir}, At: at, Local: zone})), exit.Usage, want)
	}
}

// The search for the newest record includes a service's folder. The report names a folder that this user may not read,
// since the records in it may contain faults.
func TestFoldersOfServices(t *testing.T) {
	own, service := t.TempDir(), t.TempDir()
	write(t, own, "black", begin)
	write(t, service, "white", begin.Add(time.Hour))
	away := filepath.Join(t.TempDir(), "away")
	for _, dirs := range [][]string{{own, service}, {service, own}, {away, service, own}, {own, away, service}} {
		if r, text := run(t, Config{Dirs: dirs}); !strings.HasPrefix(r.Files[0].Name, "white-2026") || r.Hidden != "" ||
			strings.Contains(text, "may not read") {
			t.Errorf("%v: %s, want white's: %s", dirs, r.Files[0].Name, text)
		}
		if r, _ := run(t, Config{Dirs: dirs, ID: "black"}); !strings.HasPrefix(r.Files[0].Name, "black-2026") {
			t.Errorf("%v: %s, want black's", dirs, r.Files[0].Name)
		}
	}
	closed := Config{Dirs: []string{own}, Hidden: "/var/lib/x"}
	if r, text := run(t, closed); !strings.Contains(text, "/var/lib/x were not looked at") || r.Hidden == "" {
		t.Errorf("beside a closed folder it says only %s", text)
	}
	// the only folder is closed to this user
	rttest.Ends(t, rttest.Err(Run(Config{Dirs: []string{away}, Hidden: "/var/lib/x"})), exit.Absent, "sudo edge-rt why")
}

// Without a file, the report is of the named robot's newest file that can be explained.
func TestTheNewestFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "black", begin)
	write(t, dir, "white", begin.Add(time.Hour))
	whole := load(t, write(t, dir, "black-2", begin.Add(2*time.Hour)))
	// Such files remain after a power cut or a kill.
	for name, text := range map[string][]byte{"20261125": nil, "20261126": whole[:200]} {
		rttest.WriteFile(t, dir, "cut-"+name+"T000000.000Z.mcap", text)
	}
	for id, want := range map[string]string{"": "black-2-2026", "black": "black-20261124T1203", "white": "white-2026"} {
		if r, _ := run(t, Config{Dirs: []string{dir}, ID: id}); !strings.HasPrefix(r.Files[0].Name, want) {
			t.Errorf("--id %q: %s, want %s", id, r.Files[0].Name, want)
		}
	}
	if r, _ := run(t, Config{Path: dir}); len(r.Files) != 3 || len(r.Findings) != 6 {
		t.Errorf("a folder: %d files, %d findings, want 3 and 6", len(r.Files), len(r.Findings))
	}
}

func TestFilesThatAreNoRecords(t *testing.T) {
	dir := t.TempDir()
	name := write(t, dir, "arm", begin)
	whole := load(t, name)
	file := func(text []byte) string {
		to := rttest.WriteFile(t, t.TempDir(), "x.mcap", text)
		return to
	}
	other := bytes.Replace(whole, []byte("edge-rt"), []byte("others!"), 1)
	foreign := t.TempDir()
	rttest.WriteFile(t, foreign, "arm-20260101T000000.000Z.mcap", "hello")
	for _, tt := range []struct {
		cfg  Config
		code exit.Code
		want string
	}{
		{Config{Path: file(nil)}, exit.Config, "no MCAP file: it is empty"},
		{Config{Path: file([]byte("hello"))}, exit.Config, `no MCAP file: it begins with "hello"`},
		{Config{Path: file(other)}, exit.Config, `a file of profile "others!"`},
		{Config{Path: foreign}, exit.Config, "no MCAP file"},
		{Config{Path: file(whole[:200])}, exit.Config, "holds no ticks and no events: it is cut"},
		{Config{Path: filepath.Join(dir, "away.mcap")}, exit.Usage, "no such file"},
		{Config{Path: os.DevNull}, exit.Usage, "is no regular file"}, // opening a pipe would block
		{Config{Path: name, Audit: os.DevNull}, exit.Usage, "is no regular file"},
		{Config{Path: t.TempDir()}, exit.Config, "holds no records of edge-rt"},
		{Config{Dirs: []string{t.TempDir()}}, exit.Absent, "there are no records in"},
		{Config{Dirs: []string{filepath.Join(dir, "away")}}, exit.Absent, "there are no records in"},
		{Config{Dirs: []string{t.TempDir()}, ID: "black"}, exit.Absent, "robot black has not had anything go wrong"},
		{Config{Dirs: []string{dir}, ID: "white"}, exit.Absent, "robot white"},
		{Config{Path: name, Audit: filepath.Join(dir, "away")}, exit.Usage, "--audit: "},
		{Config{Path: name, Audit: name}, exit.Usage, "--audit "},
	} {
		rttest.Ends(t, rttest.Err(Run(tt.cfg)), tt.code, tt.want)
	}
}

// A foreign file with a record's name does not prevent the explanation of a folder's other records.
func TestAForeignFileIsSkipped(t *testing.T) {
	dir := t.TempDir()
	name := write(t, dir, "arm", begin)
	other := bytes.Replace(load(t, name), []byte("edge-rt"), []byte("others!"), 1)
	for n, data := range map[string][]byte{"arm-20260101T000000.000Z.mcap": []byte("hello"),
		"arm-20990101T000000.000Z.mcap": other} {
		rttest.WriteFile(t, dir, n, data)
	}
	for _, cfg := range []Config{{Path: dir}, {Dirs: []string{dir}, At: begin.In(zone).Format(time.DateTime[:16])}} {
		r, text := run(t, cfg)
		if len(r.Files) != 1 || r.Files[0].Name != filepath.Base(name) || len(r.Skipped) == 0 ||
			!strings.Contains(text, `skipped: arm-20990101T000000.000Z.mcap: a file of profile "others!"`) {
			t.Errorf("%+v: %+v\n%s", cfg, r, text)
		}
	}
}

// A torn file is explained up to its break, and the report names the break. If a run still writes the file, the
// report does not take the break for the end of the run.
func TestTornFiles(t *testing.T) {
	dir := t.TempDir()
	name := write(t, dir, "arm", begin)
	whole := load(t, name)
	for cut := len(whole) - 1; cut > 0; cut -= len(whole) / 60 {
		rttest.Do(t, os.WriteFile(name, whole[:cut], 0o600))
		r, err := Run(Config{Path: name, Local: zone})
		if err != nil {
			if exit.Of(err) != exit.Config {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			continue
		}
		if f := r.Files[0]; f.Ended == "" && !slices.Contains(causesOf(r), Killed) {
			t.Errorf("cut at %d: %v, want the death among them", cut, causesOf(r))
		}
	}
	broken := 0
	for cut, torn := len(whole)-1, false; !torn; cut-- { // cuts begin at the end of the data, after the last message
		rttest.Do(t, os.WriteFile(name, whole[:cut], 0o600))
		r := rttest.Must(Run(Config{Path: name, Local: zone}))(t)
		torn = r.Files[0].Torn
		broken = cut - 12 // offset of the first of the 13 bytes of the record DataEnd
	}
	rttest.Do(t, os.WriteFile(name, append(whole[:broken], mcap.Magic...), 0o600))
	if r, text := run(t, Config{Path: name}); !r.Files[0].Damaged || slices.Contains(causesOf(r), Killed) ||
		!strings.Contains(text, "is damaged before its end") {
		t.Errorf("a damaged file: %v\n%s", causesOf(r), text)
	}
	f := rttest.Must(os.OpenFile(name, os.O_RDWR, 0))(t)
	defer f.Close()
	rttest.Do(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	if r, text := run(t, Config{Path: name}); r.Files[0].Torn || !r.Files[0].Writing {
		t.Errorf("a file that is written: %v\n%s", causesOf(r), text)
	}
}

// The first file's stutters are separated by the run's rate, not by 60 Hz.
func TestAFileIsReadAtItsRate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "arm-20261124T140320.000Z.mcap")
	f := recordtest.Create(t, name, map[string]string{"fps": "1"})
	for i := range 4 {
		f.Tick(&record.Tick{At: rt.Instant(1+i) * second, Starved: i > 0})
	}
	f.Close()
	r := rttest.Must(Run(Config{Path: name, Local: zone}))(t)
	rttest.Want(t, r.Kinds[string(Stutter)], 1, "stutters")
}

// Files of one run are read in the order of the clock of the run's process, even if the time of day was set back and
// their names are in another order.
func TestFilesOfARunAreInOrder(t *testing.T) {
	dir := t.TempDir()
	names := []string{"arm-20261124T140320.000Z.mcap", "arm-20261124T140310.000Z.mcap", "arm-20261124T140315.000Z.mcap"}
	for i, name := range names {
		f := recordtest.Create(t, filepath.Join(dir, name), map[string]string{"instance": "one"})
		f.Tick(&record.Tick{At: rt.Instant(1+i) * second})
		f.Close()
	}
	runs, err := (&Config{Path: dir}).files(nil)
	if err != nil || len(runs) != 1 || len(runs[0]) != len(names) {
		t.Fatalf("%v, %v, want one run", runs, err)
	}
	for i, name := range runs[0] {
		rttest.Want(t, filepath.Base(name), names[i], "file %d", i)
	}
}

// load returns the content of a file.
func load(t *testing.T, path string) []byte {
	t.Helper()
	return rttest.Must(os.ReadFile(path))(t)
}

// A finding about motors names the parts of a robot with several parts, and no other finding does.
func TestFindingsNameTheirParts(t *testing.T) {
	l := &Log{
		Run: map[string]string{"parts": "left,right",
			"joints": "left_pan.pos,left_lift.pos,right_pan.pos,right_lift.pos"},
		events: []happened{
			{Evidence{At: 10 * second}, event.BusLost, 2, 0b1100},
			{Evidence{At: 11 * second}, event.BusBack, 0b1100<<event.CauseBits | 1, 0},
			{Evidence{At: 30 * second}, event.BusLost, 2, 0b0011},
		},
	}
	for _, tt := range []struct {
		cause Cause
		at    rt.Instant
		want  string
	}{
		{BusSilent, 10 * second, "right"}, {Unplugged, 11 * second, "right"}, {BusSilent, 30 * second, "left"},
		{Lost, 10 * second, ""}, {BusSilent, 50 * second, ""},
	} {
		rttest.Want(t, l.partsOf(&Finding{Cause: tt.cause, From: tt.at, To: tt.at}), tt.want, "%s at %v", tt.cause,
			tt.at)
	}
}
