package main

import (
	"bytes"
	"encoding/json"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/attend"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// attended is a teleoperation or a replay with a page.
type attended struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	file string // file of --json
	out  bytes.Buffer
	env  []string
}

// attendArm starts teleop or replay on a simulated arm whose calibration is the demo's.
func attendArm(t *testing.T, state string, args ...string) *attended {
	t.Helper()
	_, port := stagetest.FreeEndpoint(t)
	a := &attended{t: t, url: "http://127.0.0.1:" + port,
		file: filepath.Join(t.TempDir(), "summary.json"), env: append(os.Environ(), "STATE_DIRECTORY="+state)}
	a.cmd = exec.Command(binary, append(args, "--quiet", "--bus", "sim", "--id", "arm", "--camera", "top=sim", "--rt",
		"off", "--http", port, "--json", a.file)...)
	a.cmd.Env = a.env
	a.cmd.Stdout = &a.out
	a.cmd.Stderr = os.Stderr
	rttest.Do(t, a.cmd.Start())
	t.Cleanup(func() { a.cmd.Process.Kill() })
	return a
}

// ctl runs edge-rt ctl, which must succeed.
func (a *attended) ctl(words ...string) (reply operator.Reply) {
	a.t.Helper()
	cmd := exec.Command(binary, append([]string{"ctl", "--id", "arm"}, words...)...)
	cmd.Env, cmd.Stderr = a.env, os.Stderr
	text, err := cmd.Output()
	if err != nil || json.Unmarshal(text, &reply) != nil {
		a.t.Fatalf("ctl %q: %v, %s", words, err, text)
	}
	return reply
}

// awaitState waits until the page shows a state.
func (a *attended) awaitState(state string) (live attend.Live) {
	a.t.Helper()
	rttest.Eventually(a.t, state, func() bool {
		text, _ := get(a.t, a.url+"/status.json")
		if err := json.Unmarshal(text, &live); err != nil {
			a.t.Fatalf("status: %v, %s", err, text)
		}
		return live.State == state
	})
	return live
}

// look checks the values on the page that teleop and replay have in common.
func (a *attended) look(schedule string) {
	a.t.Helper()
	live := a.awaitState("STREAMING")
	if live.ID != "arm" || live.Schedule != schedule || live.Robot != "so101" || len(live.Joints) != 6 ||
		live.Bus.Cycles == 0 || live.Frames["top"].Captured == 0 || !live.Simulated ||
		!slices.Contains(live.Works, "pause") ||
		slices.Contains(live.Works, "correct") {
		a.t.Errorf("%s: the page shows %+v", schedule, live)
	}
	picture, head := get(a.t, a.url+"/camera/top")
	if m, err := jpeg.Decode(bytes.NewReader(picture)); err != nil || m.Bounds().Dx() != 640 ||
		head.Get("X-Frame-Age-Ms") == "" {
		a.t.Errorf("%s: the picture: %v, %v", schedule, err, head)
	}
	if text, _ := get(a.t, a.url+"/healthz"); string(text) != "ok\n" {
		a.t.Errorf("%s: health: %q", schedule, text)
	}
	if lines, _ := get(a.t, a.url+"/timeline.json"); !bytes.Contains(lines, []byte(`"shoulder_pan.pos"`)) {
		a.t.Errorf("%s: the lines are %.200s", schedule, lines)
	}
	if r := a.ctl("pause"); !r.Paused {
		a.t.Errorf("%s: paused: %+v", schedule, r)
	}
	a.awaitState("STALLED")
	if r := a.ctl("resume"); r.Paused || r.Ticks == 0 {
		a.t.Errorf("%s: resumed: %+v", schedule, r)
	}
	if r := a.ctl("status"); r.ID != "arm" || r.State == "" {
		a.t.Errorf("%s: ctl status: %+v", schedule, r)
	}
}

