package audit

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
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
)

func sampleRecord() *Record {
	return &Record{
		ClientUUID: "arm-03",
		SessionID:  "00112233445566778899aabbccddeeff",
		Task:       `say "hi"`,
		RTC:        true,
		Header: wire.Header{
			SchemaVersion: 1,
			MsgType:       wire.MsgObservation,
			SeqID:         9,
			EpisodeID:     3,
			ClientMonoNs:  -7,
			SessionEpoch:  4,
		},
		QueueWait:  1500 * time.Microsecond,
		Decode:     250 * time.Microsecond,
		Inference:  2345678 * time.Nanosecond,
		Service:    4100 * time.Microsecond,
		Batch:      4,
		Row:        2,
		Superseded: 2,
		First:      41,
		Rows:       50,
		Controls:   policy.Controls{PrefixLen: 8, Delay: 3, Mode: policy.ModeTrained},
	}
}

// Goal: the audit lines keep their format, because users' scripts and dashboards read them.
func TestAuditLine(t *testing.T) {
	ts := time.Date(2026, 11, 22, 14, 3, 0, 123456789, time.UTC)
	old := sampleRecord()
	old.Stale, old.Cameras = 5, []wire.CameraShape{{Name: "observation.images.top"}, {Name: "wrist"}, {Name: `si"de`}}
	refused := sampleRecord()
	refused.Rows = 0
	refused.Superseded = 0
	refused.Outcome = BadObservation
	refused.Why = "state: got 1,\n\"want\" 2 \xff"
	for _, tt := range []struct {
		name   string
		record *Record
		want   string
	}{
		{"answered", sampleRecord(),
			`{"ts":"2026-11-22T14:03:00.123456Z","session_id":"00112233445566778899aabbccddeeff","client_uuid":"arm-03",` +
				`"session_epoch":4,"model_sha256":"ab12","seq_id":9,"episode_id":3,"client_mono_ns":-7,"queue_wait_ms":1.500,"decode_ms":0.250,"inference_ms":2.346,"service_ms":4.100,` +
				`"batch":4,"row":2,"chunk_range":[41,91],"superseded_seqs":2,"conditioning":"trained","delay":3,"outcome":"ok"}` + "\n"},
		{"old pictures", old,
			`{"ts":"2026-11-22T14:03:00.123456Z","session_id":"00112233445566778899aabbccddeeff","client_uuid":"arm-03",` +
				`"session_epoch":4,"model_sha256":"ab12","seq_id":9,"episode_id":3,"client_mono_ns":-7,"queue_wait_ms":1.500,"decode_ms":0.250,"inference_ms":2.346,"service_ms":4.100,` +
				`"batch":4,"row":2,"chunk_range":[41,91],"superseded_seqs":2,"conditioning":"trained","delay":3,"stale_cameras":["observation.images.top","si\"de"],"outcome":"ok"}` + "\n"},
		{"refused", refused,
			`{"ts":"2026-11-22T14:03:00.123456Z","session_id":"00112233445566778899aabbccddeeff","client_uuid":"arm-03",` +
				`"session_epoch":4,"model_sha256":"ab12","seq_id":9,"episode_id":3,"client_mono_ns":-7,"queue_wait_ms":1.500,"decode_ms":0.250,"inference_ms":2.346,"service_ms":4.100,` +
				`"batch":4,"row":2,"chunk_range":null,"superseded_seqs":0,"conditioning":"trained","delay":3,"outcome":"bad_observation",` +
				`"why":"state: got 1,\u000a\"want\" 2 ` + "\ufffd" + `"}` + "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Want(t, string(appendLine(nil, tt.record, "ab12", ts)), tt.want, "appendLine")
		})
	}
}

// Property: for every text, appendQuoted writes one line of JSON. It decodes to the text, with invalid UTF-8 replaced.
func FuzzAppendQuoted(f *testing.F) {
	for _, s := range []string{"", "plain", "\x00\x1f\x7f\"\\/", "\xff\xc0", "ü\u2028€"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line := appendQuoted(nil, s)
		var got string
		if err := json.Unmarshal(line, &got); err != nil || got != string([]rune(s)) ||
			bytes.ContainsAny(line, "\n\r") {
			t.Errorf("appendQuoted(%q) = %s, which reads as %q, %v", s, line, got, err)
		}
	})
}

func TestFormattingNoAlloc(t *testing.T) {
	record, ts := sampleRecord(), time.Now().UTC()
	s := &request{}
	s.fill(record, make([]byte, 5000), make([]byte, 3000))
	s.attachment = wire.AppendHeader(nil, record.Header)
	line, file := make([]byte, 0, lineMax), make([]byte, 0, 16<<10)
	rttest.NoAllocs(t, "an audit line and a capture allocate %v times, want 0", 100, func() {
		line = appendLine(line[:0], record, sampleOrigin.ModelSHA256, ts)
		s.fill(record, s.observation[:4000], s.reply[:2000])
		file = appendCapture(file[:0], s, &sampleOrigin, 7, ts)
	})
}

