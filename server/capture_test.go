package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"edgert/policy"
	"edgert/server/servertest"
	"edgert/wire"
)

func sampleShot() *shot {
	s := new(shot)
	s.fill(sampleTurn(), []byte("observation"), []byte("reply"))
	s.attachment = wire.AppendHeader(nil, s.header)
	return s
}

func TestCaptureReadsAsItWasWritten(t *testing.T) {
	s := sampleShot()
	s.why = "a\n\"b\""
	data := appendCapture(nil, s, "5ha", 17, time.Now())
	got, err := parseCapture(data)
	if err != nil {
		t.Fatal(err)
	}
	if got.count != 17 || got.header != s.header || string(got.observation) != "observation" || string(got.reply) != "reply" ||
		got.uuid != "arm-03" || got.sha256 != "5ha" || got.outcome != "ok" || got.why != s.why || !got.rtc {
		t.Errorf("parseCapture = %+v", got)
	}
	if start := len(data) - wire.HeaderSize - len("observationreply"); start%tensorAlign != 0 {
		t.Errorf("data starts at %d, want a multiple of %d", start, tensorAlign)
	}
}

// A file that was cut anywhere, or in which one byte of the data is another, is
// no capture.
func TestTornCaptureIsFound(t *testing.T) {
	whole := appendCapture(nil, sampleShot(), "5ha", 17, time.Now())
	for n := range whole {
		if _, err := parseCapture(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are a capture", n, len(whole))
		}
	}
	for i := len(whole) - len("observationreply") - wire.HeaderSize; i < len(whole); i++ {
		torn := slices.Clone(whole)
		torn[i]++
		if _, err := parseCapture(torn); err == nil || !strings.Contains(err.Error(), "crc32c") {
			t.Errorf("byte %d changed: %v, want a wrong checksum", i, err)
		}
	}
	if _, err := parseCapture(append(whole, 'x')); err == nil {
		t.Error("a byte behind the end is not noticed")
	}
}

// Property: whatever the bytes, parseCapture returns slices of them or an error.
func FuzzParseCapture(f *testing.F) {
	f.Add(appendCapture(nil, sampleShot(), "5ha", 17, time.Now()))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := parseCapture(data); err == nil && wire.HeaderSize+len(c.observation)+len(c.reply) > len(data) {
			t.Errorf("parseCapture(%q) = %+v, more than there is", data, c)
		}
	})
}

func captureCounts(t *testing.T, dir string) (counts []uint64) {
	t.Helper()
	found, unreadable, err := readCaptures(dir)
	if err != nil || len(unreadable) > 0 {
		t.Fatalf("readCaptures: %v, unreadable %v", err, unreadable)
	}
	for _, c := range found {
		counts = append(counts, c.count)
	}
	return counts
}

// The ring holds the newest max requests, also across restarts; files that were
// never written do not stay.
func TestCaptureRing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "captures")
	run := func(max, requests int) {
		t.Helper()
		c, err := openCaptures(dir, max)
		if err != nil {
			t.Fatal(err)
		}
		for i := range requests {
			s := sampleShot()
			s.body = make([]byte, 10*(requests-i)) // each shorter than the one before: files must be cut
			if err := c.write(s, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
	}
	run(4, 3)
	if files, _ := os.ReadDir(dir); len(files) != 3 {
		t.Errorf("%d files after 3 requests, want 3", len(files))
	}
	if got := captureCounts(t, dir); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("counts = %v, want 0 1 2", got)
	}
	run(4, 6)
	if got := captureCounts(t, dir); !slices.Equal(got, []uint64{5, 6, 7, 8}) {
		t.Errorf("counts = %v, want the last four of nine", got)
	}
}

