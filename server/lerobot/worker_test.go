package lerobot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/remote"
)

// released is worker.py without its function main.
var released []byte

// TestMain runs the tests with a fake policy in the place of LeRobot's. The worker's frames, guard and loop are the
// real ones.
func TestMain(m *testing.M) {
	fake := rttest.OrPanic(os.ReadFile("testdata/fake.py"))
	head, _, found := strings.Cut(string(program), "\nif __name__ == ")
	if !found {
		panic("worker.py has no main")
	}
	released = []byte(head + "\n")
	program = slices.Concat(released, fake)
	os.Exit(m.Run())
}

// logged collects the log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func config(t testing.TB) *manifest.Config {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	folder := t.TempDir()
	rttest.WriteFile(t, folder, "config.json", "{}")
	cfg := manifest.Default()
	cfg.Model.Runtime = manifest.RuntimeLeRobot
	cfg.Model.Python = "python3"
	cfg.Model.RepoOrPath = folder
	return &cfg
}

func open(t *testing.T, log io.Writer) (*remote.Model, *worker) {
	t.Helper()
	opened := rttest.Must(Open(t.Context(), config(t), slog.New(slog.NewTextHandler(log, nil)), func(string) {}))(t)
	m := rttest.Must(opened.Serve(1, 2))(t)
	t.Cleanup(func() {
		rttest.Do(t, m.Close())
	})
	return m, opened.Runtime.(*worker)
}

// ask runs a request in row 0 and returns its robot rows.
func ask(m *remote.Model, r policy.Request, state float32) ([]float32, error) {
	m.State(0)[0] = state
	m.Image(0, 0)[0] = 3
	m.SetRequest(0, r)
	err := m.RunBuffer(0, 1)
	return m.ChunkRobot(0), err
}

// serves waits until the worker answers again, and checks that the answer is right.
func serves(t *testing.T, m *remote.Model) {
	t.Helper()
	rttest.Eventually(t, "a worker that serves", func() bool { return m.Condition().Ready })
	got, err := ask(m, policy.Request{Session: "after"}, 7)
	if err != nil || got[0] != 10 {
		t.Errorf("after the restart: %v, %v, want 10", got, err)
	}
}

func TestSessionsDoNotMix(t *testing.T) {
	m, _ := open(t, io.Discard)
	for i := range 6 {
		name := fmt.Sprintf("%032d", i%2)
		got, err := ask(m, policy.Request{Session: name, Task: strings.Repeat("x", i%2), Seed: 5}, float32(i))
		if want := float32(i + 3 + i%2); err != nil || got[0] != want || got[1] != float32(i/2+1) || got[5] != 5 {
			t.Errorf("request %d: %v (%v), want state, picture and task %v, request %d of its session, seed 5", i, got,
				err, want, i/2+1)
		}
		rttest.Want(t, m.ChunkModel(0)[0], got[0]/2, "the first of the model rows %v for %v", m.ChunkModel(0), got)
	}
	if got, _ := ask(m, policy.Request{Session: fmt.Sprintf("%032d", 1), Episode: 1}, 0); got[1] != 1 {
		t.Errorf("the first request of an episode is number %v, want 1", got[1])
	}
}

// A policy whose family can compute several robots in a batch does so if the manifest has max_batch. On a CPU it never
// does so without max_batch.
func TestTwoRobotsInABatch(t *testing.T) {
	cfg := config(t)
	discard := slog.New(slog.DiscardHandler)
	p := rttest.Must(Open(t.Context(), cfg, discard, func(string) {}))(t)
	rttest.Want(t, p.MaxBatch, 1, "rows without max_batch")
	rttest.Do(t, p.Runtime.Close())
	cfg.MaxBatch = 2
	m := rttest.Must(rttest.Must(Open(t.Context(), cfg, discard, func(string) {}))(t).Serve(2, 2))(t)
	defer m.Close()
	for row := range 2 {
		m.State(2 + row)[0] = float32(10 * row)
		m.SetRequest(2+row, policy.Request{Session: fmt.Sprint(row)})
	}
	if err := m.RunBuffer(1, 2); err != nil || m.ChunkRobot(2)[0] != 0 || m.ChunkRobot(3)[0] != 10 {
		t.Errorf("got %v and %v, %v", m.ChunkRobot(2), m.ChunkRobot(3), err)
	}
}

