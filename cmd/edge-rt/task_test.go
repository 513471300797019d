package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// A real server serves a Pi0.5, a policy that reads a task, to a real run on a simulated arm. The run begins with
// --task, an operator sets another task, and a task that the policy cannot read changes nothing.
func TestTaskOfARun(t *testing.T) {
	t.Parallel()
	bundle := absolute(t, "../../testdata/pi05")
	b := rttest.Must(policy.LoadBundle(bundle))(t)
	_, endpoint := startLeanServer(t, rttest.WriteFile(t, t.TempDir(), "server.yaml",
		fmt.Sprintf("model: {repo_or_path: %s, id: toy/pi05}\nservice: toy\n", bundle)))
	flags := []string{"--bus", "sim", "--camera", "top=sim,send=64x48", "--connect", endpoint, "--rt", "off"}
	r := edgeCommand(t, flags, "--id", "reader", "--task", "pick up the cube", "--expect-model",
		strings.ToUpper(b.SHA256[:12]))
	r.Start()
	r.awaitCtl("status", "--id", "reader")
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"task", "fold", "the", "towel"}, 0, ""},
		{[]string{"task", strings.Repeat("again ", 200)}, 3, "the task stays as it was|at most 200"},
		{[]string{"status"}, 0, ""},
	} {
		code, reply, says := r.ctl(append([]string{"--id", "reader"}, tt.args...)...)
		if code != tt.code || code == 0 && (reply.Task != "fold the towel" || reply.Episode != 2) {
			t.Errorf("ctl %.20q: code %d, %+v, want %d and the new task in episode 2", tt.args, code, reply, tt.code)
		}
		stagetest.CheckSays(t, says, tt.says)
	}
	rttest.Eventually(t, "a chunk", func() bool { return r.status().Chunks > 0 })
	code := r.End(os.Interrupt)
	if s := r.summary(); code != 0 || s.Task != "fold the towel" || s.Chunks == 0 {
		t.Errorf("code %d, task %q, %d chunks, want chunks and the last task\n%s", code, s.Task, s.Chunks, r.Log)
	}
	r = edgeCommand(t, flags, "--expect-model", strings.Repeat("0", 64))
	r.Start().EndsWith(3)
	r.CheckSays("want one beginning with 000")
}
