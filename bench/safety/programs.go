package safety

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// Longest times of the programs.
const (
	armLimit  = 20 * time.Second // from an edge's start to an arm under torque
	exitLimit = 8 * time.Second  // from SIGTERM to the end: it parks
	ctlLimit  = 10 * time.Second // for edge-rt ctl, until the edge listens
)

// edgeProcess is an edge-rt.
type edgeProcess struct {
	*stage.Child
	bin, dir string
	gone     chan struct{} // closed when the process has ended
	endedAt  rt.Instant    // after gone
}

func startEdge(bin string, a *arm, endpoint string, args ...string) (e *edgeProcess, err error) {
	e = &edgeProcess{bin: bin, dir: a.dir, gone: make(chan struct{})}
	all := append([]string{"--bus", a.port(), "--calibration", a.calibrationPath(), "--connect", endpoint, "--id",
		robotID, "--fps", fmt.Sprint(fps),
		"--request-timeout", "1s", "--reconnect-initial-backoff", "200ms", "--reconnect-max-backoff", "500ms"}, args...)
	if e.Child, err = stage.StartGroup(stage.Edge(bin, a.dir, all...)); err != nil {
		return nil, err
	}
	go func() {
		waitDeath(e.PID(), e.Exited())
		e.endedAt = now()
		close(e.gone)
	}()
	return e, nil
}

// ended reports whether the edge has ended. Its watchdog process may still run and hold the edge's
// outputs open, for which Exited waits too.
func (e *edgeProcess) ended() bool {
	select {
	case <-e.gone:
		return true
	default:
		return false
	}
}

// close ends a running edge, also a stopped one.
func (e *edgeProcess) close() {
	if e.Running() {
		_ = e.signal(syscall.SIGCONT)
		e.Kill()
	}
}

// signal sends a signal to the edge only; its watchdog process does not get it.
func (e *edgeProcess) signal(s syscall.Signal) error { return syscall.Kill(e.PID(), s) }

// signalNames are the signals that end an edge here.
var signalNames = map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGTERM: "SIGTERM",
	syscall.SIGABRT: "SIGABRT"}

// exit returns the exit code, or the signal that ended the edge.
func (e *edgeProcess) exit() string {
	<-e.Exited()
	state := e.State()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return cmp.Or(signalNames[status.Signal()], fmt.Sprintf("SIG%d", int(status.Signal())))
	}
	return fmt.Sprint(state.ExitCode())
}

// reason returns the edge's last message, in one line.
func (e *edgeProcess) reason() string {
	const most = 300
	words := e.LastWords()
	if strings.HasPrefix(words, "t=") {
		return "" // a line of its log
	}
	if len(words) > most {
		words = words[:most] + "..."
	}
	return words
}

// ctl runs edge-rt ctl, repeatedly until the edge listens.
func (e *edgeProcess) ctl(word string) error {
	var err error
	var out []byte
	for end := time.Now().Add(ctlLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if out, err = stage.Edge(e.bin, e.dir, "ctl", word, "--id", robotID).CombinedOutput(); err == nil {
			return nil
		}
		if !e.Running() {
			break
		}
	}
	return fmt.Errorf("edge-rt ctl %s: %w: %s", word, err, bytes.TrimSpace(out))
}

// leanServer is a lean-server with the demo's policy, and a session that receives its chunks like
// the robot.
type leanServer struct {
	*stage.Server
	dir     string
	session wire.Session
}

// openLean serves a bundle, and calls first with the time of every chunk.
func openLean(ctx context.Context, bin, dir, bundle string, first func(rt.Instant), flags ...string) (*leanServer,
	error) {
	server, err := stage.NewServer(bin, filepath.Join(dir, "server.yaml"), flags...)
	if err != nil {
		return nil, err
	}
	l := &leanServer{Server: server, dir: dir}
	if err := l.serve(ctx, bundle); err != nil {
		return nil, err
	}
	if err := l.subscribe(ctx, first); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// serve starts the server on a bundle, also after it was killed.
func (l *leanServer) serve(ctx context.Context, bundle string) error {
	if _, err := stage.WriteManifest(l.dir, bundle); err != nil {
		return err
	}
	return l.Start(ctx)
}

func (l *leanServer) subscribe(ctx context.Context, first func(rt.Instant)) (err error) {
	if l.session, err = zenoh.Open(ctx, zenoh.Config{Connect: []string{l.Endpoint}, BackoffMin: 100 * time.Millisecond,
		BackoffMax: 200 * time.Millisecond}); err != nil {
		return err
	}
	prefix, err := wire.ServicePrefix(stage.DemoModel, "main", stage.DemoService)
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

func (l *leanServer) close() {
	if l.session != nil {
		l.session.Close()
	}
	_ = l.Resume() // it may be stopped
	l.Kill()
}
