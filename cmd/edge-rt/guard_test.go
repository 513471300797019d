package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgert/servo/servosim"
)

// awaitStiff waits until so many motors are under torque.
func awaitStiff(t *testing.T, b *servosim.Bus, want int, why string) {
	t.Helper()
	for end := time.Now().Add(patience); stiff(b) != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d motors under torque, want %d: %s", stiff(b), want, why)
		}
	}
}

// Killed, an edge lets go all the same, and nothing of it stays behind.
func TestTheGuardLetsAKilledEdgeGo(t *testing.T) {
	s, b := newStill(t), simBus(t)
	cmd := unarmed(t, s, b, "--quiet", "--on-exit", "hold")
	log := new(output)
	cmd.Stderr, cmd.SysProcAttr = log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	awaitStiff(t, b, 6, "it was never armed")
	// What a terminal sends to all of its programs does not end the guard.
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTSTP} {
		for _, pid := range group(t, cmd.Process.Pid) {
			if pid != cmd.Process.Pid {
				syscall.Kill(pid, sig)
			}
		}
	}
	cmd.Process.Kill()
	awaitStiff(t, b, 0, "nobody let the arm go")
	cmd.Wait() // for all who write to the log
	if text := log.String(); !strings.Contains(text, "without letting the arm go") || !strings.Contains(text, "off on 6 motors") {
		t.Errorf("the guard says %q", text)
	}
	awaitEmpty(t, cmd.Process.Pid)
}

// So do the commands that hold an arm.
func TestTheGuardLetsKilledCommandsGo(t *testing.T) {
	demo := filepath.Join("..", "..", "testdata", "demo", "so101.json")
	for _, args := range [][]string{
		{"move", "elbow_flex", "60", "--speed", "0.01"},
		{"teleop", "--leader", simBus(t).Path(), "--leader-calibration", demo, "--fps", "10"},
	} {
		b := simBus(t)
		cmd := exec.Command(binary, append(args, "--bus", b.Path(), "--calibration", demo)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		awaitStiff(t, b, 6, args[0]+" never held the arm")
		cmd.Process.Kill()
		awaitStiff(t, b, 0, "nobody let the arm of "+args[0]+" go")
		cmd.Wait()
		awaitEmpty(t, cmd.Process.Pid)
	}
}

// An edge that has left by itself is not corrected, and its guard leaves with it.
func TestTheGuardLeavesWithTheEdge(t *testing.T) {
	s, b := newStill(t), simBus(t)
	cmd := unarmed(t, s, b, "--quiet", "--on-exit", "hold")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	awaitStiff(t, b, 6, "it was never armed")
	if n := len(group(t, cmd.Process.Pid)); n != 2 {
		t.Errorf("%d processes, want the edge and its guard", n)
	}
	syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // Ctrl-C
	if err := cmd.Wait(); err != nil {
		t.Errorf("the edge ends with %v", err)
	}
	awaitEmpty(t, cmd.Process.Pid)
	if on := stiff(b); on != 6 {
		t.Errorf("%d motors hold torque, want 6, as --on-exit hold says", on)
	}
}

// Services have ExecStopPost=; arms inside the run end with it.
func TestWhoNeedsNoGuard(t *testing.T) {
	if g, err := startGuard("sim", "so101"); g != nil || err != nil {
		t.Errorf("a simulated arm: %v, %v, want none", g, err)
	}
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	if g, err := startGuard("/dev/ttyNONE", "so101"); g != nil || err != nil {
		t.Errorf("a service: %v, %v, want none", g, err)
	}
	var none *guard
	none.leave()
}

// Whoever is killed gives its port back a little later, and its guard may have it.
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
	if code, _, stderr := edgeRT(t, "torque", "off", "--bus", b.Path()); code != 0 || stiff(b) != 0 {
		t.Errorf("torque off: code %d, %q, %d motors under torque; want 0 and none", code, stderr, stiff(b))
	}
}

// group returns the processes of one group.
func group(t *testing.T, pgid int) (pids []int) {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		pid, _ := strconv.Atoi(p.Name())
		if pid > 0 {
			if g, err := syscall.Getpgid(pid); err == nil && g == pgid {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func awaitEmpty(t *testing.T, pgid int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		pids := group(t, pgid)
		if len(pids) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("processes %v are left behind", pids)
		}
	}
}