// summary waits for the end of the command and returns its summary. The summary's text must contain the parts.
func (a *attended) summary(parts ...string) (s attend.Summary) {
	a.t.Helper()
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("it ends with %v", err)
	}
	text, err := os.ReadFile(a.file)
	if err != nil || json.Unmarshal(text, &s) != nil {
		a.t.Fatalf("summary: %v, %s", err, text)
	}
	if s.ID != "arm" || s.Ticks == 0 || s.Bus.Cycles == 0 || s.InState["STREAMING"] <= 0 ||
		s.Frames["top"].Captured == 0 ||
		s.Page == nil || s.Page.Pictures == 0 || s.Record == nil || s.Exit.Code != 0 {
		a.t.Errorf("summary: %s", text)
	}
	for _, part := range parts {
		if !strings.Contains(a.out.String(), part) {
			a.t.Errorf("the table lacks %q:\n%s", part, &a.out)
		}
	}
	return s
}

// A teleoperation has the page, the operator's commands and the summary of a run. So has the replay
// of its episode.
func TestTeleopAndReplayAreRuns(t *testing.T) {
	t.Parallel()
	state, records := t.TempDir(), t.TempDir()
	led := attendArm(t, state, "teleop", "--leader", simBus(t).Path(), "--leader-calibration", demoCalibration,
		"--record", "all", "--record-dir", records, "--task", "wave")
	led.look("teleop")
	rttest.Want(t, led.ctl("task", "point").Task, "point", "another task")
	rttest.Eventually(t, "an episode", func() bool {
		cmd := exec.Command(binary, "ctl", "start", "--id", "arm")
		cmd.Env = led.env
		return cmd.Run() == nil
	})
	led.awaitState("STREAMING")
	begun := led.ctl("status").Ticks
	rttest.Eventually(t, "two seconds of it", func() bool { return led.ctl("status").Ticks > begun+120 })
	led.ctl("success")
	led.ctl("stop")
	s := led.summary("arm, ", "leader ", "episodes", "1 success", "camera top", "stopped by an operator")
	if s.Leader == nil || s.Leader.Cycles == 0 || s.Replayed != nil || s.Episodes == nil || s.Episodes.Success != 1 {
		t.Errorf("teleop: leader %+v, replayed %+v, episodes %+v", s.Leader, s.Replayed, s.Episodes)
	}
	files, _ := filepath.Glob(filepath.Join(records, "*"+record.Extension))
	if len(files) != 1 {
		t.Fatalf("%d records", len(files))
	}
	again := attendArm(t, state, "replay", files[0], "--speed", "0.2")
	again.look("replay")
	ctl := exec.Command(binary, "ctl", "start", "--id", "arm")
	ctl.Env = again.env
	if text, err := ctl.CombinedOutput(); err == nil || !strings.Contains(string(text), "a recorded episode drives") {
		t.Errorf("ctl start of a replay: %v, %s", err, text)
	}
	s = again.summary("episode ", "replayed: ")
	if r := s.Replayed; r == nil || !r.Done || r.Episode != 1 || r.Seconds != r.Whole || s.Leader != nil {
		t.Errorf("replay: %+v, leader %+v", r, s.Leader)
	}
}

// A teleoperation that does not find its arm also has a summary.
func TestTeleopThatEndsBeforeItBegins(t *testing.T) {
	t.Parallel()
	var s attend.Summary
	code, stdout, stderr := edgeRT(t, "teleop", "--bus", "/dev/ttyNONE", "--calibration", demoCalibration, "--leader",
		simBus(t).Path(), "--leader-calibration", demoCalibration, "--json", "-")
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || code != 4 || s.Exit.Code != 4 ||
		!strings.Contains(s.Exit.Reason, "/dev/ttyNONE") || !strings.Contains(stderr, "/dev/ttyNONE") {
		t.Errorf("code %d, %v, %s%s; want 4 in both", code, err, stdout, stderr)
	}
}
