package record

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/foxglove/mcap/go/mcap"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// times returns the number of repetitions of a randomised test; RECORD_TORN sets it for all such
// tests.
func times(t *testing.T, few int) int {
	if text := os.Getenv("RECORD_TORN"); text != "" {
		return rttest.Must(strconv.Atoi(text))(t)
	}
	return few
}

// On a file system without locks, a file without an end counts as being written until a minute after its last change.
func TestAFileSystemWithoutLocks(t *testing.T) {
	name, whole := writeChunks(t, 1)
	path := rttest.WriteFile(t, t.TempDir(), name, whole[:len(whole)-9])
	f := rttest.Must(os.OpenFile(path, unix.O_PATH, 0))(t) // locking such a descriptor fails
	defer f.Close()
	rttest.Want(t, Written(f), true, "a file that has just changed is written")
	long := time.Now().Add(-time.Hour)
	rttest.Do(t, os.Chtimes(path, long, long))
	rttest.Want(t, Written(f), false, "a file that changed an hour ago is written")
}

// Without locks, no record begins, no try leaves an empty file, and the probe at the start names the reason.
func TestAFolderWithoutLocks(t *testing.T) {
	defer func() { lockFile = child.Lock }()
	lockFile = func(*os.File) error { return unix.EOPNOTSUPP }
	dir := t.TempDir()
	d := folder{dir: dir, size: 1 << 30, disk: diskOf}
	for _, err := range []error{rttest.Err(d.create("arm", time.Now())), Probe(dir)} {
		rttest.Fails(t, err, "records need a file system with locks")
	}
	if left := rttest.Must(os.ReadDir(dir))(t); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

const perChunk = 50 // number of ticks in a chunk of writeChunks

// writeChunks writes a file with this number of chunks, and returns its name and its content.
func writeChunks(t *testing.T, chunks int) (name string, whole []byte) {
	t.Helper()
	r, clock := recorderAt(t, Config{Mode: All, Cameras: []string{"top"}})
	r.SetRun(map[string]string{"joints": "a,b"})
	step := int64(0)
	for range chunks {
		for range perChunk {
			tick(r, clock.Now(), step)
			step++
			clock.Advance(chunkTime/perChunk + 1)
			write(r, clock.Now(), false)
		}
		r.Image(0, clock.Now(), Bytes{A: []byte("picture "), C: make([]byte, 3000)})
	}
	endRun(r)
	entries, _, err := r.writer.folder.list()
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	return entries[0].name, load(t, filepath.Join(r.cfg.Dir, entries[0].name))
}

// Goal: an attachment that another program has added does not count as damage, however large it is. A file that ends
// within an attachment is torn.
func TestAttachmentsAreNotRead(t *testing.T) {
	_, whole := writeChunks(t, 2)
	withoutSum(whole)
	const large = maxRecord + 1
	// the position after the header
	at := len(mcap.Magic) + recordHead + int(binary.LittleEndian.Uint64(whole[len(mcap.Magic)+1:]))
	head := binary.LittleEndian.AppendUint64([]byte{byte(mcap.OpAttachment)}, large)
	zeros := make([]byte, large)
	for _, cut := range []int{0, 1} {
		ticks := 0
		parts := []io.Reader{bytes.NewReader(whole[:at]), bytes.NewReader(head), bytes.NewReader(zeros[cut:])}
		if cut == 0 {
			parts = append(parts, bytes.NewReader(whole[at:]))
		}
		info, err := Read(io.MultiReader(parts...), Visitor{Tick: func(*Tick) error { ticks++; return nil }})
		if err != nil || info.Torn != (cut > 0) || (ticks == 2*perChunk) != (cut == 0) {
			t.Errorf("%d bytes missing: %d ticks, torn %v, %v", cut, ticks, info.Torn, err)
		}
	}
}

// emptyEnd compresses like programs that end a chunk with an empty block.
type emptyEnd struct{ *zstd.Encoder }

func (e emptyEnd) Close() error { return errors.Join(e.Flush(), e.Encoder.Close()) }

// The records after a chunk that ends with an empty block are read, and no goroutine reads the file
// at the same time (with -race).
func TestChunksThatEndWithAnEmptyBlock(t *testing.T) {
	var b bytes.Buffer
	w := rttest.Must(mcap.NewWriter(&b, &mcap.WriterOptions{Chunked: true, ChunkSize: 1,
		Compressor: mcap.NewCustomCompressor("zstd", emptyEnd{rttest.Must(zstd.NewWriter(nil))(t)})}))(t)
	rttest.Do(t, w.WriteHeader(&mcap.Header{Profile: Profile}))
	const chunks = 500
	rttest.Do(t, w.WriteChannel(&mcap.Channel{}))
	for range chunks {
		w.WriteMessage(&mcap.Message{})
	}
	rttest.Do(t, w.Close())
	read := 0
	ended, err := scan(&b, func(token mcap.TokenType, _ []byte) error {
		if token == mcap.TokenMessage {
			read++
		}
		return nil
	})
	if err != nil || !ended || read != chunks {
		t.Errorf("%d of %d messages, ended %v, %v", read, chunks, ended, err)
	}
}

// A file that a power cut has cut within its first bytes, or that has only zeros, is torn like any other.
func TestCutInTheFirstBytes(t *testing.T) {
	_, whole := writeChunks(t, 1)
	for n := 1; n < 60; n++ {
		for _, data := range [][]byte{whole[:n], make([]byte, n)} {
			if info, err := Read(bytes.NewReader(data), Visitor{}); err != nil || !info.Torn || info.Cause == nil {
				t.Errorf("%q: %+v, %v; want a torn file", data, info, err)
			}
		}
	}
}

// withoutSum removes the checksum of a file's data, since a test changes the data.
func withoutSum(whole []byte) {
	end := []byte{byte(mcap.OpDataEnd), 4, 0, 0, 0, 0, 0, 0, 0}
	clear(whole[bytes.LastIndex(whole, end)+recordHead:][:4])
}

// The checksum of the data finds damage that the library skips, and damage outside of the chunks.
func TestDamageOutsideOfTheChunks(t *testing.T) {
	_, whole := writeChunks(t, 3)
	for _, tt := range []struct {
		name, text string
		from       int // bytes from the start of text to the damaged byte
	}{
		{"the opcode of a chunk", "zstd", -41},
		{"a joint's name in the metadata", "a,b", 0},
	} {
		damaged := slices.Clone(whole)
		damaged[bytes.Index(whole, []byte(tt.text))+tt.from] ^= 0x40
		if info, err := Read(bytes.NewReader(damaged), Visitor{}); err != nil || !info.Torn {
			t.Errorf("%s: torn %v, %v, want torn", tt.name, info.Torn, err)
		}
	}
}

// inWholeChunks returns the number of messages in the chunks that end before byte cut, from the
// file's own index.
func inWholeChunks(t *testing.T, whole []byte, cut int) (n int) {
	t.Helper()
	reader := rttest.Must(mcap.NewReader(bytes.NewReader(whole)))(t)
	defer reader.Close()
	info := rttest.Must(reader.Info())(t)
	for _, chunk := range info.ChunkIndexes {
		if int(chunk.ChunkStartOffset+chunk.ChunkLength) <= cut {
			_, err := scan(io.MultiReader(bytes.NewReader(mcap.Magic),
				bytes.NewReader(whole[chunk.ChunkStartOffset:chunk.ChunkStartOffset+chunk.ChunkLength])),
				func(token mcap.TokenType, _ []byte) error {
					if token == mcap.TokenMessage {
						n++
					}
					return nil
				})
			if err == nil {
				t.Fatal("a chunk alone has no end")
			}
		}
	}
	return n
}

// repairIn lets a new recorder repair the files in a folder.
func repairIn(t *testing.T, dir string) Stats {
	t.Helper()
	r, _ := recorderAt(t, Config{Mode: Ring, Dir: dir})
	r.Repair(new(atomic.Bool))
	return r.Stats()
}

// A file that is cut anywhere is readable up to its last whole chunk, and the next start completes it. A wrong byte may
// cost the data that follow, but no reader panics.
func TestFilesCutAndDamagedAnywhere(t *testing.T) {
	name, whole := writeChunks(t, 12)
	random := rand.New(rand.NewPCG(1, 2))
	var ticks []Tick
	rttest.Must(Read(bytes.NewReader(whole), Visitor{Tick: func(m *Tick) error {
		ticks = append(ticks, *m)
		return nil
	}}))(t)
	for i := range times(t, 25) {
		cut := len(mcap.Magic) + 40 + random.IntN(len(whole)-len(mcap.Magic)-40)
		want := inWholeChunks(t, whole, cut)
		dir := t.TempDir()
		file := rttest.WriteFile(t, dir, name, whole[:cut])
		steps, _, pictures, infos := contents(t, dir)
		if len(steps)+pictures != want || !infos[0].Torn {
			t.Fatalf("cut at %d of %d: %d ticks and %d pictures, torn %v; want %d together", cut, len(whole),
				len(steps), pictures, infos[0].Torn, want)
		}
		if s := repairIn(t, dir); s.Repaired != 1 {
			t.Fatalf("cut at %d: %+v, want it repaired", cut, s)
		}
		repaired := load(t, file)
		again, _, pictures, infos := contents(t, dir)
		if !slices.Equal(again, steps) || len(again)+pictures != want || infos[0].Torn ||
			inWholeChunks(t, repaired, len(repaired)) != want {
			t.Fatalf("cut at %d, repaired: %d ticks and %d pictures, %+v; want %d together", cut, len(again), pictures,
				infos[0], want)
		}
		rttest.Want(t, repairIn(t, dir).Repaired, 0, "it is repaired twice")

		damaged := slices.Clone(whole)
		at := len(mcap.Magic) + 40 + random.IntN(len(whole)-len(mcap.Magic)-40)
		damaged[at] ^= byte(1 + random.IntN(255))
		read, step := 0, 0
		Read(bytes.NewReader(damaged), Visitor{Tick: func(m *Tick) error {
			if step >= len(ticks) || fmt.Sprint(*m) != fmt.Sprint(ticks[step]) {
				t.Errorf("damaged at %d: tick %d is %+v", at, step, m)
			}
			read, step = read+1, step+1
			return nil
		}, Image: func(*Image) error { read++; return nil }})
		if atLeast := inWholeChunks(t, whole, at); read < atLeast {
			t.Errorf("try %d, damaged at %d of %d: %d messages, want the %d before it", i, at, len(whole), read,
				atLeast)
		}
	}
}

// The repair does not touch a stranger's file, a file that another process is writing, and a
// complete file.
func TestRepairTouchesOnlyWhatIsTornAndOurs(t *testing.T) {
	name, whole := writeChunks(t, 3)
	dir := t.TempDir()
	torn := whole[:len(whole)/2]
	strange := bytes.Replace(slices.Clone(torn), []byte(Profile), []byte("strange"), 1)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	files := map[string][]byte{
		name:                            whole,
		nameAt("stranger", at):          strange,
		nameAt("empty", at):             nil,
		nameAt("text", at):              []byte(strings.Repeat("no record at all ", 10)),
		"notes.mcap":                    torn,
		nameAt("x", at) + ".bak":        torn,
		nameAt("inuse", at):             torn,
		"arm-20260101T000000.0Z.mcap":   torn,
		nameAt("inuse", at) + ".repair": torn,
		"notes.mcap.repair":             torn,
	}
	for name, data := range files {
		put(t, dir, name, data)
	}
	rttest.Do(t, os.Symlink(filepath.Join(dir, "notes.mcap"), filepath.Join(dir, nameAt("link", at))))
	orphan := rttest.WriteFile(t, dir, nameAt("gone", at)+repairing, torn)
	used := rttest.Must(folder{dir: dir}.claim(nameAt("inuse", at)))(t)
	defer used.Close()
	rttest.Want(t, repairIn(t, dir).Repaired, 0, "repairIn(t, dir).Repaired")
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s was changed: %d bytes, want %d, %v", name, len(got), len(want), err)
		}
	}
	if _, err := os.Stat(orphan); err == nil {
		t.Error("the remains of a repair stay although their file is gone")
	}
}