// open returns a writer of lines and captures in dir.
func open(t *testing.T, dir string, captureMax int) *Writer {
	t.Helper()
	cfg := manifest.Config{
		Audit: filepath.Join(dir, "audit.jsonl"), Debug: manifest.Debug{CaptureDir: filepath.Join(dir, "captures"),
			CaptureMax: captureMax},
	}
	return rttest.Must(Open(&cfg, rttest.NewClock(1), slog.New(slog.DiscardHandler)))(t)
}

// linesTo returns a writer of lines only.
func linesTo(disk io.Writer, log *slog.Logger) *Writer {
	w := newWriter(rttest.NewClock(1), log)
	w.lines = disk
	return w
}

// stuck is a disk that does not answer.
type stuck struct{ entered, leave chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	s.entered <- struct{}{}
	<-s.leave
	return len(p), nil
}

// While the disk hangs, Add drops and counts lines, and never delays a robot.
func TestAuditNeverBlocksTheWorker(t *testing.T) {
	disk := stuck{make(chan struct{}), make(chan struct{})}
	w := linesTo(disk, slog.New(slog.DiscardHandler))
	stop := w.Start(Origin{ModelSHA256: "5ha"})
	record := sampleRecord()
	w.Add(record, nil, nil)
	<-disk.entered // the writer now hangs in a write; the slot of that line is free again
	for range linesWaiting + 10 {
		w.Add(record, nil, nil)
	}
	rttest.Want(t, w.Counts.LinesDropped.Load(), 10, "lines lost")
	close(disk.leave)
	go func() {
		for range disk.entered {
		}
	}()
	stop()
	close(disk.entered)
	rttest.Want(t, w.Counts.Lines.Load(), linesWaiting+1, "lines written")
}

// A capture that finds no free slot is counted as dropped, like a line.
func TestCapturesNeverBlockTheWorker(t *testing.T) {
	w := open(t, t.TempDir(), 64)
	for range requestsWaiting + 3 {
		w.Add(sampleRecord(), []byte("body"), []byte("reply"))
	}
	rttest.Want(t, w.Counts.CapturesDropped.Load(), 3, "requests that were not captured")
	w.Start(Origin{ModelSHA256: "5ha"})()
	if err := w.Close(); err != nil || w.Counts.Captures.Load() != requestsWaiting {
		t.Errorf("captured %d, %v, want %d", w.Counts.Captures.Load(), err, requestsWaiting)
	}
}

type full struct{ err error }

func (f *full) Write(p []byte) (int, error) { return len(p), f.err }

// A full disk is logged once, not once per line. It is logged again when it fills up a second time.
func TestAuditOnAFullDisk(t *testing.T) {
	var log bytes.Buffer
	disk := &full{errors.New("no space left")}
	w := linesTo(disk, slog.New(slog.NewTextHandler(&log, nil)))
	step := func(err error) {
		disk.err = err
		w.Add(sampleRecord(), nil, nil)
		w.drain()
	}
	step(disk.err)
	step(disk.err)
	if n := strings.Count(log.String(), "no space left"); n != 1 || w.Counts.LinesDropped.Load() != 2 ||
		w.Counts.Lines.Load() != 0 {
		t.Errorf("%d log lines, %d lost, %d written, want 1, 2, 0", n, w.Counts.LinesDropped.Load(),
			w.Counts.Lines.Load())
	}
	step(nil)
	step(errors.New("no space left"))
	if n := strings.Count(log.String(), "no space left"); n != 2 || w.Counts.LinesDropped.Load() != 3 ||
		w.Counts.Lines.Load() != 1 {
		t.Errorf("%d log lines, %d lost, %d written, want 2, 3, 1", n, w.Counts.LinesDropped.Load(),
			w.Counts.Lines.Load())
	}
}

// When only the lines' disk is full, the successful captures on another disk do not cause a log
// message for each lost line.
func TestOneOfTwoFullDisks(t *testing.T) {
	var log bytes.Buffer
	w := open(t, t.TempDir(), 4)
	defer w.Close()
	disk := &full{errors.New("no space left")}
	w.lines, w.log = disk, slog.New(slog.NewTextHandler(&log, nil))
	step := func() {
		w.Add(sampleRecord(), []byte("observation"), []byte("reply"))
		w.drain()
	}
	for range 5 {
		step()
	}
	if n := strings.Count(log.String(), "audit lines are not written"); n != 1 || w.Counts.LinesDropped.Load() != 5 ||
		w.Counts.Captures.Load() != 5 {
		t.Errorf("said %d times, %d lines lost, %d captures; want 1, 5, 5:\n%s", n, w.Counts.LinesDropped.Load(),
			w.Counts.Captures.Load(), &log)
	}
	disk.err = nil
	step()
	step()
	if n := strings.Count(log.String(), "audit lines are written again"); n != 1 ||
		!strings.Contains(log.String(), "lost=5") {
		t.Errorf("its end is said %d times, want once, with what was lost:\n%s", n, &log)
	}
}

