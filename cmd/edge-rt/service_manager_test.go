package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const (
	patience = 30 * time.Second // only a failing test waits so long
	demo     = "../../testdata/demo"
)

// manager takes systemd's part for one service.
type manager struct {
	t    *testing.T
	path string
	conn *net.UnixConn
	said []string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &manager{t: t, path: path, conn: l}
}

// receive returns the next message, or "" when no message comes within d.
func (m *manager) receive(d time.Duration) string {
	m.conn.SetReadDeadline(time.Now().Add(d))
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	if err != nil {
		return ""
	}
	m.said = append(m.said, string(buf[:n]))
	return string(buf[:n])
}

// await returns when the message want arrives.
func (m *manager) await(want string) {
	m.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if m.receive(time.Until(end)) == want {
			return
		}
	}
	m.t.Fatalf("%s did not come within %v; heard %q", want, patience, m.said)
}

// service starts a program as a unit would, and kills it at the end of the test.
func service(t *testing.T, m *manager, program string, args ...string) (*exec.Cmd, *rttest.Output) {
	t.Helper()
	cmd, out := bySystemd(exec.Command(program, args...)), new(rttest.Output)
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir(), "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=600000")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return cmd, out
}

// freePort returns an endpoint of this machine without a listener.
func freePort(t *testing.T) string {
	t.Helper()
	endpoint, err := stage.FreeEndpoint()
	if err != nil {
		t.Fatal(err)
	}
	return endpoint
}

// buildLeanServer returns the path of lean-server, and builds it on the first call.
func buildLeanServer(t *testing.T) string {
	t.Helper()
	bin, err := leanServerBuilt()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(bin, "lean-server")
}

// Both real programs run under a service manager. The edge starts first, alone: it must not report
// READY=1 before it has a session with a server.
func TestServicesSayWhatIsTrue(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the arm for seconds")
	}
	if err := policy.OpenRuntime("", "cpu"); err != nil {
		t.Skipf("no ONNX Runtime here: %.80s", err)
	}
	lean := buildLeanServer(t)
	endpoint := freePort(t)
	me, ms := newManager(t), newManager(t)
	edge, log := service(t, me, binary, "--bus", "sim", "--camera", "top=sim", "--connect", endpoint,
		"--reconnect-initial-backoff", "100ms", "--reconnect-max-backoff", "200ms")
	me.await("STATUS=looking for a server")
	if got := me.receive(700 * time.Millisecond); got != "" {
		t.Errorf("without a server the edge says %q", got)
	}
	srv, srvLog := service(t, ms, lean, "--manifest", demo+"/server.yaml", "--listen", endpoint, "--health-port", "0")
	ms.await("READY=1")
	if !strings.Contains(srvLog.String(), "msg=serving") {
		t.Errorf("the server is ready before it serves:\n%s", srvLog)
	}
	me.await("READY=1")
	if !strings.Contains(log.String(), "session open") {
		t.Errorf("the edge is ready before its session is open:\n%s", log)
	}
	if n := strings.Count(strings.Join(me.said, " "), "EXTEND_TIMEOUT_USEC=90000000"); n < 2 {
		t.Errorf("it asks %d times for 90 s, want twice: for the arm and for the server: %q", n, me.said)
	}
	if slices.Contains(me.said, "WATCHDOG=1") {
		t.Errorf("the edge feeds the watchdog before it is ready: %q", me.said)
	}
	me.await("STATUS=STREAMING")
	for _, m := range []*manager{me, ms} {
		from := time.Now()
		for range 4 {
			m.await("WATCHDOG=1")
		}
		if took := time.Since(from); took > 3*time.Second {
			t.Errorf("four feedings took %v, want about 800 ms: the watchdog's period is 600 ms", took)
		}
	}
	edge.Process.Signal(syscall.SIGTERM)
	me.await("STOPPING=1")
	if err := edge.Wait(); err != nil {
		t.Errorf("edge: %v\n%s", err, log)
	}
	srv.Process.Signal(syscall.SIGTERM)
	ms.await("STOPPING=1")
	if err := srv.Wait(); err != nil {
		t.Errorf("server: %v\n%s", err, srvLog)
	}
}

// A start may take longer than the manager's start timeout. Like systemd, this manager kills a
// process that does not ask for more time.
func TestAWaitBeyondTheManagersPatience(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	began := time.Now()
	edge, log := service(t, m, binary, "--bus", filepath.Join(t.TempDir(), "none"), "--calibration", demo+"/so101.json",
		"--max-offline", "4s")
	ended := make(chan error, 1)
	go func() { ended <- edge.Wait() }()
	for limit := began.Add(2 * time.Second); ; { // TimeoutStartSec=2
		if usec, ok := strings.CutPrefix(m.receive(20*time.Millisecond), "EXTEND_TIMEOUT_USEC="); ok {
			n, err := strconv.ParseInt(usec, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if until := time.Now().Add(time.Duration(n) * time.Microsecond); until.After(limit) {
				limit = until
			}
		}
		select {
		case <-ended:
			if took := time.Since(began); edge.ProcessState.ExitCode() != 4 || took < 3*time.Second {
				t.Errorf("it ended after %v with code %d, want it to wait for 4 s and give up with 4\n%s", took,
					edge.ProcessState.ExitCode(), log)
			}
			return
		default:
		}
		if time.Now().After(limit) {
			t.Fatalf("the manager kills it %v after its start, while it waits for its arm: %q", time.Since(began),
				m.said)
		}
	}
}

// A SIGTERM while the edge waits for its arm ends it.
func TestStopWhileTheArmIsAbsent(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	for id := range byte(6) {
		b.Mute(id+1, true)
	}
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		m := newManager(t)
		edge, log := service(t, m, binary, "--bus", b.Path(), "--calibration", demo+"/so101.json")
		awaitText(t, log, "no motor answered")
		edge.Process.Signal(sig)
		if err := edge.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", sig, err, log)
		}
	}
}

