package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/recordtest"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// evil clears a screen, sets its title and reverses letters, by every kind of control sequence on which terminals act.
// It ends with a line feed and a forged line.
const evil = "a\x1b[2J\x1b]0;owned\x07\u009b31m\u202eb\x00\x7f\rc\nforged"

// The control sequences in foreign records and datasets do not reach the terminal, and their line feeds begin no line.
func TestForeignTextIsNotObeyed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "black-20261124T140320.123Z.mcap")
	f := recordtest.Create(t, file, map[string]string{
		"id": evil, "model": evil, "instance": evil, "host": evil, "bus": evil, "robot": evil,
		"joints": "a.pos," + evil, "units": evil, "fps": "30", "task": evil, evil: evil,
		"schedule": evil,
	})
	for i := range 120 {
		m := &record.Tick{At: rt.Instant(1+i) * 33_333_333, Starved: i > 50 && i < 60, Step: int64(i)}
		m.State.Set([]float32{float32(i), 0})
		m.Goal, m.Action = m.State, m.State
		if m.Starved {
			m.Action.N = 0
		}
		f.Tick(m)
	}
	e := &record.Episode{At: 1, Number: 1}
	e.Task.Set(evil)
	f.Episode(e)
	f.Close()
	set := filepath.Join(dir, "set")
	is := func(want int, args ...string) {
		t.Helper()
		code, stdout, stderr := edgeRT(t, args...)
		if code != want {
			t.Errorf("%q ends with %d, want %d:\n%s%s", args, code, want, stdout, stderr)
		}
		if i := strings.IndexFunc(stdout+stderr, func(r rune) bool {
			return r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x202e)
		}); i >= 0 {
			t.Errorf("%q: at byte %d the terminal obeys:\n%q", args, i, stdout+stderr)
		}
		if strings.Contains(stdout+stderr, "\nforged") {
			t.Errorf("%q: a forged line:\n%s", args, stdout+stderr)
		}
		if args[len(args)-1] == "-" && !json.Valid([]byte(stdout)) {
			t.Errorf("%q gives no JSON: %s", args, stdout)
		}
	}
	is(0, "why", file)
	is(0, "why", file, "--json", "-")
	is(0, "why", dir)
	is(0, "view", file, "--html", filepath.Join(dir, "v.html"))
	is(3, "replay", file, "--bus", "sim")
	is(3, "dataset", "export", file, set, "--task", "a\x1b[31mb") // --task must be one line of plain text
	is(0, "dataset", "export", file, set, "--task", "wave")
	rewrite(t, filepath.Join(set, "meta/info.json"))
	is(0, "dataset", "info", set)
	is(0, "dataset", "info", set, "--json", "-")
	is(3, "dataset", "check", set)
	is(3, "dataset", "check", set, "--json", "-")
	is(3, "dataset", "export", file, set, "--append", "--task", "wave")
	bad := rttest.WriteFile(t, dir, "no\x1b[31m.mcap", evil)
	is(3, "why", bad)
	is(3, "view", bad)
	is(3, "dataset", "export", bad, set+"2")
	is(3, "dataset", "info", dir)
	is(2, "dataset", "info", filepath.Join(dir, evil[:5]))
}

// rewrite changes the dataset at path: evil becomes the name of its robot and of one of its
// features.
func rewrite(t *testing.T, path string) {
	t.Helper()
	data := rttest.Must(os.ReadFile(path))(t)
	name, _ := json.Marshal(evil)
	data = bytes.Replace(data, []byte(`"features": {`),
		append(append([]byte(`"features": {`), name...), `: {"dtype": "float32", "shape": [1]},`...), 1)
	var v map[string]any
	rttest.Do(t, json.Unmarshal(data, &v))
	v["robot_type"] = evil
	data = rttest.Must(json.Marshal(v))(t)
	rttest.Do(t, os.WriteFile(path, data, 0o600))
}