// Two servers in one folder would overwrite each other's requests.
func TestCapturesAreOneServers(t *testing.T) {
	dir := t.TempDir()
	first, err := openCaptures(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openCaptures(dir, 2); err == nil || !strings.Contains(err.Error(), "another lean-server") {
		t.Errorf("second openCaptures = %v, want a refusal", err)
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	again, err := openCaptures(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.close(); err != nil {
		t.Error(err)
	}
}

// capture serves four requests, one of them bad, and returns the folder.
func capture(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	j := newJournal(t, dir, 8, io.Discard)
	b := serve(t, config(), func(b *bench) { b.journal(j) })
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	for seq := uint64(1); seq <= 4; seq++ {
		o := fakeObs(t)
		o.State[0] = float32(seq)
		o.PrefixRobot, o.InferenceDelaySteps = wire.Matrix{Rows: 3, Cols: 2, Data: make([]float32, 6)}, int(seq)-1
		o.HasT, o.T, o.HasN, o.N = true, int64(seq), true, int64(seq)
		if seq == 3 {
			o.State = o.State[:1]
		}
		r.send(obsHeader(1, seq), o)
		r.next()
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "captures")
}

func TestReplayIsExact(t *testing.T) {
	found, _, err := readCaptures(capture(t))
	if err != nil {
		t.Fatal(err)
	}
	r, err := replay(servertest.Meta(), "5ha", servertest.NewModel(), policy.Conditioning{}, found)
	if err != nil || !r.OK() || r.Requests != 4 || r.Exact != 4 {
		t.Errorf("replay = %+v, %v, want 4 of 4 exact", r, err)
	}
}

func TestReplaySaysWhatDiffers(t *testing.T) {
	found, _, err := readCaptures(capture(t))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(c *captured, m *servertest.Model)
		want   string
	}{
		{"another value in the chunk", func(c *captured, _ *servertest.Model) {
			var chunk wire.ActionChunk
			if err := wire.ParseActionChunk(&chunk, c.reply); err != nil {
				t.Fatal(err)
			}
			chunk.ChunkRobot.Data[3] += 0.5
			c.reply = wire.AppendActionChunk(nil, &chunk)
		}, "0 of chunk_model, 0.5 of chunk_robot"},
		{"another robot's echo", func(c *captured, _ *servertest.Model) { c.header.ClientMonoNs++ }, "another chunk"},
		{"another bundle", func(c *captured, _ *servertest.Model) { c.sha256 = "0ther" }, "captured with bundle 0ther, this is 5ha"},
		{"without conditioning", func(c *captured, _ *servertest.Model) { c.rtc = false }, "another chunk"},
		{"refused then", func(c *captured, _ *servertest.Model) { c.outcome, c.why = "bad_observation", "state" }, "outcome ok (), was bad_observation (state)"},
		{"refused now", func(c *captured, _ *servertest.Model) { c.observation = []byte{0xc1} }, "outcome bad_observation"},
		{"the model fails now", func(_ *captured, m *servertest.Model) { m.Before = func() error { return policy.ErrRun } }, "outcome inference_failed"},
		{"not finite now", func(_ *captured, m *servertest.Model) { m.NotFinite.Store(true) }, "outcome not_finite"},
		{"the reply is none", func(c *captured, _ *servertest.Model) { c.reply = nil }, "the captured reply"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, model := found[1], servertest.NewModel()
			tt.change(&c, model)
			r, err := replay(servertest.Meta(), "5ha", model, policy.Conditioning{}, []captured{c})
			if err != nil || r.OK() || r.Requests != 1 || len(r.Differences) != 1 || !strings.Contains(r.Differences[0].Why, tt.want) || r.Differences[0].Seq != 2 {
				t.Errorf("replay = %+v, %v, want one difference with %q", r, err, tt.want)
			}
			var text strings.Builder
			if err := r.Print(&text); err != nil || !strings.Contains(text.String(), tt.want) || !strings.Contains(text.String(), "0 answered byte for byte") {
				t.Errorf("it prints %q, %v", text.String(), err)
			}
		})
	}
}

// A chunk that the link refused was computed all the same.
func TestReplayOfAnUnsentChunk(t *testing.T) {
	found, _, err := readCaptures(capture(t))
	if err != nil {
		t.Fatal(err)
	}
	found[0].outcome = unsent.String()
	if r, err := replay(servertest.Meta(), "5ha", servertest.NewModel(), policy.Conditioning{}, found[:1]); err != nil || !r.OK() {
		t.Errorf("replay = %+v, %v, want it exact", r, err)
	}
}

func TestReadCaptures(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := readCaptures(dir); !errors.Is(err, ErrNoCaptures) {
		t.Errorf("readCaptures of an empty folder = %v, want ErrNoCaptures", err)
	}
	for i, data := range [][]byte{nil, []byte("torn"), appendCapture(nil, sampleShot(), "5ha", 3, time.Now())} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("request-%05d.safetensors", i)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, unreadable, err := readCaptures(dir)
	if err != nil || len(found) != 1 || len(unreadable) != 1 || !strings.Contains(unreadable[0].why, "request-00001") {
		t.Errorf("readCaptures = %d, %+v, %v, want one good and one unreadable", len(found), unreadable, err)
	}
}
