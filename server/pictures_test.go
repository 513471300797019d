package server

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/wire"
)

// Of all camera names that a robot sends, only the policy's cameras are counted, and each is counted once.
func TestCamerasNamed(t *testing.T) {
	cameras := []wire.CameraShape{{Name: "top"}, {Name: "side"}, {Name: "wrist"}}
	for _, tt := range []struct {
		names []string
		want  cameraSet
		text  string
	}{
		{nil, 0, ""},
		{[]string{"wrist", "top"}, 5, "top, wrist"},
		{[]string{"side", "side", "roof", ""}, 2, "side"},
	} {
		got := camerasNamed(cameras, tt.names)
		if got != tt.want || got.names(cameras) != tt.text {
			t.Errorf("camerasNamed(%q) = %b, %q, want %b, %q", tt.names, got, got.names(cameras), tt.want, tt.text)
		}
	}
}

// A camera that hangs is shown in metrics, summary, audit and log, and costs the robot no chunk.
func TestStalePicturesAreShown(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	b := newBench(t, config(), logTo(&log))
	stop := b.audited(dir).Start(audit.Origin{ModelSHA256: "5ha"})
	session, r := b.opened("arm"), b.robot("arm")
	for i, step := range []struct {
		stale []string
		bad   bool
		says  string // text that the log must then contain; empty: no new line
	}{
		{nil, false, ""},
		{[]string{top, "observation.images.unknown", top}, false,
			"pictures are older than the robot allows\" client=arm session=" + session.id +
				" cameras=" + top},
		{[]string{top}, false, ""}, // the fault was logged before
		{[]string{top}, true, ""},  // a refused observation has no effect
		{[]string{"observation.images.unknown"}, false, "pictures are fresh again"},
		{nil, false, ""},
	} {
		obs := fakeObs(t)
		obs.StaleCameras = step.stale
		if step.bad {
			obs.State = obs.State[:1]
		}
		r.send(obsHeader(0, uint64(i+1)), obs)
		b.serveOne()
		log.Reset()
		b.tick()
		if got := log.String(); !strings.Contains(got, step.says) || (step.says == "") != (got == "") {
			t.Errorf("after observation %d the log says %q, want %q", i+1, got, step.says)
		}
	}
	stop()
	lines := readAudit(t, filepath.Join(dir, "audit.jsonl"))
	if len(lines) != 6 {
		t.Fatalf("%d audit lines, want 6", len(lines))
	}
	for i, line := range lines {
		stale, outcome := i == 1 || i == 2, "ok"
		if i == 3 {
			outcome = "bad_observation"
		}
		if slices.Equal(line.Stale, []string{top}) != stale || !stale && line.Stale != nil || line.Outcome != outcome {
			t.Errorf("audit line %d: stale_cameras %q, outcome %s, want stale %v, %s", i+1, line.Stale, line.Outcome,
				stale, outcome)
		}
	}
	h := pages(t, b.server)
	rttest.Want(t, scrape(t, h)[`lean_server_stale_pictures_total{camera="`+top+`"}`], 2, "the metric")
	summary := b.server.summary()
	var table strings.Builder
	if err := summary.Print(&table); err != nil || summary.StalePictures != 2 || summary.Requests != 5 ||
		!strings.Contains(table.String(), "stale pictures 2") {
		t.Errorf("%v; summary has %d stale pictures of %d requests, want 2 and 5:\n%s", err, summary.StalePictures,
			summary.Requests, table.String())
	}
	log.Reset()
	b.server.opener.drop(session, "test")
	rttest.Contains(t, log.String(), "stale_pictures=2")
}
