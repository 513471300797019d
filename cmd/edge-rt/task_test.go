package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The real programs serve a Pi0.5, which reads its task, to a simulated arm: the run begins with
// --task, an operator gives it another task, and a task that the policy cannot read changes
// nothing.
func TestTaskOfARun(t *testing.T) {
	t.Parallel()
	if err := policy.OpenRuntime("", "cpu"); err != nil {
		t.Skipf("no ONNX Runtime here: %.80s", err)
	}
	bundle, err := filepath.Abs("../../testdata/pi05")
	if err != nil {
		t.Fatal(err)
	}
	b, err := policy.LoadBundle(bundle)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, dir := freePort(t), t.TempDir()
	manifest := filepath.Join(dir, "server.yaml")
	text := fmt.Sprintf("model: {repo_or_path: %s, id: toy/pi05}\nservice: toy\nhealth_port: 0\nzenoh: "+
		"{listen_endpoints: [\"%s\"]}\n", bundle, endpoint)
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server, serverLog := exec.Command(buildLeanServer(t), "--manifest", manifest), new(rttest.Output)
	server.Stdout, server.Stderr = serverLog, serverLog
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	awaitText(t, serverLog, "msg=serving")

	state, summary := t.TempDir(), filepath.Join(dir, "edge.json")
	run, log := exec.Command(binary, "--id", "reader", "--bus", "sim", "--camera", "top=sim,send=64x48", "--connect",
		endpoint,
		"--task", "pick up the cube", "--expect-model", strings.ToUpper(b.SHA256[:12]), "--rt", "off", "--json",
		summary), new(rttest.Output)
	run.Env = append(os.Environ(), "STATE_DIRECTORY="+state)
	run.Stdout, run.Stderr = log, log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if run.ProcessState == nil {
			run.Process.Kill()
			run.Wait()
		}
	})
	rttest.Eventually(t, "the operator's socket", func() bool {
		_, err := os.Stat(filepath.Join(state, "reader.sock"))
		return err == nil
	})
	ctl := func(args ...string) (reply struct {
		Task    string `json:"task"`
		Episode int    `json:"episode_id"`
		Chunks  int    `json:"chunks"`
	}, said string) {
		t.Helper()
		cmd := exec.Command(binary, append([]string{"ctl", "--id", "reader"}, args...)...)
		cmd.Env = run.Env
		out, err := cmd.Output()
		if err != nil {
			if code := exitCode(err); code != 3 {
				t.Errorf("ctl %.20q: code %d, want 3", args, code)
			}
			return reply, string(err.(*exec.ExitError).Stderr)
		}
		if err := json.Unmarshal(out, &reply); err != nil {
			t.Fatal(err)
		}
		return reply, ""
	}
	if reply, said := ctl("task", "fold", "the", "towel"); reply.Task != "fold the towel" || reply.Episode != 2 {
		t.Errorf("ctl task: %+v, %s, want the new task in episode 2", reply, said)
	}
	if _, said := ctl("task", strings.Repeat("again ", 200)); !strings.Contains(said, "the task stays as it was") ||
		!strings.Contains(said, "at most 200") {
		t.Errorf("a task that is too long: %q", said)
	}
	if reply, said := ctl("status"); reply.Task != "fold the towel" || reply.Episode != 2 {
		t.Errorf("status: %+v, %s, want the task and the episode from before", reply, said)
	}
	rttest.Eventually(t, "a chunk", func() bool { reply, _ := ctl("status"); return reply.Chunks > 0 })
	if err := run.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(run.Wait()); code != 0 {
		t.Errorf("code %d\n%s", code, log)
	}
	var s struct {
		Task   string `json:"task"`
		Chunks int    `json:"chunks"`
	}
	if out, err := os.ReadFile(summary); err != nil || json.Unmarshal(out, &s) != nil || s.Task != "fold the towel" ||
		s.Chunks == 0 {
		t.Errorf("summary %+v, %v, want chunks and the last task", s, err)
	}

	code, _, said := edgeRT(t, "--bus", "sim", "--camera", "top=sim,send=64x48", "--connect", endpoint,
		"--expect-model", strings.Repeat("0", 64), "--rt", "off")
	if code != 3 || !strings.Contains(said, "want one beginning with 000") {
		t.Errorf("another model than expected: code %d, %s", code, said)
	}
}
