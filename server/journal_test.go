package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/rt/rttest"
	"edgert/server/manifest"
	"edgert/wire"
)

func sampleTurn() *turn {
	s := newSession("arm-03")
	s.id, s.task, s.rtc = "00112233445566778899aabbccddeeff", `say "hi"`, true
	return &turn{
		session: s, header: wire.Header{SchemaVersion: 1, MsgType: wire.MsgObservation, SeqID: 9, EpisodeID: 3, ClientMonoNs: -7, SessionEpoch: 4},
		queueWait: 1500 * time.Microsecond, decode: 250 * time.Microsecond, inference: 2345678 * time.Nanosecond, service: 4100 * time.Microsecond,
		superseded: 2, first: 41, rows: 50, controls: policy.Controls{PrefixLen: 8, Delay: 3, Mode: policy.ModeTrained},
	}
}

// The lines are an interface: scripts and dashboards read them.
func TestAuditLine(t *testing.T) {
	ts := time.Date(2026, 11, 22, 14, 3, 0, 123456789, time.UTC)
	old := sampleTurn()
	old.stale, old.cameras = 5, []wire.CameraShape{{Name: "observation.images.top"}, {Name: "wrist"}, {Name: `si"de`}}
	refused := sampleTurn()
	refused.rows, refused.superseded, refused.outcome, refused.why = 0, 0, badObservation, "state: got 1,\n\"want\" 2 \xff"
	tests := []struct {
		name string
		turn *turn
		want string
	}{
		{"answered", sampleTurn(), `{"ts":"2026-11-22T14:03:00.123456Z","session_id":"00112233445566778899aabbccddeeff","client_uuid":"arm-03",` +
			`"session_epoch":4,"seq_id":9,"episode_id":3,"client_mono_ns":-7,"queue_wait_ms":1.500,"decode_ms":0.250,"inference_ms":2.346,"service_ms":4.100,` +
			`"chunk_range":[41,91],"superseded_seqs":2,"conditioning":"trained","delay":3,"outcome":"ok"}` + "\n"},
		{"old pictures", old, `{"ts":"2026-11-22T14:03:00.123456Z","session_id":"00112233445566778899aabbccddeeff","client_uuid":"arm-03",` +
			`"session_epoch":4,"seq_id":9,"episode_id":3,"client_mono_ns":-7,"queue_wait_ms":1.500,"decode_ms":0.250,"inference_ms":2.346,"service_ms":4.100,` +
			`"chunk_range":[41,91],"superseded_seqs":2,"conditioning":"trained","delay":3,"stale_cameras":["observation.images.top","si\"de"],"outcome":"ok"}` + "\n"},
		{"refused", refused, `{"ts":"2026-11-22T14:03:00.123456Z","session_id":"00112233445566778899aabbccddeeff","client_uuid":"arm-03",` +
			`"session_epoch":4,"seq_id":9,"episode_id":3,"client_mono_ns":-7,"queue_wait_ms":1.500,"decode_ms":0.250,"inference_ms":2.346,"service_ms":4.100,` +
			`"chunk_range":null,"superseded_seqs":0,"conditioning":"trained","delay":3,"outcome":"bad_observation",` +
			`"why":"state: got 1,\u000a\"want\" 2 ` + "\ufffd" + `"}` + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(appendAudit(nil, tt.turn, ts)); got != tt.want {
				t.Errorf("appendAudit =\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// Property: whatever the text, appendQuoted writes one line of JSON that reads
// as the text with what is not UTF-8 replaced.
func FuzzAppendQuoted(f *testing.F) {
	for _, s := range []string{"", "plain", "\x00\x1f\x7f\"\\/", "\xff\xc0", "ü\u2028€"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line := appendQuoted(nil, s)
		var got string
		if err := json.Unmarshal(line, &got); err != nil || got != string([]rune(s)) || bytes.ContainsAny(line, "\n\r") {
			t.Errorf("appendQuoted(%q) = %s, which reads as %q, %v", s, line, got, err)
		}
	})
}

func TestOutcomesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for o := range numOutcomes {
		seen[o.String()] = true
	}
	for r := range numRefused {
		seen["refused "+r.String()] = true
	}
	if len(seen) != int(numOutcomes)+int(numRefused) || seen[""] || seen["refused "] {
		t.Errorf("names = %v, want one for each", seen)
	}
}

func TestFormattingNoAlloc(t *testing.T) {
	turn, ts := sampleTurn(), time.Now().UTC()
	s := &shot{}
	s.fill(turn, make([]byte, 5000), make([]byte, 3000))
	s.attachment = wire.AppendHeader(nil, turn.header)
	line, file := make([]byte, 0, lineMax), make([]byte, 0, 16<<10)
	if n := testing.AllocsPerRun(100, func() {
		line = appendAudit(line[:0], turn, ts)
		s.fill(turn, s.body[:4000], s.reply[:2000])
		file = appendCapture(file[:0], s, "5ha", 7, ts)
	}); n != 0 {
		t.Errorf("an audit line and a capture allocate %v times, want 0", n)
	}
}

// newJournal opens a journal that keeps everything in dir.
func newJournal(t *testing.T, dir string, captureMax int, log io.Writer) *journal {
	t.Helper()
	cfg := config()
	cfg.Audit, cfg.Debug = filepath.Join(dir, "audit.jsonl"), manifest.Debug{CaptureDir: filepath.Join(dir, "captures"), CaptureMax: captureMax}
	j, err := openJournal(&cfg, rttest.NewClock(1), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// start runs the journal until the returned function is called.
func (j *journal) start() (stop func()) {
	var running sync.WaitGroup
	running.Go(j.run)
	return func() {
		close(j.stop)
		running.Wait()
	}
}

type auditLine struct {
	TS         time.Time `json:"ts"`
	Session    string    `json:"session_id"`
	Client     string    `json:"client_uuid"`
	Epoch      uint32    `json:"session_epoch"`
	Seq        uint64    `json:"seq_id"`
	Episode    uint32    `json:"episode_id"`
	Mono       int64     `json:"client_mono_ns"`
	Wait       float64   `json:"queue_wait_ms"`
	Decode     float64   `json:"decode_ms"`
	Inference  float64   `json:"inference_ms"`
	Service    float64   `json:"service_ms"`
	Range      []int64   `json:"chunk_range"`
	Superseded uint64    `json:"superseded_seqs"`
	Mode       string    `json:"conditioning"`
	Delay      int       `json:"delay"`
	Stale      []string  `json:"stale_cameras"`
	Outcome    string    `json:"outcome"`
	Why        string    `json:"why"`
}

func readAudit(t *testing.T, path string) (lines []auditLine) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var a auditLine
		if err := d.Decode(&a); err != nil {
			t.Fatalf("audit line %q: %v", line, err)
		}
		lines = append(lines, a)
	}
	return lines
}

// Every request that had its turn has one line, in order, whatever became of it.
func TestAuditTellsEveryRequest(t *testing.T) {
	dir := t.TempDir()
	j := newJournal(t, dir, 8, io.Discard)
	fail := false
	b := serve(t, config(), func(b *bench) {
		b.journal(j)
		b.server.cfg.WarmupInferences = 0
		b.model.Before = func() error {
			b.clock.Advance(3 * time.Millisecond)
			if fail {
				return policy.ErrRun
			}
			return nil
		}
	})
	o := fakeOpen("arm")
	ack := b.open(o)
	r := b.robot("arm")
	ask := func(seq uint64, obs *wire.Observation) {
		h := obsHeader(2, seq)
		h.EpisodeID = 5
		b.clock.Advance(2 * eventInterval)
		r.send(h, obs)
		r.next()
	}
	good := fakeObs(t)
	good.PrefixRobot, good.InferenceDelaySteps = wire.Matrix{Rows: 3, Cols: 2, Data: make([]float32, 6)}, 2
	good.HasN, good.N = true, 40
	ask(1, good)
	bad := fakeObs(t)
	bad.State = bad.State[:1]
	ask(2, bad)
	fail = true
	ask(3, good)
	fail = false
	b.model.NotFinite.Store(true)
	ask(4, good)
	b.model.NotFinite.Store(false)
	ask(5, fakeObs(t)) // a stock client's: no n
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	lines := readAudit(t, filepath.Join(dir, "audit.jsonl"))
	type row struct {
		seq           uint64
		outcome, mode string
		delay         int
		first, last   int64
		inference     float64
		why           string
	}
	want := []row{
		{seq: 1, outcome: "ok", mode: "trained", delay: 2, first: 41, last: 49, inference: 3},
		{seq: 2, outcome: "bad_observation", mode: "free", why: "state"},
		{seq: 3, outcome: "inference_failed", mode: "trained", delay: 2, inference: 3, why: "inference failed"},
		{seq: 4, outcome: "not_finite", mode: "trained", delay: 2, inference: 3, why: "not finite"},
		{seq: 5, outcome: "ok", mode: "free", first: 0, last: 8, inference: 3},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d audit lines, want %d: %+v", len(lines), len(want), lines)
	}
	for i, w := range want {
		got := lines[i]
		ranged := len(got.Range) == 2 && got.Range[0] == w.first && got.Range[1] == w.last || got.Range == nil && w.last == 0
		if got.Seq != w.seq || got.Outcome != w.outcome || got.Mode != w.mode || got.Delay != w.delay || !ranged || got.Inference != w.inference ||
			!strings.Contains(got.Why, w.why) || (got.Why == "") != (w.why == "") ||
			got.Session != ack.SessionID || got.Client != "arm" || got.Epoch != 2 || got.Episode != 5 || got.Service < got.Inference {
			t.Errorf("line %d = %+v, want %+v", i, got, w)
		}
		if age := time.Since(got.TS); age.Abs() > time.Minute { // the clock of this test runs fast
			t.Errorf("line %d is %v old", i, age)
		}
	}
	if n := j.lines.Load(); n != 5 || j.linesLost.Load() != 0 || j.kept.Load() != 5 || j.keptNot.Load() != 0 {
		t.Errorf("journal wrote %d lines, kept %d, want 5 of each and none lost", n, j.kept.Load())
	}
}

// journal gives the bench's server a journal; serve's cleanup closes it.
func (b *bench) journal(j *journal) {
	b.server.journal, b.server.worker.journal = j, j
	if j.capture != nil {
		j.capture.sha256 = b.server.caps.ModelSHA256
	}
	b.t.Cleanup(func() {
		if err := j.close(); err != nil {
			b.t.Error(err)
		}
	})
}

// stuck is a disk that does not answer.
type stuck struct{ entered, leave chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	s.entered <- struct{}{}
	<-s.leave
	return len(p), nil
}

// A disk that hangs costs lines, which are counted, and never a robot's time.
func TestAuditNeverBlocksTheWorker(t *testing.T) {
	disk := stuck{make(chan struct{}), make(chan struct{})}
	j := &journal{
		audit: disk, clock: rttest.NewClock(1), log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1), stop: make(chan struct{}),
		turns: rt.NewRing[turn](turnsWaiting),
	}
	stop := j.start()
	turn := sampleTurn()
	j.note(turn, nil, nil)
	<-disk.entered // the journal hangs with one line written out and its slot free again
	for range turnsWaiting + 10 {
		j.note(turn, nil, nil)
	}
	if n := j.linesLost.Load(); n != 10 {
		t.Errorf("lost = %d lines, want 10", n)
	}
	close(disk.leave)
	go func() {
		for range disk.entered {
		}
	}()
	stop()
	close(disk.entered)
	if n := j.lines.Load(); n != turnsWaiting+1 {
		t.Errorf("wrote %d lines, want %d", n, turnsWaiting+1)
	}
}

// A capture whose slots are all taken is counted as well.
func TestCapturesNeverBlockTheWorker(t *testing.T) {
	j := newJournal(t, t.TempDir(), 64, io.Discard)
	for range shotsWaiting + 3 {
		j.note(sampleTurn(), []byte("body"), []byte("reply"))
	}
	if n := j.keptNot.Load(); n != 3 {
		t.Errorf("not captured = %d, want 3", n)
	}
	j.start()()
	if err := j.close(); err != nil || j.kept.Load() != shotsWaiting {
		t.Errorf("captured %d, %v, want %d", j.kept.Load(), err, shotsWaiting)
	}
}

type full struct{ err error }

func (f *full) Write(p []byte) (int, error) { return len(p), f.err }

// A full disk is logged once, not once per line, and again after it had room.
func TestAuditOnAFullDisk(t *testing.T) {
	var log bytes.Buffer
	disk := &full{errors.New("no space left")}
	j := &journal{audit: disk, clock: rttest.NewClock(1), log: slog.New(slog.NewTextHandler(&log, nil)), wake: make(chan struct{}, 1), turns: rt.NewRing[turn](8)}
	step := func(err error) {
		disk.err = err
		j.note(sampleTurn(), nil, nil)
		j.drain()
	}
	step(disk.err)
	step(disk.err)
	if n := strings.Count(log.String(), "no space left"); n != 1 || j.linesLost.Load() != 2 || j.lines.Load() != 0 {
		t.Errorf("%d log lines, %d lost, %d written, want 1, 2, 0", n, j.linesLost.Load(), j.lines.Load())
	}
	step(nil)
	step(errors.New("no space left"))
	if n := strings.Count(log.String(), "no space left"); n != 2 || j.linesLost.Load() != 3 || j.lines.Load() != 1 {
		t.Errorf("%d log lines, %d lost, %d written, want 2, 3, 1", n, j.linesLost.Load(), j.lines.Load())
	}
}

func TestNoJournalUnlessAsked(t *testing.T) {
	cfg := config()
	if j, err := openJournal(&cfg, rttest.NewClock(1), nil); j != nil || err != nil || j.close() != nil {
		t.Errorf("openJournal = %v, %v, want none", j, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*manifest.Config){
		func(c *manifest.Config) { c.Audit = filepath.Join(file, "audit") },
		func(c *manifest.Config) { c.Debug.CaptureDir = file },
	} {
		cfg := config()
		change(&cfg)
		if _, err := openJournal(&cfg, rttest.NewClock(1), nil); !errors.Is(err, manifest.ErrInvalid) || !strings.Contains(err.Error(), file) {
			t.Errorf("openJournal = %v, want manifest.ErrInvalid and the path", err)
		}
	}
}

// With audit and captures on, neither the worker nor the journal's goroutine
// allocates: the collector is off, so every object would stay.
func TestJournalNoAlloc(t *testing.T) {
	j := newJournal(t, t.TempDir(), 4, io.Discard)
	defer j.close()
	stop := j.start()
	defer stop()
	turn, body, reply := sampleTurn(), make([]byte, 30_000), make([]byte, 3_000)
	turns := uint64(0)
	cycle := func() {
		j.note(turn, body, reply)
		for turns++; j.lines.Load()+j.linesLost.Load() < turns || j.kept.Load()+j.keptNot.Load() < turns; {
			runtime.Gosched()
		}
	}
	for range 3 * shotsWaiting {
		cycle()
	}
	if n := testing.AllocsPerRun(200, cycle); n != 0 {
		t.Errorf("a request's audit line and capture allocate %v times, want 0", n)
	}
}
