package safety

import (
	"context"
	"path/filepath"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// leanServer is a lean-server with the demo's policy, and a session that receives the server's
// chunks as the robot does.
type leanServer struct {
	*stage.Server
	dir     string
	session wire.Session
}

// bundle returns the demo's bundle for the robot.
func (c *Config) bundle() string {
	if c.Robot == defaultRobot {
		return c.Tree + "/bundle"
	}
	return c.Tree + "/" + c.Robot
}

// openLean starts a lean-server that serves the bundle. It calls the function first with the arrival time of every
// chunk.
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

// serve starts the server with a bundle, for the first time or after it was killed.
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
	_ = l.Resume() // the server may be stopped by a signal
	l.Kill()
}
