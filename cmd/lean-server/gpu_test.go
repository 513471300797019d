package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/cuda/cudatest"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// Goal: the manifest's device is used, or the error names the line, the cure and an exit code that
// restarts only failures that a restart may cure; on a GPU that is faked on the CPU (package
// cudatest).
func TestDevice(t *testing.T) {
	needRuntime(t)
	_, library := policy.RuntimeVersion()
	bundle, err := filepath.Abs(filepath.Join(demo, "still"))
	if err != nil {
		t.Fatal(err)
	}
	site := cudatest.Install(t, library)
	device := func(keys string) string {
		return writeManifest(t, "model:\n  repo_or_path: "+bundle+"\n  "+keys+"\nhealth_port: 0\n")
	}
	const noDriver, noDevice = "FAKE_GPU_COUNT_ERROR=35", "FAKE_GPU_COUNT_ERROR=100"
	for _, tt := range []struct {
		name, keys, setting string
		code                int
		says                []string // parts of the error; of the report when the code is 0
	}{
		{"cuda", "device: cuda", "", 0, []string{"cuda:0"}},
		{"a second GPU", "device: \"cuda:1\"", "FAKE_GPU_COUNT=2", 0, []string{"cuda:1"}},
		{"tensorrt", "device: tensorrt\n  cache_dir: engines", "", 0, []string{"tensorrt:0"}},
		{"auto", "device: auto", "", 0, []string{"cuda:0"}},
		{"auto without a driver", "device: auto", noDriver, 0, []string{"cpu", "no NVIDIA driver"}},
		{"auto with a broken provider", "device: auto", "FAKE_GPU_PROVIDER_ERROR=undefined symbol: x", 0,
			[]string{"cpu", "undefined symbol: x"}},
		{"auto with a GPU that fails at once", "device: auto", "FAKE_GPU_RUN_ERROR=CUDA failure 719", 0,
			[]string{"cpu", "CUDA failure 719"}},
		{"cuda or the CPU", "device: cuda\n  fallback: cpu", noDevice, 0, []string{"cpu", "no CUDA-capable device"}},
		{"cuda without the provider", "device: cuda", "FAKE_GPU_PROVIDERS=cpu", 3,
			[]string{"server.yaml:3: ", "make setup-gpu", "CPUExecutionProvider"}},
		{"cuda with a broken provider", "device: cuda", "FAKE_GPU_PROVIDER_ERROR=undefined symbol: x", 3,
			[]string{"server.yaml:3: ", "make setup-gpu", "undefined symbol: x"}},
		{"cuda without a driver", "device: cuda", noDriver, 3, []string{"server.yaml:3: ", "no NVIDIA driver"}},
		{"cuda without a device", "device: cuda", noDevice, 4, []string{"cuda:0", "nvidia-smi"}},
		{"a GPU too many", "device: \"cuda:1\"", "", 4, []string{"cuda:1", "this machine has 1"}},
		{"a GPU without memory", "device: cuda", "FAKE_GPU_MALLOC_ERROR=2", 4, []string{"out of memory"}},
		{"a GPU that fails at once", "device: cuda", "FAKE_GPU_RUN_ERROR=CUDA failure 719", 4,
			[]string{"CUDA failure 719"}},
		{"another type", "device: cuda\n  dtype: float16", "", 3, []string{"float32", "want float16"}},
		{"an old library", "device: cuda", "FAKE_GPU_VERSION=1.20.0", 3, []string{"1.20.0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := leanServer(t, []string{tt.setting}, "check", "--manifest", device(tt.keys), "--ort",
				site.Library(), "--json", "-")
			said := stderr
			if code == 0 {
				var report struct {
					Device  string `json:"device"`
					Instead string `json:"device_instead_of"`
					Host    int64  `json:"tensor_bytes"`
					Twins   int64  `json:"device_tensor_bytes"`
				}
				if err := json.Unmarshal([]byte(stdout), &report); err != nil {
					t.Fatal(err)
				}
				said = report.Device + " " + report.Instead
				if (report.Instead != "") != (len(tt.says) > 1) {
					t.Errorf("instead is %q", report.Instead)
				}
				if want := map[bool]int64{false: report.Host}[report.Device == "cpu"]; report.Host <= 0 ||
					report.Twins != want {
					t.Errorf("%d bytes of tensors and %d on %s", report.Host, report.Twins, report.Device)
				}
			}
			if code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, stderr)
			}
			for _, word := range tt.says {
				if !strings.Contains(said, word) {
					t.Errorf("%q is missing in %q", word, said)
				}
			}
		})
	}
}