// stay is a policy for a robot without cameras: every action is the state.
type stay struct {
	state, noise, prefix, chunk []float32
	dof                         int
}

func newStay(m *policy.Meta) *stay {
	n := m.ChunkSize * m.ActionDim
	return &stay{make([]float32, len(m.StateNames)), nil, make([]float32, n), make([]float32, n), m.ActionDim}
}

func (s *stay) Image(_, _ int) []byte            { return nil }
func (s *stay) State(int) []float32              { return s.state }
func (*stay) Tokens(int) []int64                 { return nil }
func (*stay) TokenMask(int) []bool               { return nil }
func (s *stay) Noise(int) []float32              { return s.noise }
func (s *stay) Prefix(int) []float32             { return s.prefix }
func (s *stay) SetControls(int, policy.Controls) {}
func (s *stay) ChunkModel(int) []float32         { return s.chunk }
func (s *stay) ChunkRobot(int) []float32         { return s.chunk }
func (s *stay) Finite(int) bool                  { return true }
func (s *stay) Terminate() error                 { return nil }
func (s *stay) MaxBatch() int                    { return 1 }
func (s *stay) Buffers() int                     { return 1 }
func (s *stay) Stage(int, int) error             { return nil }
func (s *stay) RunBuffer(int, int) error {
	for i := range s.chunk {
		s.chunk[i] = s.state[i%s.dof]
	}
	return nil
}

// serveStay serves the policy stay to SO-101s at endpoint.
func serveStay(t *testing.T, endpoint string) {
	t.Helper()
	cfg, err := manifest.Load(demo + "/server.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := policy.LoadBundle(demo + "/bundle")
	if err != nil {
		t.Fatal(err)
	}
	meta := bundle.Meta
	meta.Cameras, meta.NoiseDim = nil, 0
	network, err := zenoh.Open(t.Context(), zenoh.Config{Listen: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	prefix, err := cfg.Prefix("test/stay")
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(cfg, server.Deps{
		Meta: &meta, SHA256: "5ha", Repo: "test/stay", Prefix: prefix, Model: newStay(&meta), Network: network,
		Clock: rt.KernelClock(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		network.Close()
	})
}

// The unit's ExecStopPost= works after the watchdog's SIGKILL: the bus outlives the edge, the arm
// is stiff, and the command with the same configuration makes it limp.
func TestTorqueOffAfterAKill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a pseudo-terminal stays claimed by the killed edge, which a real port does not")
	}
	bus, err := servosim.Open(servosim.Config{Clock: rt.KernelClock()})
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	defer bus.Close()
	endpoint := freePort(t)
	serveStay(t, endpoint)
	config := filepath.Join(t.TempDir(), "left.yaml")
	// slowly, for a busy machine
	text := "bus: " + bus.Path() + "\ncalibration: " + demo + "/so101.json\nconnect: [" + endpoint +
		"]\non-exit: hold\nfps: 10\nfps-mismatch: allow\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	m := newManager(t)
	edge, _ := service(t, m, binary, "--config", config)
	rttest.Eventually(t, "armed", func() bool { m.receive(50 * time.Millisecond); return underTorque(bus) == 6 })
	edge.Process.Kill()
	edge.Wait()
	if on := bus.TorqueEnabled(); slices.Contains(on, false) {
		t.Fatalf("torque %v after the kill: there is nothing left to test", on)
	}
	t.Setenv("SERVICE_RESULT", "watchdog")
	t.Setenv("EXIT_CODE", "killed")
	code, stdout, stderr := edgeRT(t, "torque", "off", "--config", config)
	if code != 0 || !strings.Contains(stdout, "off on 6 motors") {
		t.Errorf("torque off: code %d, %q, %q", code, stdout, stderr)
	}
	if on := bus.TorqueEnabled(); slices.Contains(on, true) {
		t.Errorf("torque %v after torque off", on)
	}
	if code, _, stderr = edgeRT(t, "torque", "off", "--bus", "/dev/ttyNONE"); code != 4 ||
		!strings.Contains(stderr, "/dev/ttyNONE") {
		t.Errorf("torque off at an absent port: code %d, %q, want 4", code, stderr)
	}
	if code, _, stderr = edgeRT(t, "torque", "on", "--config", config); code != 2 {
		t.Errorf("torque on: code %d, %q, want 2", code, stderr)
	}
}
