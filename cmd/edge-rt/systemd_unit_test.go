package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"golang.org/x/sys/unix"
)

// torqueOnBus reads Torque_Enable of the six motors, with packets built by hand instead of by our
// driver, and returns how many are under torque.
func torqueOnBus(t *testing.T, path string) (on int) {
	t.Helper()
	fd := openTTY(t, path)
	defer unix.Close(fd)
	line := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	// The line may hold half a packet and, on a busy machine, late replies to an edge that has ended.
	for n := 1; n > 0; n, _ = unix.Poll(line, 300) {
		unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH)
	}
	for id := byte(1); id <= 6; id++ {
		request := []byte{0xFF, 0xFF, id, 4, 2, 40, 1, ^(id + 4 + 2 + 40 + 1)}
		rttest.Must(unix.Write(fd, request))(t)
		reply := make([]byte, 0, 16)
		for end := time.Now().Add(patience); len(reply) < 7; {
			if time.Now().After(end) {
				t.Fatalf("motor %d answers % X", id, reply)
			}
			unix.Poll(line, 100)
			if n, _ := unix.Read(fd, reply[len(reply):cap(reply)]); n > 0 {
				reply = reply[:len(reply)+n]
			}
		}
		if reply[2] != id || reply[3] != 3 || reply[5] > 1 {
			t.Fatalf("motor %d answers % X", id, reply)
		}
		on += int(reply[5])
	}
	return on
}

// simBusProcess starts a separate sim-bus process that serves the arm, with extra flags, and returns the link to its
// device.
func simBusProcess(t *testing.T, arm string, flags ...string) (link string) {
	t.Helper()
	link = filepath.Join(t.TempDir(), arm)
	p := stagetest.Command(t, binary, append([]string{"sim-bus", "--robot", arm, "--link", link}, flags...)...).Start()
	t.Cleanup(func() {
		p.EndsWith(0, syscall.SIGTERM)
	})
	rttest.Eventually(t, "sim-bus makes its port", func() bool { _, err := os.Readlink(link); return err == nil })
	return link
}

// A killed edge leaves the motors under torque, since none of its code runs after the kill. The unit's ExecStopPost=
// releases the motors. Another process simulates the bus.
func TestTheUnitReleasesTheBusOfAKilledEdge(t *testing.T) {
	t.Parallel()
	// The rate is low, so that a busy machine can keep it.
	u := newUnit(t, "fps: 10\ncalibration: %s\nconnect: [%s]\nquiet: true\nrequest-timeout: 1s\n",
		absolute(t, demoCalibration), newHoldServer(t).Endpoint)
	edge := u.command("ExecStart")
	edge.Cmd = bySystemd(edge.Cmd)
	edge.Env = append(edge.Env, "EDGE_RT_ID=arm", "NOTIFY_SOCKET="+newManager(t).path)
	edge.Start()
	r := &process{Program: edge, t: t}
	rttest.Eventually(t, "the edge has run", func() bool { return r.status().Chunks >= 3 })
	// Arming takes some ticks. The test cannot observe its end, because the edge uses the bus.
	time.Sleep(500 * time.Millisecond)
	if err := syscall.Kill(-edge.Process.Pid, syscall.SIGKILL); err != nil { // the whole process group
		t.Fatal(err)
	}
	edge.End()
	if on := torqueOnBus(t, u.bus); on != 6 {
		t.Fatalf("%d motors hold torque after the kill, want 6: otherwise there is nothing to release", on)
	}
	rttest.Want(t, u.stopPost("signal", "killed", "KILL"), 0, "motors under torque after ExecStopPost=")
}

// With "on-exit: hold", the unit's ExecStopPost= leaves an arm under torque only if the edge itself decided to end.
// Nothing else that systemd reports about the end matters.
func TestTheUnitHoldsOnlyAfterADecidedEnd(t *testing.T) {
	t.Parallel()
	u := newUnit(t, "on-exit: hold\n")
	for _, tt := range []struct {
		result, code, status string
		on                   int
	}{
		{"success", "exited", "0", 6},
		{"exit-code", "exited", "3", 6},
		{"exit-code", "exited", "4", 6},
		{"exit-code", "exited", "1", 0},
		{"exit-code", "exited", "2", 6}, // a wrong flag; the previous run held the arm
		{"exit-code", "exited", "5", 6},
		{"exit-code", "exited", "6", 0},
		{"timeout", "exited", "0", 0},
		{"signal", "killed", "KILL", 0},
		{"signal", "killed", "ABRT", 0},
		{"watchdog", "killed", "KILL", 0},
	} {
		torqueOnAll(t, u.bus)
		if on := u.stopPost(tt.result, tt.code, tt.status); on != tt.on {
			t.Errorf("%s, %s, %s: %d motors hold torque, want %d", tt.result, tt.code, tt.status, on, tt.on)
		}
	}
}

// torqueOnAll sets Torque_Enable of the six motors, with packets built by hand instead of by our
// driver.
func torqueOnAll(t *testing.T, path string) {
	t.Helper()
	fd := openTTY(t, path)
	defer unix.Close(fd)
	frame := []byte{0xFF, 0xFF, 0xFE, 16, 0x83, 40, 1, 1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1}
	sum := byte(0)
	for _, v := range frame[2:] {
		sum += v
	}
	rttest.Must(unix.Write(fd, append(frame, ^sum)))(t)
	if on := torqueOnBus(t, path); on != 6 {
		t.Fatalf("%d motors hold torque, want 6: otherwise there is nothing to release", on)
	}
}

// openTTY opens the bus at a path.
func openTTY(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	return fd
}