// Goal: when a GPU stops working after a robot was served, the robot gets an event that the device
// failed and that it must go elsewhere, and the process ends with the code that is restarted.
func TestServerEndsWhenItsGPUFails(t *testing.T) {
	needRuntime(t)
	_, library := policy.RuntimeVersion()
	site := cudatest.Install(t, library)
	bundle, err := filepath.Abs(filepath.Join(demo, "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	sick := filepath.Join(t.TempDir(), "sick")
	t.Setenv("FAKE_GPU_SICK", sick)
	t.Setenv("FAKE_GPU_RUN_ERROR", "CUDA failure 700: an illegal memory access was encountered")
	r := start(t, "--ort", site.Library(), "--manifest",
		writeManifest(t, fmt.Sprintf("model: {repo_or_path: %q, device: cuda}\n", bundle)))
	r.awaitReady()
	network, prefix := r.dial()
	arm := newArm(t, network, prefix)
	for seq := uint64(1); seq <= 10; seq++ {
		arm.ask(seq)
	}
	if err := os.WriteFile(sick, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := wire.Header{SchemaVersion: wire.SchemaVersion, MsgType: wire.MsgObservation, SeqID: 11}
	if err := arm.obs.Put(wire.AppendObservation(nil, &arm.body), wire.AppendHeader(nil, h)); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-arm.events:
		if e.Code != wire.EventDraining || !strings.Contains(e.Text, "device failed") {
			t.Errorf("event %+v, want that the device failed, and nobody's observation", e)
		}
	case <-time.After(patience):
		t.Fatal("no event")
	}
	overdue := time.AfterFunc(patience, func() { _ = r.cmd.Process.Kill() })
	defer overdue.Stop()
	var ended *exec.ExitError
	if err := r.cmd.Wait(); !errors.As(err, &ended) || ended.ExitCode() != 1 ||
		!strings.Contains(r.log.String(), "THE DEVICE FAILED") {
		t.Errorf("the server ended with %v, want code 1 and a loud line:\n%s", err, r.log.String())
	}
	if s := r.summary(); s.Device != "cuda:0" || s.Requests != 10 || s.Errors != 1 {
		t.Errorf("summary: %d requests and %d errors on %s, want 10 and 1 on cuda:0", s.Requests, s.Errors, s.Device)
	}
}

// Goal: a SIGTERM while one inference takes longer than the drain waits ends the program in bounded
// time with 0, whether ONNX Runtime computes on or nothing ends it.
func TestSIGTERMDuringALongInference(t *testing.T) {
	rttest.RealTime(t)
	needRuntime(t)
	_, library := policy.RuntimeVersion()
	site := cudatest.Install(t, library)
	bundle, err := filepath.Abs(filepath.Join(demo, "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		how   string
		limit time.Duration
		says  string
	}{
		{"slow", 4 * time.Second, "the inference in hand is terminated"}, // 1.2 s for it to end by itself
		{"deaf", 8 * time.Second, "ends with the process"},               // and 3 s for it to be terminated
	} {
		t.Run(tt.how, func(t *testing.T) {
			sick := filepath.Join(t.TempDir(), "sick")
			t.Setenv("FAKE_GPU_SICK", sick)
			t.Setenv("FAKE_GPU_RUN_ERROR", tt.how)
			r := start(t, "--ort", site.Library(), "--manifest",
				writeManifest(t, fmt.Sprintf("model: {repo_or_path: %q, device: cuda}\nmax_batch: 2\n", bundle)))
			r.awaitReady()
			network, prefix := r.dial()
			arm := newArm(t, network, prefix)
			arm.ask(1)
			if err := os.WriteFile(sick, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			h := wire.Header{SchemaVersion: wire.SchemaVersion, MsgType: wire.MsgObservation, SeqID: 2}
			if err := arm.obs.Put(wire.AppendObservation(nil, &arm.body), wire.AppendHeader(nil, h)); err != nil {
				t.Fatal(err)
			}
			rttest.Eventually(t, "the inference", func() bool { return r.metric("lean_server_busy_seconds") > 0 })
			begin := time.Now()
			if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			overdue := time.AfterFunc(2*tt.limit, func() { _ = r.cmd.Process.Kill() })
			defer overdue.Stop()
			err := r.cmd.Wait()
			if took := time.Since(begin); err != nil || took > tt.limit {
				t.Errorf("it ended with %v after %v, want 0 within %v:\n%s", err, took, tt.limit, r.log.String())
			}
			if !strings.Contains(r.log.String(), tt.says) || strings.Contains(r.log.String(), "DEVICE FAILED") {
				t.Errorf("the log says %q, want %q", r.log.String(), tt.says)
			}
		})
	}
}