// A run that ends does not wait for the repair of other runs' files.
func TestRepairEndsWithTheRun(t *testing.T) {
	name, whole := writeChunks(t, 3)
	dir := t.TempDir()
	put(t, dir, name, whole[:len(whole)/2])
	r, _ := recorderAt(t, Config{Mode: Ring, Dir: dir})
	var stop atomic.Bool
	stop.Store(true)
	if r.Repair(&stop); r.Stats().Repaired != 0 {
		t.Error("a file was repaired after the end")
	}
	rttest.Want(t, repairIn(t, dir).Repaired, 1, "repairIn(t, dir).Repaired (the next start to repair it)")
}

// A process that is killed at any moment loses only the open chunk.
func TestKilledAtAnyMoment(t *testing.T) {
	if dir := os.Getenv("RECORD_CHILD"); dir != "" {
		writeUntilKilled(dir)
		return
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range times(t, 5) {
		dir := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run", "^TestKilledAtAnyMoment$")
		child.Env = append(os.Environ(), "RECORD_CHILD="+dir)
		out := rttest.Must(child.StdoutPipe())(t)
		rttest.Do(t, child.Start())
		lines, chunks := bufio.NewScanner(out), 0
		for limit := 1 + random.IntN(40); chunks < limit && lines.Scan(); {
			fmt.Sscanf(lines.Text(), "chunk %d", &chunks)
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond) // any moment of the next chunk
		child.Process.Kill()
		for lines.Scan() {
			fmt.Sscanf(lines.Text(), "chunk %d", &chunks)
		}
		child.Wait()
		check := func(when string, torn bool) {
			steps, _, _, infos := contents(t, dir)
			if len(infos) != 1 || infos[0].Torn != torn || len(steps) < chunks*perChunk ||
				int(steps[len(steps)-1]) != len(steps)-1 || !slices.IsSorted(steps) {
				t.Fatalf("%s: %+v, %d ticks, want %d of %d chunks or more, from 0 on", when, infos, len(steps),
					chunks*perChunk, chunks)
			}
		}
		check("killed", true)
		if s := repairIn(t, dir); s.Repaired != 1 {
			t.Fatalf("%+v, want it repaired", s)
		}
		check("repaired", false)
	}
}

// writeUntilKilled writes chunks as fast as it can, and prints after each the number of chunks on
// the disk.
func writeUntilKilled(dir string) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	r := rttest.OrPanic(New(Config{Mode: All, Dir: dir, Size: 1 << 30, ID: "arm", Clock: clock}))
	step := int64(0)
	for chunk := 0; ; chunk++ {
		for range perChunk {
			fillTick(r.Ticks.Put(), clock.Now(), step)
			r.Ticks.Commit()
			step++
		}
		r.Collect()
		clock.Advance(2 * chunkTime)
		if err := r.writer.step(clock.Now(), false); err != nil { // this step's first message ends the previous chunk
			panic(err)
		}
		fmt.Println("chunk", chunk)
	}
}

