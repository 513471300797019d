package safety

import (
	"bytes"
	"context"
	"fmt"
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
	var err error
	if e.Child, err = bench.StartGroup(bench.Edge(bin, a.dir, all...)); err != nil {
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
		if out, err = bench.Edge(e.bin, e.dir, "ctl", word, "--id", e.id).CombinedOutput(); err == nil {
			return nil
		}
		if !e.Running() {
			break
		}
	}
	return fmt.Errorf("edge-rt ctl %s: %w: %s", word, err, bytes.TrimSpace(out))
}

// lean is a lean-server with the demo's policy, and a session that hears its
// chunks as the robot does.
type lean struct {
	*bench.Server
	dir     string
	session wire.Session
}

// openLean serves a bundle, and tells first of every chunk.
func openLean(ctx context.Context, bin, dir, bundle string, first func(rt.Instant)) (*lean, error) {
	server, err := bench.NewServer(bin, filepath.Join(dir, "server.yaml"))
	if err != nil {
		return nil, err
	}
	l := &lean{Server: server, dir: dir}
	if err := l.serve(ctx, bundle); err != nil {
		return nil, err
	}
	if err := l.subscribe(ctx, first); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// serve starts the server on a bundle, again where it was killed.
func (l *lean) serve(ctx context.Context, bundle string) error {
	if _, err := bench.WriteManifest(l.dir, bundle); err != nil {
		return err
	}
	return l.Start(ctx)
}

func (l *lean) subscribe(ctx context.Context, first func(rt.Instant)) (err error) {
	if l.session, err = zenoh.Open(ctx, zenoh.Config{Connect: []string{l.Endpoint}, BackoffMin: 100 * time.Millisecond, BackoffMax: 200 * time.Millisecond}); err != nil {
		return err
	}
	prefix, err := wire.ServicePrefix(bench.DemoModel, "main", bench.DemoService)
	if err != nil {
		return err
	}
	key, err := wire.ActionKey(prefix, robotID)
	if err != nil {
		return err
	}
	_, err = l.session.Subscribe(key, func(wire.Sample) { first(now()) })
	return err
}

func (l *lean) close() {
	if l.session != nil {
		l.session.Close()
	}
	_ = l.Resume() // it may be stopped
	l.Kill()
}
