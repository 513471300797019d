package safety

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"edgert/bench"
	"edgert/rt"
	"edgert/wire"
	"edgert/wire/zenoh"
)

// How long the programs may take.
const (
	armLimit  = 20 * time.Second // from an edge's start to an arm under torque
	exitLimit = 8 * time.Second  // from SIGTERM to the end: it parks
	ctlLimit  = 10 * time.Second // one word to the operator's socket, until it is there
)

// robotEdge is an edge-rt.
type robotEdge struct {
	*bench.Child
	bin, dir, id string
	gone         chan struct{} // closed when the process has died
	goneAt       rt.Instant    // after gone
}

// startEdge runs edge-rt on an arm.
func startEdge(bin string, a *arm, endpoint string, args ...string) (*robotEdge, error) {
	e := &robotEdge{bin: bin, dir: a.dir, id: robotID, gone: make(chan struct{})}
	all := append([]string{"--bus", a.port(), "--calibration", a.calibrationPath(), "--connect", endpoint, "--id", robotID,
		"--request-timeout", "1s", "--reconnect-initial-backoff", "200ms", "--reconnect-max-backoff", "500ms"}, args...)
	if !has(args, "--fps") {
		all = append(all, "--fps", fmt.Sprint(FPS))
	}
	cmd := exec.Command(filepath.Join(bin, "edge-rt"), all...)
	cmd.Env = e.environ(cmd)
	var err error
	if e.Child, err = bench.StartGroup(cmd); err != nil {
		return nil, err
	}
	go func() {
		awaitDeath(e.PID(), e.Exited())
		e.goneAt = rt.KernelClock().Now()
		close(e.gone)
	}()
	return e, nil
}

// dead reports whether the process has died. Its guard may live on: it holds the
// edge's outputs open, and Exited waits for those too.
func (e *robotEdge) dead() bool {
	select {
	case <-e.gone:
		return true
	default:
		return false
	}
}

func has(args []string, flag string) bool {
	for _, a := range args {
		if a == flag || strings.HasPrefix(a, flag+"=") {
			return true
		}
	}
	return false
}

// environ is of every edge-rt: its state in its own folder, and no service manager.
func (e *robotEdge) environ(cmd *exec.Cmd) (env []string) {
	for _, v := range bench.Scrubbed(cmd.Environ()) {
		if !strings.HasPrefix(v, "NOTIFY_SOCKET=") && !strings.HasPrefix(v, "STATE_DIRECTORY=") {
			env = append(env, v)
		}
	}
	return append(env, "STATE_DIRECTORY="+e.dir)
}

// signal sends one to the edge alone; its guard gets none.
func (e *robotEdge) signal(s syscall.Signal) error { return syscall.Kill(e.PID(), s) }

// ended is the exit code, or the signal that ended it.
func (e *robotEdge) ended() string {
	<-e.Exited()
	state := e.State()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return strings.ToUpper("sig" + shortSignal(status.Signal()))
	}
	return fmt.Sprint(state.ExitCode())
}

func shortSignal(s syscall.Signal) string {
	switch s {
	case syscall.SIGKILL:
		return "kill"
	case syscall.SIGTERM:
		return "term"
	case syscall.SIGABRT:
		return "abrt"
	}
	return fmt.Sprint(int(s))
}

// ctl says one word to the edge's operator socket, again until somebody listens
// there.
func (e *robotEdge) ctl(word string) error {
	var err error
	var out []byte
	for end := time.Now().Add(ctlLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		cmd := exec.Command(filepath.Join(e.bin, "edge-rt"), "ctl", word, "--id", e.id)
		cmd.Env = e.environ(cmd)
		if out, err = cmd.CombinedOutput(); err == nil {
			return nil
		}
		if !e.Running() {
			break
		}
	}
	return fmt.Errorf("edge-rt ctl %s: %w: %s", word, err, bytes.TrimSpace(out))
}

// state asks what the run looks like.
func (e *robotEdge) state() (state string, chunks uint64) {
	cmd := exec.Command(filepath.Join(e.bin, "edge-rt"), "ctl", "status", "--id", e.id)
	cmd.Env = e.environ(cmd)
	out, err := cmd.Output()
	var reply struct {
		State  string `json:"state"`
		Chunks uint64 `json:"chunks"`
	}
	if err != nil || json.Unmarshal(out, &reply) != nil {
		return "", 0
	}
	return reply.State, reply.Chunks
}

// lean is a lean-server that can be killed and come back at its place.
type lean struct {
	bin, dir, endpoint string
	child              *bench.Child
	tap                wire.Session
}

// The name of the model, whichever it is, and of the service.
const leanModel, leanService = "demo/around-the-post", "demo"

// openLean serves a bundle, and listens to what it answers.
func openLean(ctx context.Context, bin, dir, bundle string, first func(rt.Instant)) (*lean, error) {
	endpoint, err := freeEndpoint()
	if err != nil {
		return nil, err
	}
	l := &lean{bin: bin, dir: dir, endpoint: endpoint}
	if err := l.start(bundle); err != nil {
		return nil, err
	}
	if err := l.listen(ctx, first); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// start serves a bundle of testdata/demo.
func (l *lean) start(bundle string) (err error) {
	abs, err := filepath.Abs(bundle)
	if err != nil {
		return err
	}
	manifest := filepath.Join(l.dir, "server.yaml")
	text := fmt.Sprintf("model: {repo_or_path: %q, id: %s}\nservice: %s\ndefault_task: around the post\n", abs, leanModel, leanService)
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(l.bin, "lean-server"), "--manifest", manifest, "--listen", l.endpoint, "--health-port", "0", "--quiet")
	cmd.Env = bench.Scrubbed(cmd.Environ())
	if l.child, err = bench.StartGroup(cmd); err != nil {
		return err
	}
	address := strings.TrimPrefix(l.endpoint, "tcp/")
	for end := time.Now().Add(bench.ServerLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !l.child.Running() {
			return errors.Join(l.child.Wait(0), errors.New("lean-server ended by itself"))
		}
		if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("lean-server did not listen within %v", bench.ServerLimit)
}

// listen hears the chunks as the robot does.
func (l *lean) listen(ctx context.Context, first func(rt.Instant)) (err error) {
	if l.tap, err = zenoh.Open(ctx, zenoh.Config{Connect: []string{l.endpoint}, BackoffMin: 100 * time.Millisecond, BackoffMax: 200 * time.Millisecond}); err != nil {
		return err
	}
	prefix, err := wire.ServicePrefix(leanModel, "main", leanService)
	if err != nil {
		return err
	}
	key, err := wire.ActionKey(prefix, robotID)
	if err != nil {
		return err
	}
	_, err = l.tap.Subscribe(key, func(wire.Sample) { first(rt.KernelClock().Now()) })
	return err
}

func (l *lean) close() {
	if l.tap != nil {
		l.tap.Close()
	}
	if l.child != nil {
		_ = l.child.Resume() // it may be stopped
		l.child.Kill()
	}
}