// judged is the output of testdata/judge.py.
type judged struct {
	Topics map[string]struct {
		Schema, Encoding string
		Messages, Gaps   int
		First, Last      map[string]any
		LogTime          uint64 `json:"log_time"`
	}
	Metadata   map[string]map[string]string
	Torn       string
	Chunks     []string
	Statistics map[string]int
}

// judge runs the official reader on a file, or skips the test if this reader is not installed.
func judge(t *testing.T, args ...string) (j judged) {
	t.Helper()
	for _, python := range []string{os.Getenv("EDGERT_PYTHON"), "../.venv/bin/python", "python3"} {
		if python == "" || exec.Command(python, "-c", "import mcap_protobuf").Run() != nil {
			continue
		}
		out, err := exec.Command(python, append([]string{"testdata/judge.py"}, args...)...).Output()
		if err != nil {
			stderr := ""
			if e, ok := err.(*exec.ExitError); ok {
				stderr = string(e.Stderr)
			}
			t.Fatalf("the official reader: %v\n%s", err, stderr)
		}
		rttest.Do(t, json.Unmarshal(out, &j))
		return j
	}
	t.Skip("no Python with the official MCAP reader: run make test, or name an interpreter in EDGERT_PYTHON")
	return j
}

// The official reader finds all messages through the index and its CRCs. In a torn and in a
// repaired file it finds the same messages as our reader.
func TestTheOfficialReaderAgrees(t *testing.T) {
	const chunks = 8
	name, whole := writeChunks(t, chunks)
	dir := t.TempDir()
	file := rttest.WriteFile(t, dir, name, whole)
	j := judge(t, file)
	ticks, pictures := j.Topics[TickTopic], j.Topics[CameraTopic+"top"]
	if ticks.Messages != chunks*perChunk || ticks.Gaps != 0 || ticks.Schema != "edgert.Tick" ||
		ticks.Encoding != "protobuf" || j.Statistics[TickTopic] != ticks.Messages ||
		pictures.Messages != chunks || pictures.Schema != "foxglove.CompressedImage" || len(j.Chunks) < chunks ||
		j.Chunks[0] != "zstd" || j.Metadata["run"]["joints"] != "a,b" {
		t.Errorf("the official reader finds %+v", j)
	}
	want := map[string]any{
		"t_ns": "1000000000", "step": nil, "state": []any{1.0, -2.5}, "run_state": "STREAMING", "stale": 2.0,
		"clipped_step": 2147483648.0, "suspended_ns": "-1",
		"seq": "9223372036854775807", "action": []any{"Infinity", 3.0}, "no_session": true,
	}
	for key, v := range want {
		if fmt.Sprint(ticks.First[key]) != fmt.Sprint(v) {
			t.Errorf("its first tick has %s %v, want %v", key, ticks.First[key], v)
		}
	}
	at, _ := pictures.Last["timestamp"].(float64)
	if pictures.Last["format"] != "jpeg" || pictures.Last["frame_id"] != "top" ||
		uint64(at) != uint64(float64(pictures.LogTime)) || pictures.Last["bytes"] != 3008.0 {
		t.Errorf("its last picture is %v at %d", pictures.Last, pictures.LogTime)
	}

	cut := len(whole) * 2 / 3
	rttest.Do(t, os.WriteFile(file, whole[:cut], 0o600))
	steps, _, _, _ := contents(t, dir)
	if j = judge(t, file, "stream"); j.Topics[TickTopic].Messages != len(steps) || len(steps) == 0 || j.Torn == "" {
		t.Errorf("of a torn file it reads %d ticks (%s), and we %d", j.Topics[TickTopic].Messages, j.Torn, len(steps))
	}
	repairIn(t, dir)
	if j = judge(t, file); j.Topics[TickTopic].Messages != len(steps) || j.Metadata["repaired"] == nil ||
		j.Metadata["run"]["joints"] != "a,b" {
		t.Errorf("of a repaired file it reads %d ticks, and we %d; %v", j.Topics[TickTopic].Messages, len(steps),
			j.Metadata)
	}
}
