package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/foxglove/mcap/go/mcap"
	"github.com/pierrec/lz4/v4"
)

// A task is kept whole up to the length that an observation may carry. Other long texts are cut
// between two characters and end in an ellipsis.
func TestTextsAreNotCutSilently(t *testing.T) {
	task := strings.Repeat("hebe den Würfel auf ", 1+MaxTask/20)[:MaxTask]
	for _, text := range []string{task, strings.Repeat("ü", 120), strings.Repeat("把", 80) + "x", ""} {
		var e, back Episode
		e.Task.Set(text)
		if err := parse(&back, Append(nil, &e, 0), 0); err != nil || back.Task.String() != text {
			t.Errorf("%v: %q is %q, want it whole", err, text, back.Task.String())
		}
	}
	for _, text := range []string{strings.Repeat("x", 241), "x" + strings.Repeat("ü", 140), strings.Repeat("把", 100),
		"xx" + strings.Repeat("\U0001f916", 70)} {
		var cut, same Text
		cut.Set(text)
		same.setBytes([]byte(text))
		got := cut.String()
		if !utf8.ValidString(got) || len(got) > maxText || len(got) < maxText-5 || !strings.HasSuffix(got, ellipsis) ||
			!strings.HasPrefix(text, strings.TrimSuffix(got, ellipsis)) {
			t.Errorf("%q is %q, want its beginning and an ellipsis", text, got)
		}
		if got != same.String() || !cut.Is(text) || cut.Is(text[:200]) {
			t.Errorf("%q: Set, SetBytes and Is differ", text)
		}
	}
	// An older edge-rt cut a task at 240 bytes, also within a character.
	old := append([]byte{0x2a, 0xf0, 0x01}, strings.Repeat("x", 239)+"\xe6"...)
	var e Episode
	if err := parse(&e, old, 0); err != nil || e.Task.String() != strings.Repeat("x", 239) || !e.Task.Cut() {
		t.Errorf("%v: an old task is %q, cut %v", err, e.Task.String(), e.Task.Cut())
	}
}

// Control characters that a terminal would obey reach no reader of a record.
func TestRecordsAreSafeForATerminal(t *testing.T) {
	const evil = "a\x1b]0;x\x07\u009b31m\x00\xff"
	const want = `a\x1b]0;x\a\u009b31m\x00\xff`
	s := Session{ID: evil, Service: evil, ServerID: evil, Model: evil, Revision: evil, SHA256: evil}
	r, clock := recorderAt(t, Config{Mode: All})
	r.SetRun(map[string]string{"id": evil, "model": evil, evil: "x"})
	r.NoteSession(clock.Now(), &s)
	r.NoteEpisode(clock.Now(), 1, false, "", evil)
	send(r.Merges, Chunk{At: clock.Now(), Outcome: evil, Session: &s})
	r.Note(clock.Now(), evil, LevelInfo, evil)
	r.Collect()
	endRun(r)
	n := 0
	is := func(texts ...string) error {
		n++
		for _, got := range texts {
			rttest.Want(t, got, want, "is read")
		}
		return nil
	}
	infos, err := ReadFolder(r.cfg.Dir, Visitor{
		Session: func(m *Session) error { return is(m.ID, m.Service, m.ServerID, m.Model, m.Revision, m.SHA256) },
		Chunk:   func(m *Chunk) error { return is(m.Outcome, m.Session.ID, m.Session.Model) },
		Episode: func(m *Episode) error { return is(m.Task.String()) },
		Event: func(m *Event) error {
			if m.Kind != "link" {
				return is(m.Kind, m.Text.String())
			}
			return nil
		},
	})
	if err != nil || len(infos) != 1 || n != 4 {
		t.Fatalf("%d files, %d messages, %v", len(infos), n, err)
	}
	is(infos[0].Run["id"], infos[0].Run["model"])
	rttest.Want(t, infos[0].Run[want], "x", "the run")
}

var wrongNames = []string{
	"", "x/../../../victim", "/etc", "..", ".", ".hidden", `a\b`, "a\x00b", "a\x1b[31m", "a\nb", "a,b", "a=b",
	"a\u202eb", "\xff", strings.Repeat("n", 65),
}

