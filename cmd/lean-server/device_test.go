package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// Goal: a device that this machine lacks is an error with the line, the cure and an exit code
// that nothing restarts, or the CPU computes instead and the report has the reason.
func TestDevice(t *testing.T) {
	needRuntime(t)
	_, library := policy.RuntimeVersion()
	bundle, err := filepath.Abs(filepath.Join(demo, "still"))
	if err != nil {
		t.Fatal(err)
	}
	const absent = "CUDA execution provider is not enabled"
	for _, tt := range []struct {
		name, keys string
		code       int
		words      []string // of the error; of the report when the code is 0
	}{
		{"auto", "device: auto", 0, []string{"cpu", absent}},
		{"cuda or the CPU", "device: cuda\n  fallback: cpu", 0, []string{"cpu", absent}},
		{"openvino or the CPU", "device: openvino\n  fallback: cpu", 0, []string{"cpu", "onnxruntime-openvino"}},
		{"cuda", "device: cuda", 3, []string{"server.yaml:3: ", "make setup-gpu", absent}},
		{"a second GPU", "device: \"cuda:1\"", 3, []string{"server.yaml:3: ", "make setup-gpu"}},
		{"tensorrt", "device: tensorrt\n  cache_dir: engines", 3, []string{"server.yaml:3: ", absent}},
		{"openvino", "device: openvino", 3, []string{"server.yaml:3: ", "onnxruntime-openvino"}},
		{"another type", "device: cuda\n  dtype: float16", 3, []string{"float32", "want float16"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := leanServer(t, nil, "check", "--manifest",
				writeManifest(t, "model:\n  repo_or_path: "+bundle+"\n  "+tt.keys+"\nhealth_port: 0\n"),
				"--ort", library, "--json", "-")
			text := stderr
			if code == 0 {
				var report struct {
					Device  string `json:"device"`
					Instead string `json:"device_instead_of"`
				}
				if err := json.Unmarshal([]byte(stdout), &report); err != nil {
					t.Fatal(err)
				}
				text = report.Device + " " + report.Instead
			}
			if code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, stderr)
			}
			for _, word := range tt.words {
				if !strings.Contains(text, word) {
					t.Errorf("%q is missing in %q", word, text)
				}
			}
		})
	}
}

// Goal: a SIGTERM while one inference takes longer than the drain waits ends the program in bounded
// time with 0: the inference is terminated.
//
// testdata/hang.pb is the part of a graph that adds to the policy's chunk the result, 0, of a loop
// of max(0, largest state - 1e6) * 1e12 turns.
func TestSIGTERMDuringALongInference(t *testing.T) {
	rttest.RealTime(t)
	hang, err := os.ReadFile("testdata/hang.pb")
	if err != nil {
		t.Fatal(err)
	}
	manifest := brokenBundle(t, func(files map[string][]byte, _ map[string]any) {
		graph := bytes.Replace(files["policy.onnx"], []byte("chunk_robot"), []byte("chunk_rabot"), 1)
		files["policy.onnx"] = append(graph, hang...)
	})
	r := start(t, "--manifest", manifest)
	r.awaitReady()
	network, prefix := r.dial()
	arm := newArm(t, network, prefix)
	arm.ask(1)
	arm.body.State[0] = 2e6
	h := wire.Header{SchemaVersion: wire.SchemaVersion, MsgType: wire.MsgObservation, SeqID: 2}
	if err := arm.obs.Put(wire.AppendObservation(nil, &arm.body), wire.AppendHeader(nil, h)); err != nil {
		t.Fatal(err)
	}
	rttest.Eventually(t, "the inference", func() bool { return r.metric("lean_server_busy_seconds") > 0 })
	begin := time.Now()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	const limit = 4 * time.Second // 1.2 s for it to end by itself
	overdue := time.AfterFunc(2*limit, func() { _ = r.cmd.Process.Kill() })
	defer overdue.Stop()
	err = r.cmd.Wait()
	if took := time.Since(begin); err != nil || took > limit {
		t.Errorf("it ended with %v after %v, want 0 within %v:\n%s", err, took, limit, r.log.String())
	}
	if text := r.log.String(); !strings.Contains(text, "the inference in hand is terminated") ||
		strings.Contains(text, "DEVICE FAILED") {
		t.Errorf("the log is %q, want that the inference is terminated", text)
	}
}