func TestThePrefixArrives(t *testing.T) {
	m, _ := open(t, io.Discard)
	m.Prefix(1)[0] = 42
	m.SetControls(1, policy.Controls{PrefixLen: 3, Delay: 2, PrefixEnd: 3, Mode: policy.ModeGuided})
	m.SetRequest(1, policy.Request{Session: "a"})
	rttest.Do(t, m.RunBuffer(1, 1))
	if got := m.ChunkRobot(1); got[2] != 42 || got[3] != 2 || got[4] != 3 {
		t.Errorf("prefix, delay, end = %v, want 42 2 3", got[2:5])
	}
}

func TestFailuresOfTheWorker(t *testing.T) {
	rttest.RealTime(t) // the limit of a batch is 0.7 s of real time
	for _, tt := range []struct {
		task, why string
		err       error
		ends      bool
	}{
		{"die", "signal: killed", policy.ErrAway, true},
		{"hang", "took longer than", policy.ErrAway, true},
		{"garbage", "a frame begins with", policy.ErrAway, true},
		{"oom", "out of memory", policy.ErrMemory, false},
		{"fail", "ZeroDivisionError", policy.ErrRun, false},
		{"shout", "", nil, false},
		{"noise", "", nil, false},
		{"fork", "", nil, false},
		{"terminal", "", nil, false},
	} {
		t.Run(tt.task, func(t *testing.T) {
			t.Parallel()
			log, began := new(logged), time.Now()
			m, w := open(t, log)
			w.patience.first, w.patience.least = 700*time.Millisecond, 700*time.Millisecond
			if tt.task == "shout" {
				w.patience.first = time.Minute
			}
			_, err := ask(m, policy.Request{Session: "s", Task: tt.task}, 0)
			if !errors.Is(err, tt.err) || tt.err != nil && !rttest.Says(err, tt.why) {
				t.Errorf("%s: %v, want %v with %q", tt.task, err, tt.err, tt.why)
			}
			if c := m.Condition(); tt.ends != (c.Failures > 0 || !c.Ready) && !tt.ends {
				t.Errorf("%s: %+v, want a worker that lives", tt.task, c)
			}
			serves(t, m)
			if c := m.Condition(); tt.ends && (c.Restarts != 1 || c.Failures != 1 || c.Why == "") {
				t.Errorf("%s: %+v, want one failure, one restart and a reason", tt.task, c)
			}
			if n := len(log.String()); n > 400_000*(1+int(time.Since(began)/(2*time.Second))) {
				t.Errorf("%s: %d bytes in the log", tt.task, n)
			}
			w.mu.Lock()
			group := w.process.cmd.Process.Pid
			w.mu.Unlock()
			rttest.Do(t, m.Close())
			rttest.Eventually(t, "the end of the process group", func() bool {
				return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH)
			})
		})
	}
}

// When a worker ends after it has sent its description, Serve returns an error, and Close waits for no further worker.
func TestAWorkerThatEndsBeforeItsRows(t *testing.T) {
	p := rttest.Must(Open(t.Context(), config(t), slog.New(slog.DiscardHandler), func(string) {}))(t)
	p.Runtime.(*worker).process.kill()
	rttest.FailsAs(t, rttest.Err(p.Serve(1, 2)), policy.ErrRun, "maps its rows")
	closed := make(chan error, 1)
	go func() { closed <- p.Runtime.Close() }()
	select {
	case err := <-closed:
		rttest.Do(t, err)
	case <-time.After(2 * killedWithin):
		t.Fatal("Close does not return")
	}
}

// A worker whose memory grows beyond model.memory_limit is started again, and the page has the reason.
func TestALeakEndsTheWorker(t *testing.T) {
	m, w := open(t, io.Discard)
	w.most = 150 << 20
	if _, err := ask(m, policy.Request{Session: "s", Task: "leak"}, 0); err != nil && !errors.Is(err, policy.ErrAway) {
		t.Fatal(err)
	}
	rttest.Eventually(t, "the end of the worker", func() bool { return m.Condition().Failures == 1 })
	serves(t, m)
	rttest.Contains(t, m.Condition().Why, "more than model.memory_limit (150 MiB)")
	cfg := config(t)
	cfg.Model.MemoryLimit = "1MiB"
	_, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler), func(string) {})
	rttest.FailsAs(t, err, manifest.ErrInvalid, "model.memory_limit is 1MiB")
}