func TestNoWriterUnlessConfigured(t *testing.T) {
	if w, err := Open(new(manifest.Config), rttest.NewClock(1), nil); w != nil || err != nil || w.Close() != nil {
		t.Errorf("Open = %v, %v, want none", w, err)
	}
	file := rttest.WriteFile(t, t.TempDir(), "file", "")
	for _, cfg := range []manifest.Config{
		{Audit: filepath.Join(file, "audit")},
		{Debug: manifest.Debug{CaptureDir: file}},
	} {
		rttest.FailsAs(t, rttest.Err(Open(&cfg, rttest.NewClock(1), nil)), manifest.ErrInvalid, file)
	}
}

// With audit and captures on, neither the worker nor the writer's goroutine allocates. An allocated object would never
// be freed, because the server runs with the garbage collector off.
func TestWriterNoAlloc(t *testing.T) {
	w := open(t, t.TempDir(), 4)
	defer w.Close()
	stop := w.Start(Origin{ModelSHA256: "5ha"})
	defer stop()
	record := sampleRecord()
	body := make([]byte, 30_000)
	reply := make([]byte, 3_000)
	records := uint64(0)
	cycle := func() {
		w.Add(record, body, reply)
		for records++; w.Counts.Lines.Load()+w.Counts.LinesDropped.Load() < records ||
			w.Counts.Captures.Load()+w.Counts.CapturesDropped.Load() < records; {
			runtime.Gosched()
		}
	}
	for range 3 * requestsWaiting {
		cycle()
	}
	rttest.NoAllocs(t, "a request's audit line and capture allocate %v times, want 0", 200, cycle)
}

// Goal: half a line at the end of the file does not damage the next line. Half a line may remain from an earlier run,
// or after the disk was full for a moment. Other users may not read the file.
func TestALineBehindHalfALine(t *testing.T) {
	dir := t.TempDir()
	name := rttest.WriteFile(t, dir, "audit.jsonl", "{\"ts\":\"20")
	w := open(t, dir, 1)
	w.Add(sampleRecord(), nil, nil)
	w.Add(sampleRecord(), nil, nil)
	rttest.Do(t, errors.Join(w.Start(Origin{ModelSHA256: "5ha"})(), w.Close()))
	text := rttest.ReadFile(t, name)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 3 || !json.Valid([]byte(lines[1])) || !json.Valid([]byte(lines[2])) {
		t.Errorf("the file holds %q, want the half line and two whole ones", text)
	}
	w = linesTo(&half{}, slog.New(slog.DiscardHandler))
	disk := w.lines.(*half)
	for disk.full = 10; disk.full >= 0; disk.full -= 10 { // the first write is cut off, the second is complete
		w.Add(sampleRecord(), nil, nil)
		w.drain()
	}
	if lines := strings.Split(disk.text, "\n"); len(lines) != 3 || !json.Valid([]byte(lines[1])) {
		t.Errorf("the disk holds %q, want the half line and a whole one", disk.text)
	}
	fresh := t.TempDir()
	w = open(t, fresh, 1)
	for _, file := range []string{"audit.jsonl", "captures/request-00000.safetensors"} {
		if info, err := os.Stat(filepath.Join(fresh, file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", file, info.Mode(), err)
		}
	}
	rttest.Do(t, w.Close())
}

// half is a disk that accepts only the first half.full bytes of a write and then fails. If half.full is 0, it accepts
// all bytes.
type half struct {
	text string
	full int
}

func (h *half) Write(p []byte) (int, error) {
	if h.full > 0 {
		h.text += string(p[:h.full])
		return h.full, errors.New("no space left")
	}
	h.text += string(p)
	return len(p), nil
}

// A file of lines that was deleted, as by logrotate, is created again; captures whose files were deleted are counted as
// dropped.
func TestDeletedFiles(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, 1)
	add := func() {
		w.Add(sampleRecord(), nil, nil)
		w.drain()
	}
	w.captures.origin = Origin{ModelSHA256: "5ha"}
	add()
	for _, name := range rttest.Must(filepath.Glob(filepath.Join(dir, "*")))(t) {
		rttest.Do(t, os.RemoveAll(name))
	}
	add()
	rttest.Do(t, w.Close())
	text := rttest.ReadFile(t, filepath.Join(dir, "audit.jsonl"))
	if c := &w.Counts; strings.Count(text, "\n") != 1 || c.Lines.Load() != 2 || c.CapturesDropped.Load() != 1 {
		t.Errorf("the file has %q; counts %d lines and %d dropped captures, want one line, 2 and 1", text,
			c.Lines.Load(), c.CapturesDropped.Load())
	}
}
