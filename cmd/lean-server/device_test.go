package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// Goal: if this machine lacks the manifest's device, the server ends with an exit code after which systemd does not
// restart it, and its error has the manifest's line and the remedy. If the device is auto, or has a fallback, the CPU
// computes instead, and the report has the reason.
func TestDevice(t *testing.T) {
	stagetest.NeedsRuntime(t)
	_, library := policy.RuntimeVersion()
	bundle := rttest.Must(filepath.Abs(demo + "/still"))(t)
	const absent = "CUDA execution provider is not enabled"
	for _, tt := range []struct {
		keys string
		code int
		says string // parts of the error or, when the code is 0, of the report
	}{
		{"device: auto", 0, "cpu|" + absent},
		{"device: cuda\n  fallback: cpu", 0, "cpu|" + absent},
		{"device: openvino\n  fallback: cpu", 0, "cpu|onnxruntime-openvino"},
		{"device: cuda", 3, "server.yaml:3: |make setup-gpu|" + absent},
		{"device: \"cuda:1\"", 3, "server.yaml:3: |make setup-gpu"},
		{"device: tensorrt\n  cache_dir: engines", 3, "server.yaml:3: |" + absent},
		{"device: openvino", 3, "server.yaml:3: |onnxruntime-openvino"},
		{"device: cuda\n  dtype: float16", 3, "float32|want float16"},
	} {
		manifest := writeManifest(t, "model:\n  repo_or_path: "+bundle+"\n  "+tt.keys+"\nhealth_port: 0\n")
		if tt.code == 0 {
			r, _ := checked(t, manifest, "--ort", library)
			stagetest.CheckSays(t, r.Device+" "+r.Instead, tt.says)
			continue
		}
		code, _, stderr := leanServer(t, nil, "check", "--manifest", manifest, "--ort", library)
		rttest.Want(t, code, tt.code, "%q: exit code, with %s", tt.keys, stderr)
		stagetest.CheckSays(t, stderr, tt.says)
	}
}

// Goal: after a SIGTERM the program terminates an inference that takes longer than the drain may wait, and ends in
// bounded time with code 0.
//
// testdata/hang.pb adds 0 to the policy's chunk: the result of a loop of max(0, largest state - 1e6) * 1e12 turns.
func TestSIGTERMDuringALongInference(t *testing.T) {
	rttest.RealTime(t)
	hang := rttest.Must(os.ReadFile("testdata/hang.pb"))(t)
	r, network, _ := serve(t, "--manifest", brokenBundle(t, "policy.onnx",
		func(graph []byte, _ map[string]any) []byte {
			return append(bytes.Replace(graph, []byte("chunk_robot"), []byte("chunk_rabot"), 1), hang...)
		}))
	arm := newArm(t, network)
	arm.ask()
	arm.Observation.State[0] = 2e6
	arm.send()
	rttest.Eventually(t, "the inference", func() bool { return r.metrics()["lean_server_busy_seconds"] > 0 })
	const limit = 4 * time.Second // includes 1.2 s in which the inference may end by itself
	if code, took := r.leave(syscall.SIGTERM); code != 0 || took > limit {
		t.Errorf("it ended with %d after %v, want 0 within %v:\n%s", code, took, limit, r.Log)
	}
	r.CheckSays("the inference in hand is terminated")
	if strings.Contains(r.Log.String(), "DEVICE FAILED") {
		t.Errorf("the log is %q", r.Log)
	}
}
