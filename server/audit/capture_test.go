package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

var sampleOrigin = Origin{"5ha", "1.24.4", "cuda:0"}

func sampleRequest() *request {
	s := new(request)
	s.fill(sampleRecord(), []byte("observation"), []byte("reply"))
	s.attachment = wire.AppendHeader(nil, s.Header)
	return s
}

func TestCaptureReadsAsItWasWritten(t *testing.T) {
	s := sampleRequest()
	s.Why = "a\n\"b\""
	data := appendCapture(nil, s, &sampleOrigin, 17, time.Now())
	got := rttest.Must(parseCapture(data))(t)
	if got.Count != 17 || got.Header != s.Header || string(got.Observation) != "observation" ||
		string(got.Reply) != "reply" ||
		got.ClientUUID != "arm-03" || got.Origin != sampleOrigin || got.Batch != 4 || got.Row != 2 ||
		*got.Controls != s.Controls || got.Outcome != "ok" || got.Why != s.Why || !got.RTC {
		t.Errorf("parseCapture = %+v", got)
	}
	rttest.Want(t, (len(data)-wire.HeaderSize-len("observationreply"))%tensorAlign, 0,
		"the start of the data modulo %d", tensorAlign)
}

// A capture of a server that did not record the conditioning of chunks can be read; a malformed one
// is refused.
func TestCapturedControls(t *testing.T) {
	whole := string(appendControls(nil, &policy.Controls{
		PrefixLen: 8,
		Delay:     3,
		PrefixEnd: 9,
		Mode:      policy.ModeGuided,
		Beta:      2.5,
		Schedule:  3,
		SigmaD:    0.2,
	}))
	meta := func(text string) (m map[string]string) {
		rttest.Do(t, json.Unmarshal([]byte("{"+strings.TrimPrefix(text, `",`)+`"}`), &m))
		return m
	}
	c, err := parseControls(meta(whole))
	if err != nil || c.PrefixLen != 8 || c.Delay != 3 || c.PrefixEnd != 9 || c.Mode != policy.ModeGuided ||
		c.Beta != 2.5 || c.Schedule != 3 || c.SigmaD != 0.2 {
		t.Errorf("%s reads as %+v, %v", whole, c, err)
	}
	for _, wrong := range []struct{ was, is, want string }{
		{"guided", "free-hand", "conditioning"}, {`"8`, `"-8`, "prefix_len"}, {"2.5", "x", "beta"},
		{"exp", "log", "schedule"},
	} {
		_, err := parseControls(meta(strings.Replace(whole, wrong.was, wrong.is, 1)))
		rttest.Fails(t, err, wrong.want)
	}
	if c, err := parseControls(map[string]string{}); c != nil || err != nil {
		t.Errorf("a capture without: %v, %v, want none", c, err)
	}
}

// A file that was cut anywhere, or in which one byte of the data has changed, is refused.
func TestTornCaptureIsFound(t *testing.T) {
	whole := appendCapture(nil, sampleRequest(), &sampleOrigin, 17, time.Now())
	for n := range whole {
		if _, err := parseCapture(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are a capture", n, len(whole))
		}
	}
	for i := len(whole) - len("observationreply") - wire.HeaderSize; i < len(whole); i++ {
		torn := slices.Clone(whole)
		torn[i]++
		rttest.Fails(t, rttest.Err(parseCapture(torn)), "crc32c")
	}
	rttest.Fails(t, rttest.Err(parseCapture(append(whole, 'x'))))
}

// Property: for all bytes, parseCapture returns slices of them or an error.
func FuzzParseCapture(f *testing.F) {
	f.Add(appendCapture(nil, sampleRequest(), &sampleOrigin, 17, time.Now()))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := parseCapture(data); err == nil && wire.HeaderSize+len(c.Observation)+len(c.Reply) > len(data) {
			t.Errorf("parseCapture(%q) = %+v, more than there is", data, c)
		}
	})
}

func captureCounts(t *testing.T, dir string) (counts []uint64) {
	t.Helper()
	found, unreadable, err := ReadCaptures(dir)
	if err != nil || len(unreadable) > 0 {
		t.Fatalf("ReadCaptures: %v, unreadable %v", err, unreadable)
	}
	for _, c := range found {
		counts = append(counts, c.Count)
	}
	return counts
}

// The ring holds only the newest requests, also across restarts. Files without a request are removed.
func TestCaptureRing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "captures")
	run := func(max, requests int) {
		t.Helper()
		c := rttest.Must(openRing(dir, max))(t)
		for i := range requests {
			s := sampleRequest()
			// each request is shorter than the previous one, so its file must be truncated
			s.observation = make([]byte, 10*(requests-i))
			rttest.Do(t, c.write(s, time.Now()))
		}
		rttest.Do(t, c.close())
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

// A server refuses a folder of captures that another server uses, because the two servers would overwrite each other's
// requests.
func TestCapturesAreOneServers(t *testing.T) {
	dir := t.TempDir()
	first := rttest.Must(openRing(dir, 2))(t)
	rttest.Fails(t, rttest.Err(openRing(dir, 2)), "another lean-server") // second openRing
	// the copy keeps the lock as a child process does between fork and exec
	rttest.Must(syscall.Dup(int(first.dir.Fd())))(t)
	rttest.Do(t, first.close())
	again := rttest.Must(openRing(dir, 2))(t)
	rttest.Do(t, again.close())
}

func TestReadCaptures(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := ReadCaptures(dir); !errors.Is(err, ErrNoCaptures) {
		t.Errorf("ReadCaptures of an empty folder = %v, want ErrNoCaptures", err)
	}
	for i, data := range [][]byte{nil, []byte("torn"),
		appendCapture(nil, sampleRequest(), &sampleOrigin, 3, time.Now())} {
		rttest.WriteFile(t, dir, fmt.Sprintf("request-%05d.safetensors", i), data)
	}
	found, unreadable, err := ReadCaptures(dir)
	if err != nil || len(found) != 1 || len(unreadable) != 1 || !strings.Contains(unreadable[0].Why, "request-00001") {
		t.Errorf("ReadCaptures = %d, %+v, %v, want one good and one unreadable", len(found), unreadable, err)
	}
}