// When a worker is ended because its batches fail, the reason is their error.
func TestShortMemoryIsTheReason(t *testing.T) {
	m, _ := open(t, io.Discard)
	_, err := ask(m, policy.Request{Session: "s", Task: "oom"}, 0)
	rttest.FailsAs(t, err, policy.ErrMemory)
	m.Fail(err)
	rttest.Eventually(t, "the end of the worker", func() bool { return m.Condition().Failures == 1 })
	serves(t, m)
	if c := m.Condition(); c.Errors != 1 || !strings.Contains(c.Why, "CUDA out of memory") {
		t.Errorf("%+v, want one error, and CUDA out of memory as the reason", c)
	}
}

// Property: whenever the worker is killed, a request gets its own chunk or an error, and the worker
// serves again.
func TestKillsAtRandomMoments(t *testing.T) {
	m, w := open(t, io.Discard)
	for kill := range 5 {
		after := time.Duration(rand.IntN(2000)) * time.Microsecond
		w.mu.Lock()
		p := w.process
		w.mu.Unlock()
		timer := time.AfterFunc(after, p.kill)
		for i := range 1000 {
			got, err := ask(m, policy.Request{Session: "s"}, float32(i))
			if err == nil && got[0] != float32(i)+3 {
				t.Fatalf("kill %d, request %d: %v", kill, i, got)
			}
			if errors.Is(err, policy.ErrAway) {
				break
			}
			if err != nil {
				t.Fatalf("kill %d, request %d: %v, want policy.ErrAway", kill, i, err)
			}
		}
		timer.Stop()
		rttest.Eventually(t, "a worker that serves", func() bool {
			c := m.Condition()
			return c.Ready && c.Restarts == uint64(kill+1)
		})
	}
}

func TestAPolicyThatDoesNotLoad(t *testing.T) {
	for fault, want := range map[string]string{
		"model.dataset_info has no names":                    "load: model.dataset_info has no names",
		"FileNotFoundError: /me/model.safetensors":           "model.repo_or_path: the policy does not load",
		"RuntimeError: size mismatch for model.encoder.norm": "model.repo_or_path: the policy does not load",
		"ModuleNotFoundError: No module named 'peft'":        "pip install 'lerobot[peft]'",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Setenv("FAKE_FAULT", fault)
			_, err := Open(t.Context(), config(t), slog.New(slog.DiscardHandler), func(string) {})
			rttest.FailsAs(t, err, manifest.ErrInvalid, want)
		})
	}
	t.Run("exit", func(t *testing.T) {
		t.Setenv("FAKE_EXIT", "1")
		_, err := Open(t.Context(), config(t), slog.New(slog.DiscardHandler), func(string) {})
		rttest.FailsAs(t, err, manifest.ErrInvalid, "exit status 7", "no such weights")
	})
	t.Run("python", func(t *testing.T) {
		cfg := config(t)
		cfg.Model.Python = "/nowhere/python"
		_, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler), func(string) {})
		rttest.FailsAs(t, err, manifest.ErrInvalid, "model.python")
	})
}

// A server takes one session when its policy keeps state of a robot. It takes more when the
// policy's family is unknown and the manifest states that the policy keeps no state.
func TestExclusive(t *testing.T) {
	for _, tt := range []struct {
		state, mode string
		want        bool
	}{{"none", "auto", false}, {"instance", "auto", true}, {"instance", "shared", true}, {"unknown", "auto", true},
		{"unknown", "shared", false}} {
		t.Setenv("FAKE_STATE", tt.state)
		cfg := config(t)
		cfg.ServingMode = tt.mode
		p := rttest.Must(Open(t.Context(), cfg, slog.New(slog.DiscardHandler), func(string) {}))(t)
		rttest.Want(t, p.Exclusive, tt.want, "state %s, serving_mode %s: exclusive", tt.state, tt.mode)
		rttest.Do(t, p.Runtime.Close())
	}
}

