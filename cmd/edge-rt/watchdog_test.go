package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// awaitTorque waits until want motors are under torque.
func awaitTorque(t *testing.T, b *servosim.Bus, want int, what string) {
	t.Helper()
	rttest.Eventually(t, fmt.Sprintf("%s: %d motors under torque", what, want), func() bool {
		return underTorque(b) == want
	})
}

// watchdogs returns the process ids of the watchdogs of the arm at a port.
func watchdogs(t *testing.T, bus string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		line, _ := os.ReadFile(name) // empty for a process that has ended
		if words := strings.Split(string(line), "\x00"); len(words) > 4 && words[3] == "--orphan" &&
			words[4] == "--bus="+bus {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func awaitNoWatchdog(t *testing.T, bus string) {
	t.Helper()
	rttest.Eventually(t, "no watchdog process is left", func() bool { return len(watchdogs(t, bus)) == 0 })
}

// startWatched starts an edge on the simulated bus, in a process group of its own, and returns once
// the arm is under torque.
func startWatched(t *testing.T, b *servosim.Bus, stderr *os.File, args ...string) (*exec.Cmd, *rttest.Output) {
	t.Helper()
	cmd, log := edgeCommand(t, newHoldServer(t), b, append([]string{"--quiet", "--on-exit", "hold"}, args...)...),
		new(rttest.Output)
	cmd.Stderr, cmd.SysProcAttr = log, &syscall.SysProcAttr{Setpgid: true}
	if stderr != nil {
		cmd.Stderr = stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	awaitTorque(t, b, 6, "it was never armed")
	return cmd, log
}

// A killed edge's arm is released all the same, and no process of the edge is left.
func TestWatchdogReleasesAKilledEdge(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	description := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(description, []byte("like: so101\nname: mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, log := startWatched(t, b, nil, "--robot", description)
	if len(watchdogs(t, b.Path())) != 1 {
		t.Fatalf("watchdogs %v, want one", watchdogs(t, b.Path()))
	}
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGTSTP} {
		syscall.Kill(watchdogs(t, b.Path())[0], sig) // as at the end of a login session
	}
	os.Remove(description)                          // the description may be deleted or edited meanwhile
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // as kill -9 %1 and timeout do
	awaitTorque(t, b, 0, "the arm was not released")
	cmd.Wait() // until all writers to the log have ended
	if text := log.String(); !strings.Contains(text, "without letting the arm go") ||
		!strings.Contains(text, "off on 6 motors") {
		t.Errorf("the watchdog says %q", text)
	}
	awaitNoWatchdog(t, b.Path())
}

// The watchdog waits for an adapter that is unplugged when the run is killed, and for motors that
// do not answer.
func TestWatchdogWaitsForTheArm(t *testing.T) {
	t.Parallel()
	for _, unplugged := range []bool{true, false} {
		link := filepath.Join(t.TempDir(), "arm")
		b, err := servosim.Open(servosim.Config{Clock: rt.KernelClock(), Link: link})
		if err != nil {
			t.Skipf("no pseudo-terminals here: %v", err)
		}
		t.Cleanup(func() { b.Close() })
		cmd, log := startWatched(t, b, nil, "--bus", link)
		if unplugged {
			b.Unplug()
		} else {
			b.Mute(2, true)
			b.Mute(5, true)
		}
		cmd.Process.Kill()
		time.Sleep(1500 * time.Millisecond) // long enough for a watchdog that wrongly gives up
		if unplugged {
			b.Replug()
		} else {
			b.Mute(2, false)
			b.Mute(5, false)
		}
		awaitTorque(t, b, 0, "the arm was not released when it was back")
		cmd.Wait()
		if text := log.String(); !strings.Contains(text, "off on 6 motors") {
			t.Errorf("unplugged %v: the watchdog says %q", unplugged, text)
		}
		awaitNoWatchdog(t, link)
	}
}

// A full pipe without a reader keeps neither the arm under torque nor the watchdog process alive.
func TestWatchdogWaitsForNoReader(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd, _ := startWatched(t, b, w)
	fill(t, int(w.Fd()))
	w.Close()
	cmd.Process.Kill()
	awaitTorque(t, b, 0, "the arm was not released")
	cmd.Wait()
	awaitNoWatchdog(t, b.Path())
}

// fill writes to a pipe until it is full.
func fill(t *testing.T, fd int) {
	t.Helper()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for size := 4096; size > 0; {
		if _, err := unix.Write(fd, make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}

// podman gives a container NOTIFY_SOCKET but runs no command after its end: there edge-rt starts
// its watchdog process, and reports its state to the socket as well.
func TestASocketAloneIsNoService(t *testing.T) {
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.path)
	t.Setenv("SYSTEMD_EXEC_PID", "")
	b := simBus(t)
	cmd, _ := startWatched(t, b, nil)
	if len(watchdogs(t, b.Path())) != 1 {
		t.Errorf("watchdogs %v, want one", watchdogs(t, b.Path()))
	}
	m.await("READY=1")
	cmd.Process.Kill()
	awaitTorque(t, b, 0, "the arm was not released")
	cmd.Wait()
	awaitNoWatchdog(t, b.Path())
}

// The other commands that hold an arm have a watchdog process too; after a kill a new command can
// open the arm at once.
func TestWatchdogReleasesKilledCommands(t *testing.T) {
	t.Parallel()
	demo := filepath.Join("..", "..", "testdata", "demo", "so101.json")
	for _, args := range [][]string{
		{"move", "elbow_flex", "60", "--speed", "0.01"},
		{"teleop", "--leader", simBus(t).Path(), "--leader-calibration", demo, "--fps", "10"},
	} {
		b := simBus(t)
		for range 2 {
			cmd := exec.Command(binary, append(args, "--bus", b.Path(), "--calibration", demo)...)
			cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir())
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill() })
			awaitTorque(t, b, 6, args[0]+" never held the arm")
			cmd.Process.Kill()
			cmd.Wait()
			awaitTorque(t, b, 0, "the arm of "+args[0]+" was not released")
		}
		awaitNoWatchdog(t, b.Path())
	}
}

// The watchdog process of an edge that ends by itself ends too, and leaves the arm in the state in
// which the edge left it.
func TestWatchdogEndsWithTheEdge(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	cmd, log := startWatched(t, b, nil)
	syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // Ctrl-C
	if err := cmd.Wait(); err != nil || log.String() != "" {
		t.Errorf("the edge ends with %v and says %q", err, log)
	}
	awaitNoWatchdog(t, b.Path())
	if on := underTorque(b); on != 6 {
		t.Errorf("%d motors hold torque, want 6, as --on-exit hold says", on)
	}
}

func TestWatchdogThatEndsIsReported(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	cmd, log := startWatched(t, b, nil)
	syscall.Kill(watchdogs(t, b.Path())[0], syscall.SIGKILL)
	awaitText(t, log, "guards the arm has ended")
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the edge ends with %v", err)
	}
}

// The port of a killed process becomes free a little later, and its watchdog process may hold it
// for a while.
func TestTorqueOffWaitsForThePort(t *testing.T) {
	b := simBus(t)
	torqueOnAll(t, b.Path())
	fd, err := unix.Open(b.Path(), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { unix.Close(fd) })
	if code, _, stderr := edgeRT(t, "torque", "off", "--bus", b.Path()); code != 0 || underTorque(b) != 0 {
		t.Errorf("torque off: code %d, %q, %d motors under torque; want 0 and none", code, stderr, underTorque(b))
	}
}
