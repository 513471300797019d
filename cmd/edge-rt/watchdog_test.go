package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"golang.org/x/sys/unix"
)

// watchdogs returns the process ids of the watchdogs of the arm at a port.
func watchdogs(t *testing.T, bus string) (pids []int) {
	t.Helper()
	all := rttest.Must(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
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

// startWatched starts a run on the simulated bus and returns it once the arm is under torque, with the
// only watchdog of the arm.
func startWatched(t *testing.T, b *servosim.Bus, args ...string) (r *process, watchdog int) {
	t.Helper()
	r = startArmed(t, newHoldServer(t), b, append([]string{"--quiet", "--on-exit", "hold"}, args...)...)
	return r, theWatchdog(t, b)
}

func theWatchdog(t *testing.T, b *servosim.Bus) int {
	t.Helper()
	pids := watchdogs(t, b.Path())
	if len(pids) != 1 {
		t.Fatalf("watchdogs %v, want one", pids)
	}
	return pids[0]
}

// awaitRelease waits until the arm of a killed run is limp, all writers to its log have ended, and no
// process of the run is left.
func (r *process) awaitRelease(b *servosim.Bus) {
	r.t.Helper()
	awaitTorque(r.t, b, 0)
	r.End()
	awaitNoWatchdog(r.t, b.Path())
}

// The watchdog releases the arm of a killed edge, and no process of the edge is left.
func TestWatchdogReleasesAKilledEdge(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	description := rttest.WriteFile(t, t.TempDir(), "mine.yaml", "like: so101\nname: mine\n")
	r, watchdog := startWatched(t, b, "--robot", description)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGTSTP} {
		syscall.Kill(watchdog, sig) // the end of a login session sends such signals
	}
	os.Remove(description)         // the description may be deleted or edited meanwhile
	r.SignalGroup(syscall.SIGKILL) // kill -9 %1 and timeout signal the group, too
	r.awaitRelease(b)
	r.CheckSays("without letting the arm go|off on 6 motors")
}

// If the adapter is unplugged when the run is killed, or motors do not answer, the watchdog waits
// until it can release the arm.
func TestWatchdogWaitsForTheArm(t *testing.T) {
	t.Parallel()
	for name, away := range map[string][2]func(*servosim.Bus){
		"unplugged": {func(b *servosim.Bus) { b.Unplug() }, func(b *servosim.Bus) { b.Replug() }},
		"silent": {func(b *servosim.Bus) { b.Mute(2, true); b.Mute(5, true) },
			func(b *servosim.Bus) { b.Mute(2, false); b.Mute(5, false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := filepath.Join(t.TempDir(), "arm")
			b := simBusAt(t, link)
			r := startArmed(t, newHoldServer(t), b, "--quiet", "--on-exit", "hold", "--bus", link)
			away[0](b)
			r.Process.Kill()
			time.Sleep(1500 * time.Millisecond) // longer than a watchdog that wrongly gives up would wait
			away[1](b)
			r.awaitRelease(b)
			awaitNoWatchdog(t, link)
			r.CheckSays("off on 6 motors")
		})
	}
}

// A log that is a full pipe without a reader does not keep the watchdog from releasing the arm and
// from ending.
func TestWatchdogWaitsForNoReader(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	reader, w, err := os.Pipe()
	rttest.Do(t, err)
	defer reader.Close()
	r := runOn(t, newHoldServer(t), b, "--quiet", "--on-exit", "hold")
	r.Stderr = w
	r.Start()
	awaitTorque(t, b, 6)
	fill(t, int(w.Fd()))
	w.Close()
	r.Process.Kill()
	r.awaitRelease(b)
}

// fill writes to a pipe until it is full.
func fill(t *testing.T, fd int) {
	t.Helper()
	rttest.Do(t, unix.SetNonblock(fd, true))
	for size := 4096; size > 0; {
		if _, err := unix.Write(fd, make([]byte, size)); err != nil {
			size /= 2
		}
	}
	rttest.Do(t, unix.SetNonblock(fd, false))
}

// podman gives a container NOTIFY_SOCKET, but runs no command after the container's end. There, edge-rt starts its
// watchdog process, and also reports its state to the socket.
func TestASocketAloneIsNoService(t *testing.T) {
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.path)
	t.Setenv("SYSTEMD_EXEC_PID", "")
	b := simBus(t)
	r, _ := startWatched(t, b)
	m.await("READY=1")
	r.Process.Kill()
	r.awaitRelease(b)
}

// The other commands that hold an arm have a watchdog process too; after a kill a new command can
// open the arm at once.
func TestWatchdogReleasesKilledCommands(t *testing.T) {
	t.Parallel()
	for _, args := range otherCommands(t) {
		b := simBus(t)
		for range 2 {
			startOther(t, b, args).Process.Kill()
			awaitTorque(t, b, 0)
		}
		awaitNoWatchdog(t, b.Path())
	}
}

// otherCommands returns two commands, other than a policy's run, that hold an arm.
func otherCommands(t *testing.T) [][]string {
	t.Helper()
	return [][]string{
		{"move", "elbow_flex", "60", "--speed", "0.01"},
		{"teleop", "--leader", simBus(t).Path(), "--leader-calibration", demoCalibration, "--fps", "10"},
	}
}

// startOther starts one of otherCommands and returns it once the arm is under torque.
func startOther(t *testing.T, b *servosim.Bus, args []string) *process {
	t.Helper()
	r := &process{Program: stagetest.Command(t, binary, append(args, "--bus", b.Path(), "--calibration",
		demoCalibration)...), t: t}
	r.Start()
	awaitTorque(t, b, 6)
	return r
}

// When an edge ends without a kill, its watchdog process also ends, and leaves the arm as the edge left it.
func TestWatchdogEndsWithTheEdge(t *testing.T) {
	t.Parallel()
	b := simBus(t)
	r, _ := startWatched(t, b)
	r.SignalGroup(syscall.SIGINT) // Ctrl-C
	// The run writes only its table, and its watchdog process writes nothing.
	if code, text := r.End(), r.Log.String(); code != 0 || !strings.HasPrefix(text, "robot ") ||
		!strings.HasSuffix(text, "stopped by signal\n") {
		t.Errorf("the edge ends with %d and says %q", code, text)
	}
	awaitNoWatchdog(t, b.Path())
	if on := underTorque(b); on != 6 {
		t.Errorf("%d motors hold torque, want 6, as --on-exit hold says", on)
	}
}

func TestWatchdogThatEndsIsReported(t *testing.T) {
	t.Parallel()
	r, watchdog := startWatched(t, simBus(t))
	syscall.Kill(watchdog, syscall.SIGKILL)
	r.Await("guards the arm has ended")
	r.EndsWith(0, syscall.SIGTERM)
}

// The port of a killed process becomes free a little after the kill, or later if the watchdog
// process still holds it.
func TestTorqueOffWaitsForThePort(t *testing.T) {
	b := simBus(t)
	torqueOnAll(t, b.Path())
	fd := openTTY(t, b.Path())
	rttest.Do(t, unix.Flock(fd, unix.LOCK_EX))
	time.AfterFunc(200*time.Millisecond, func() { unix.Close(fd) })
	if code, _, stderr := edgeRT(t, "torque", "off", "--bus", b.Path()); code != 0 || underTorque(b) != 0 {
		t.Errorf("torque off: code %d, %q, %d motors under torque; want 0 and none", code, stderr, underTorque(b))
	}
}