// The guard ends the worker and its children when the pipe ends, as it does when this process is
// killed.
func TestNothingOutlivesTheServer(t *testing.T) {
	m, w := open(t, io.Discard)
	rttest.Must(ask(m, policy.Request{Session: "s", Task: "fork"}, 0))(t)
	group := w.process.cmd.Process.Pid
	w.process.life.Close()
	rttest.Eventually(t, "the end of the process group", func() bool {
		return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH)
	})
}

// Property: whatever the bytes, a frame is refused or has the announced length.
func FuzzFrame(f *testing.F) {
	f.Add(append(appendHeader(nil, header{kindDone, 1, 3, 9}), "why"...))
	f.Add([]byte("garbage garbage garbage"))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, payload, _, err := readFrame(bytes.NewReader(in), make([]byte, 64))
		if err == nil && (len(payload) != h.length || h.length > maxPayload || len(in) < headerSize+h.length) {
			t.Errorf("frame %+v with %d bytes of %d", h, len(payload), len(in))
		}
	})
}

// A worker that starts again with other weights does not serve, because robots got the sha256 of
// the first weights when they opened their sessions.
func TestOtherWeightsAfterARestart(t *testing.T) {
	m, w := open(t, io.Discard)
	rttest.WriteFile(t, w.folder, "model.safetensors", "another step")
	w.kill("the test ends it")
	rttest.Eventually(t, "the reason", func() bool {
		c := m.Condition()
		return !c.Ready && strings.Contains(c.Why, "is not the one that was served")
	})
	rttest.Do(t, os.Remove(filepath.Join(w.folder, "model.safetensors")))
	serves(t, m)
}

// When a training moves its link checkpoints/last, the server still uses the checkpoint that the link named at first.
func TestALinkedCheckpoint(t *testing.T) {
	cfg := config(t)
	link := filepath.Join(t.TempDir(), "last")
	rttest.Do(t, os.Symlink(cfg.Model.RepoOrPath, link))
	want := cfg.Model.RepoOrPath
	cfg.Model.RepoOrPath = link
	rttest.Want(t, rttest.Must(settingsOf(cfg))(t).Policy, want, "the policy")
}

// A name on the hub is fetched at the manifest's revision, by which robots know the policy.
func TestTheRevisionOnTheHub(t *testing.T) {
	file := rttest.WriteFile(t, t.TempDir(), "server.yaml",
		"model: {runtime: lerobot, python: python3, repo_or_path: me/pick, revision: v2}\n")
	cfg := rttest.Must(manifest.Load(file))(t)
	if s := rttest.Must(settingsOf(&cfg))(t); s.Policy != "me/pick" || s.Hub != "v2" {
		t.Errorf("the policy is %s at %q, want me/pick at v2", s.Policy, s.Hub)
	}
}

// The units, which no checkpoint has, come from the manifest.
func TestUnits(t *testing.T) {
	cfg := config(t)
	cfg.Model.Inputs.ActionUnits = []string{"degrees", "range_0_100"}
	p := rttest.Must(Open(t.Context(), cfg, slog.New(slog.DiscardHandler), func(string) {}))(t)
	if !slices.Equal(p.ActionUnits, cfg.Model.Inputs.ActionUnits) || !slices.Equal(p.StateUnits, p.ActionUnits) {
		t.Errorf("units %v, state %v", p.ActionUnits, p.StateUnits)
	}
	rttest.Do(t, p.Runtime.Close())
}

func TestInterpreters(t *testing.T) {
	script := func(text string) string {
		path := rttest.WriteFile(t, t.TempDir(), "python", "#!/bin/sh\n"+text+"\n")
		return path
	}
	for _, tt := range []struct{ python, want string }{
		{"true", "the interpreter does not run the worker"},
		{script("echo SyntaxError: invalid syntax >&2; exit 1"), "its last line: SyntaxError"},
	} {
		cfg := config(t)
		cfg.Model.Python = tt.python
		_, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler), func(string) {})
		rttest.FailsAs(t, err, manifest.ErrInvalid, "model.python: ", tt.want)
	}
	old := "import sys\nsys.version_info = (3, 8, 1)\n" + string(released)
	out, err := exec.Command("python3", "-c", old).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "model.python is Python 3.8, want 3.10 or newer") {
		t.Errorf("Python 3.8: %s, %v", out, err)
	}
}