// Every reader refuses a record with an invalid camera name.
func TestCamerasHaveNames(t *testing.T) {
	for _, name := range []string{"top", "front_left", "Kamera-größe", "cam.0", "left wrist", strings.Repeat("n", 64)} {
		if err := CheckCamera(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	r, _ := recorderAt(t, Config{Mode: All})
	rttest.Fails(t, r.SetCameras([]string{"top", "top"}))
	for _, name := range wrongNames {
		if err := CheckCamera(name); err == nil || strings.ContainsAny(err.Error(), "\x1b\x00\n\u202e") {
			t.Errorf("%q: %v, want a refusal that is safe to print", name, err)
		}
		if err := r.SetCameras([]string{name}); err == nil {
			t.Errorf("camera %q is recorded", name)
		}
		for where, metadata := range map[string]map[string]string{
			"topic":    {"clock_offset_ns": "0"},
			"frame_id": {"clock_offset_ns": "0"},
			"metadata": {"clock_offset_ns": "0", "cameras": name},
		} {
			if name == "" && where == "metadata" || strings.Contains(name, ",") && where == "metadata" {
				continue // run without cameras, and with two cameras
			}
			topic, frame := CameraTopic+"top", "top"
			if where == "topic" {
				topic = CameraTopic + name
			}
			if where == "frame_id" {
				frame = name
			}
			seen := 0
			file := foreign(t, topic, &Image{Data: Bytes{A: []byte("x")}, Camera: frame}, 0, metadata)
			if _, err := Read(file, Visitor{Image: func(*Image) error { seen++; return nil }}); err == nil || seen > 0 {
				t.Errorf("%q as %s: %v, %d pictures; want a refusal", name, where, err, seen)
			}
		}
	}
}

// setBack returns a recorder whose time of day is set while it records.
func setBack(t *testing.T, by time.Duration) (r *Recorder, run func(time.Duration)) {
	r, c := recorderAt(t, Config{Mode: Ring, Cameras: []string{"top"}})
	now, began := r.cfg.Now, c.Now()
	r.cfg.Now = func() time.Time {
		if c.Now().Sub(began) > 4*time.Second {
			return now().Add(by)
		}
		return now()
	}
	step := int64(0)
	return r, func(d time.Duration) {
		for end := c.Now().Add(d); c.Now() < end; step++ {
			pass(r, step, fmt.Appendf(nil, "picture %d", c.Now().Add(100*time.Millisecond)))
		}
	}
}

// When the time of day is set while pictures wait in memory, each picture keeps its instant. In the
// file, the picture's time of day has the same base as those of all other messages.
func TestClockStepsMoveNoPicture(t *testing.T) {
	for _, by := range []time.Duration{-10 * time.Second, 10 * time.Second, -24 * time.Hour} {
		r, run := setBack(t, by)
		run(3500 * time.Millisecond)
		why := "a person asked"
		r.Save(&why, true)
		run(300 * time.Millisecond)
		run(6 * time.Second) // the time of day is set while this run records
		r.Save(&why, true)
		run(6 * time.Second)
		endRun(r)
		pictures := 0
		if _, err := ReadFolder(r.cfg.Dir, Visitor{Image: func(m *Image) error {
			pictures++
			if want := fmt.Sprintf("picture %d", m.At); string(m.Data.A) != want {
				t.Errorf("set by %v: %q has the instant %d", by, m.Data.A, m.At)
			}
			return nil
		}}); err != nil || pictures < 100 {
			t.Fatalf("%d pictures, %v", pictures, err)
		}
		names, err := Files(r.cfg.Dir, "")
		if err != nil || len(names) < 2 {
			t.Fatalf("%d files, %v; want one from before and one from after", len(names), err)
		}
		for _, name := range names { // other readers need the picture's own stamp to equal the time of its message
			data := load(t, name)
			rttest.Must(scan(bytes.NewReader(data), func(token mcap.TokenType, record []byte) error {
				if token != mcap.TokenMessage {
					return nil
				}
				m, err := mcap.ParseMessage(record)
				if err != nil || m.ChannelID < channelCamera {
					return err
				}
				var i Image
				if err := parse(&i, m.Data, 0); err != nil || uint64(i.At) != m.LogTime {
					t.Errorf("set by %v: %v, a picture's stamp is %d, its message's %d", by, err, i.At, m.LogTime)
				}
				return nil
			}))(t)
		}
	}
}

// In an older record a picture may have been encoded before the time of day was set, and written afterwards. Read
// returns the instant at which such a picture was taken. It does the same for a picture that another program has
// written before the run's metadata. It refuses a file without metadata, or with the metadata of two runs.
func TestOldPicturesAreWhereTheirMessagesAre(t *testing.T) {
	set, other := map[string]string{"clock_offset_ns": fmt.Sprint(after)}, map[string]string{"clock_offset_ns": "1"}
	for refusal, all := range map[string][][]map[string]string{
		"<nil>":       {{set}, {nil, set}},
		"no metadata": {{nil}},
		"merged":      {{set, other}},
	} {
		for _, runs := range all {
			seen := 0
			_, err := Read(foreign(t, CameraTopic+"top", &Image{At: 5_000, Camera: "top"}, before, runs...), Visitor{
				Image: func(m *Image) error {
					if seen++; m.At != 5_000 {
						t.Errorf("the picture is of %d, want 5000", m.At)
					}
					return nil
				}})
			if !strings.Contains(fmt.Sprint(err), refusal) || err == nil && seen != 1 {
				t.Errorf("%v: %d pictures, %v; want %s", runs, seen, err, refusal)
			}
		}
	}
}

// The time of day before it was set, and the time of day after.
const before, after = 1_764_000_010_000_000_000, 1_764_000_000_000_000_000

// foreign returns a file as another program writes it: the metadata of the first element of runs (nil: no metadata),
// a picture, and the metadata of the other elements.
func foreign(t *testing.T, topic string, image *Image, wall int64, runs ...map[string]string) *bytes.Reader {
	var b bytes.Buffer
	w := rttest.Must(mcap.NewWriter(&b, &mcap.WriterOptions{}))(t)
	w.WriteHeader(&mcap.Header{Profile: Profile})
	for i, run := range runs {
		if run != nil {
			w.WriteMetadata(&mcap.Metadata{Name: RunMetadata, Metadata: run})
		}
		if i == 0 {
			w.WriteChannel(&mcap.Channel{ID: 1, Topic: topic, MessageEncoding: "protobuf"})
			w.WriteMessage(&mcap.Message{ChannelID: 1, LogTime: after + uint64(image.At),
				Data: Append(nil, image, wall)})
		}
	}
	w.Close()
	return bytes.NewReader(b.Bytes())
}

// halves compresses a chunk as two lz4 frames, which the format allows.
type halves struct {
	bytes.Buffer
	to io.Writer
}

func (h *halves) Reset(to io.Writer) {
	h.Buffer.Reset()
	h.to = to
}

func (h *halves) Close() error {
	var err error
	for _, half := range [][]byte{h.Next(h.Len() / 2), h.Bytes()} {
		frame := lz4.NewWriter(h.to)
		_, failed := frame.Write(half)
		err = errors.Join(err, failed, frame.Close())
	}
	return err
}

// A chunk that another program has compressed as several lz4 frames is read whole.
func TestChunksOfSeveralFrames(t *testing.T) {
	var b bytes.Buffer
	w := rttest.Must(mcap.NewWriter(&b, &mcap.WriterOptions{
		Chunked:     true,
		IncludeCRC:  true,
		Compression: mcap.CompressionLZ4,
		Compressor:  mcap.NewCustomCompressor(mcap.CompressionLZ4, new(halves)),
	}))(t)
	w.WriteHeader(&mcap.Header{Profile: Profile})
	w.WriteMetadata(&mcap.Metadata{Name: RunMetadata, Metadata: map[string]string{"clock_offset_ns": "1"}})
	w.WriteChannel(&mcap.Channel{ID: 1, Topic: TickTopic, MessageEncoding: "protobuf"})
	for i := range 100 {
		w.WriteMessage(&mcap.Message{ChannelID: 1, Data: Append(nil, &Tick{At: rt.Instant(i)}, 1)})
	}
	w.Close()
	var seen rt.Instant
	info, err := Read(bytes.NewReader(b.Bytes()), Visitor{Tick: func(m *Tick) error {
		rttest.Want(t, m.At, seen, "the instant")
		seen++
		return nil
	}})
	if err != nil || info.Torn || seen != 100 {
		t.Errorf("%d ticks, torn %v (%v), %v; want 100", seen, info.Torn, info.Cause, err)
	}
}

// The names of files stay in order of time after the time of day was set back, so that the oldest files are deleted
// first.
func TestClockStepsKeepTheOrderOfFiles(t *testing.T) {
	dir := t.TempDir()
	d := folder{dir: dir, size: 1 << 30, disk: func(string) (int64, int64) { return 0, 0 }}
	base := time.Date(2026, 11, 24, 14, 0, 0, 0, time.UTC)
	var made []string
	for _, at := range []time.Time{base, base.Add(-10 * time.Second), base.Add(-10 * time.Second),
		base.Add(time.Second), base.Add(-24 * 365 * time.Hour), base.Add(2 * time.Second)} {
		for _, id := range []string{"a", "b"} {
			f := rttest.Must(d.create(id, at))(t)
			made = append(made, filepath.Base(f.Name()))
			rttest.Do(t, f.Close())
		}
	}
	entries, _, err := d.list()
	rttest.Do(t, err)
	var listed []string
	for _, e := range entries {
		listed = append(listed, e.name)
	}
	if !slices.Equal(listed, made) {
		t.Errorf("files are deleted in the order\n%q, and were made in\n%q", listed, made)
	}
	rttest.Want(t, made[len(made)-1], nameAt("b", base.Add(2*time.Second+time.Millisecond)),
		"the last (the time of day again once it is later)")
}

// A read error of the disk is not the end of a record.
func TestADiskThatFailsIsNoEnd(t *testing.T) {
	_, whole := writeChunks(t, 6)
	discarding := rttest.Must(mcap.NewWriter(io.Discard, &mcap.WriterOptions{}))(t)
	for _, at := range []int{0, 3, len(mcap.Magic), 100, len(whole) / 3, len(whole) / 2, len(whole) - 10} {
		fails := func() io.Reader {
			return io.MultiReader(bytes.NewReader(whole[:at]), iotest.ErrReader(os.ErrDeadlineExceeded))
		}
		rttest.FailsAs(t, rttest.Err(Read(fails(), Visitor{})), os.ErrDeadlineExceeded)
		rttest.FailsAs(t, copyWhole(fails(), discarding), os.ErrDeadlineExceeded) // a repair of this file
	}
}

// A file that is damaged before its end stays as it is, since whole chunks follow the damage.
func TestRepairLosesNoWholeChunk(t *testing.T) {
	name, whole := writeChunks(t, 12)
	for what, damage := range map[string]func([]byte){
		"a byte":  func(b []byte) { b[len(b)/3] ^= 0x55 },
		"a block": func(b []byte) { clear(b[len(b)/3 : len(b)/3+200]) },
	} {
		torn := slices.Clone(whole[:len(whole)*5/6])
		damage(torn)
		dir := t.TempDir()
		file := rttest.WriteFile(t, dir, name, torn)
		var reports []Report
		r, _ := recorderAt(t, Config{Mode: Ring, Dir: dir, Report: func(x Report) { reports = append(reports, x) }})
		r.Repair(new(atomic.Bool))
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, torn) {
			t.Errorf("%s: the file was replaced, %v", what, err)
		}
		if s := r.Stats(); s.Repaired != 0 || len(reports) != 1 || !errors.Is(reports[0].Err, errDamaged) {
			t.Errorf("%s: %+v, %v", what, s, reports)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 1 {
			t.Errorf("%s: %v is left beside it", what, left)
		}
	}
}
