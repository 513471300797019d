package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// rerunJudge is a Python program that prints the contents of an .rrd file, read by Rerun's own reader (0.41).
const rerunJudge = `
import io, json, sys
from PIL import Image
from rerun.chunk import RrdReader
entities = {}
file = RrdReader(sys.argv[1])
for chunk in (c for store in file.recordings() for c in file.stream(store=store)):
    e = entities.setdefault(str(chunk.entity_path), {"rows": 0, "sizes": [], "values": [], "timelines": []})
    e["timelines"] = sorted(set(e["timelines"]) | set(chunk.timeline_names))
    e["rows"] += chunk.num_rows
    batch = chunk.to_record_batch()
    for name in {"EncodedImage:blob", "Scalars:scalars", "TextLog:text"} & set(batch.schema.names):
        rows = [row[0] for row in batch.column(name).to_pylist()]
        if name == "EncodedImage:blob":
            e["sizes"] += [Image.open(io.BytesIO(bytes(row))).size for row in rows]
        else:
            e["values"] += rows
print(json.dumps(entities))
`

// Goal: Rerun's own viewer, as a server without a window, gets a run's pictures, joints, times and log. Rerun's SDK
// sends them, and Rerun's reader finds them. When the viewer ends, the stream ends, too.
func TestRerunShowsARun(t *testing.T) {
	t.Parallel()
	python := os.Getenv("EDGERT_RERUN")
	if python == "" {
		t.Skip("make rerun-test runs it: EDGERT_RERUN is an interpreter with rerun-sdk")
	}
	s := newHoldServer(t)
	_, page := stagetest.FreeEndpoint(t)
	_, port := stagetest.FreeEndpoint(t)
	at := "127.0.0.1:" + port
	file := filepath.Join(t.TempDir(), "run.rrd")
	viewer := stagetest.Command(t, python, "-m", "rerun", "--save", file, "--port", port)
	viewer.Env = append(viewer.Env, "HOME="+t.TempDir()) // the viewer keeps settings in this folder
	viewer.Start()
	r := edgeCommand(t, []string{"--fps", "10", "--bus", "sim", "--id", "arm", "--connect", s.Endpoint, "--http", page},
		"--quiet", "--camera", "front=sim", "--camera", "wrist=pattern:320x240")
	r.Start()
	get(t, "http://127.0.0.1:"+page+"/camera/wrist")
	rttest.Eventually(t, "the viewer listens", func() bool {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	live := []string{"view", "--live", "http://127.0.0.1:" + page, "--rerun", "--python", python,
		"--viewer", "rerun+http://" + at + "/proxy"}
	view := stagetest.Command(t, binary, live...).Start()
	view.Await("streamed to Rerun")
	grows := func(to int64) {
		t.Helper()
		rttest.Eventually(t, "the viewer's file grows", func() bool {
			info, err := os.Stat(file)
			return err == nil && info.Size() > to
		})
	}
	grows(100 << 10)
	r.ctl("pause")
	grows(600 << 10)
	view.EndsWith(0, syscall.SIGINT)
	second := stagetest.Command(t, binary, live...).Start()
	second.Await("streamed to Rerun")
	viewer.SignalGroup(syscall.SIGINT)
	second.EndsWith(4)
	r.End(syscall.SIGTERM)

	type entity struct {
		Rows      int
		Sizes     [][2]int
		Values    []any
		Timelines []string
	}
	var got map[string]entity
	text := rttest.Must(exec.Command(python, "-W", "ignore", "-c", rerunJudge, file).Output())(t)
	rttest.Do(t, json.Unmarshal(text, &got))
	for camera, size := range map[string][2]int{"front": {640, 480}, "wrist": {320, 240}} {
		e := got["/camera/"+camera]
		if len(e.Sizes) == 0 || slices.ContainsFunc(e.Sizes, func(s [2]int) bool { return s != size }) {
			t.Errorf("camera %s: pictures of %v, want %v", camera, e.Sizes, size)
		}
	}
	goal, timing := got["/joints/gripper/goal"], got["/timing/lateness_us"]
	if goal.Rows < 10 || timing.Rows < goal.Rows || !slices.Contains(goal.Timelines, "time") ||
		slices.Contains(goal.Values, nil) {
		t.Errorf("goals %+v, lateness %+v", goal, timing)
	}
	if log := got["/log"]; !slices.Contains(log.Values, any("pause")) {
		t.Errorf("the log is %v, want the pause", log.Values)
	}
	if len(got) < 6*4+6 {
		t.Errorf("%d entities", len(got))
	}
}
