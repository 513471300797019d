package main

import (
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

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

const patience = 30 * time.Second // only a failing test waits so long

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
	l := rttest.Must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
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

// await waits for the message in the parameter want.
func (m *manager) await(want string) {
	m.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if m.receive(time.Until(end)) == want {
			return
		}
	}
	m.t.Fatalf("%s did not come within %v; heard %q", want, patience, m.said)
}

// start starts a program as a unit would.
func (m *manager) start(program string, args ...string) *stagetest.Program {
	m.t.Helper()
	p := stagetest.Command(m.t, program, args...)
	p.Env = append(p.Env, "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=600000")
	p.Cmd = bySystemd(p.Cmd)
	return p.Start()
}

// bySystemd sets the environment variable by which systemd gives a service its own process id.
func bySystemd(cmd *exec.Cmd) *exec.Cmd {
	shell := exec.Command("/bin/sh", append([]string{"-c", `SYSTEMD_EXEC_PID=$$ exec "$0" "$@"`}, cmd.Args...)...)
	shell.Env = cmd.Env
	shell.Stdout = cmd.Stdout
	shell.Stderr = cmd.Stderr
	return shell
}

// Both real programs run under a service manager. The edge starts before the server, and must not report READY=1 until
// it has a session.
func TestServicesSayWhatIsTrue(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the arm for seconds")
	}
	stagetest.NeedsRuntime(t)
	lean := buildLeanServer(t)
	endpoint, _ := stagetest.FreeEndpoint(t)
	me, ms := newManager(t), newManager(t)
	edge := me.start(binary, "--bus", "sim", "--camera", "top=sim", "--connect", endpoint,
		"--reconnect-initial-backoff", "100ms", "--reconnect-max-backoff", "200ms")
	me.await("STATUS=looking for a server")
	rttest.Want(t, me.receive(700*time.Millisecond), "", "without a server the edge says")
	srv := ms.start(lean, "--manifest", demo+"/server.yaml", "--listen", endpoint, "--health-port", "0")
	ms.await("READY=1") // the server reports READY=1 only when it serves
	srv.CheckSays("msg=serving")
	me.await("READY=1") // the edge reports READY=1 only when its session is open
	edge.CheckSays("session open")
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
	for _, m := range []*manager{me, ms} {
		p := map[*manager]*stagetest.Program{me: edge, ms: srv}[m]
		p.Process.Signal(syscall.SIGTERM)
		m.await("STOPPING=1")
		p.EndsWith(0)
	}
}

// A start may take longer than the manager's start timeout. Like systemd, this manager kills a process that does not
// extend the timeout.
func TestAWaitBeyondTheManagersPatience(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	began := time.Now()
	edge := m.start(binary, "--bus", filepath.Join(t.TempDir(), "none"), "--calibration", demoCalibration,
		"--max-offline", "4s")
	ended := make(chan int, 1)
	go func() { ended <- edge.End() }()
	for limit := began.Add(2 * time.Second); ; { // TimeoutStartSec=2
		if usec, ok := strings.CutPrefix(m.receive(20*time.Millisecond), "EXTEND_TIMEOUT_USEC="); ok {
			n := rttest.Must(strconv.ParseInt(usec, 10, 64))(t)
			if until := time.Now().Add(time.Duration(n) * time.Microsecond); until.After(limit) {
				limit = until
			}
		}
		select {
		case code := <-ended:
			if took := time.Since(began); code != 4 || took < 3*time.Second {
				t.Errorf("it ended after %v with code %d, want it to wait for 4 s and give up with 4\n%s", took, code,
					edge.Log)
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

// A SIGTERM or SIGINT ends an edge that waits for its arm.
func TestStopWhileTheArmIsAbsent(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	for id := range byte(6) {
		b.Mute(id+1, true)
	}
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		edge := newManager(t).start(binary, "--bus", b.Path(), "--calibration", demoCalibration)
		edge.Await("no motor answered")
		edge.EndsWith(0, sig)
	}
}

// The unit's ExecStopPost= works after the watchdog's SIGKILL: the bus outlives the edge, the arm is still stiff,
// and the command makes it limp with the edge's configuration.
func TestTorqueOffAfterAKill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a pseudo-terminal stays claimed by the killed edge, which a real port does not")
	}
	b := simBus(t)
	// the rate is low, for a busy machine
	config := rttest.WriteFile(t, t.TempDir(), "left.yaml", "id: arm\nbus: "+b.Path()+"\ncalibration: "+
		demoCalibration+"\nconnect: ["+newHoldServer(t).Endpoint+"]\non-exit: hold\nfps: 10\n")
	m := newManager(t)
	edge := m.start(binary, "--config", config)
	rttest.Eventually(t, "armed", func() bool { m.receive(50 * time.Millisecond); return underTorque(b) == 6 })
	edge.End(syscall.SIGKILL)
	if n := underTorque(b); n != 6 {
		t.Fatalf("%d motors under torque after the kill, want 6: there is nothing left to test", n)
	}
	t.Setenv("SERVICE_RESULT", "watchdog")
	t.Setenv("EXIT_CODE", "killed")
	code, stdout, stderr := edgeRT(t, "torque", "off", "--config", config)
	if code != 0 || !strings.Contains(stdout, "off on 6 motors") || underTorque(b) != 0 {
		t.Errorf("torque off: code %d, %q, %q, %d motors under torque", code, stdout, stderr, underTorque(b))
	}
	refuses(t, "torque off --bus /dev/ttyNONE => 4 /dev/ttyNONE")
	if code, _, stderr = edgeRT(t, "torque", "on", "--config", config); code != 2 {
		t.Errorf("torque on: code %d, %q, want 2", code, stderr)
	}
}
