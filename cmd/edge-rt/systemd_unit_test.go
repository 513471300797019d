package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"

	"golang.org/x/sys/unix"
)

// unitCommand returns a command of the edge's unit for one instance, as systemd would run it, with
// the installed paths replaced by those of this test.
func unitCommand(t *testing.T, key, instance, etc string) *exec.Cmd {
	t.Helper()
	text, err := os.ReadFile("../../systemd/edge-rt@.service")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), key+"=")
		if !ok {
			continue
		}
		command = strings.TrimPrefix(command, "-") // systemd ignores the failure of such a command
		command = strings.NewReplacer("/usr/bin/edge-rt", binary, "/etc/edge-rt", etc, "%i", instance).Replace(command)
		words := strings.Fields(command)
		return exec.Command(words[0], words[1:]...)
	}
	t.Fatalf("the unit has no %s=", key)
	return nil
}

// torqueOnBus reads Torque_Enable of the six motors, with packets built by hand instead of by our
// driver, and returns how many are under torque.
func torqueOnBus(t *testing.T, path string) (on int) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	defer unix.Close(fd)
	time.Sleep(100 * time.Millisecond) // half a packet may be on the line, and a last reply
	unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH)
	for id := byte(1); id <= 6; id++ {
		request := []byte{0xFF, 0xFF, id, 4, 2, 40, 1, ^(id + 4 + 2 + 40 + 1)}
		if _, err := unix.Write(fd, request); err != nil {
			t.Fatal(err)
		}
		reply := make([]byte, 0, 16)
		for end := time.Now().Add(patience); len(reply) < 7; {
			if time.Now().After(end) {
				t.Fatalf("motor %d answers % X", id, reply)
			}
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			unix.Poll(fds, 100)
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

// simBusProcess serves an arm from a process of its own, with extra flags of sim-bus, and returns
// the link.
func simBusProcess(t *testing.T, arm string, flags ...string) (link string) {
	t.Helper()
	link = filepath.Join(t.TempDir(), arm)
	cmd := exec.Command(binary, append([]string{"sim-bus", "--robot", arm, "--link", link}, flags...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("sim-bus ends with %v", err)
		}
	})
	rttest.Eventually(t, "sim-bus makes its port", func() bool { _, err := os.Readlink(link); return err == nil })
	return link
}

// bySystemd sets the environment variable by which systemd gives a service its own process id.
func bySystemd(cmd *exec.Cmd) *exec.Cmd {
	return exec.Command("/bin/sh", append([]string{"-c", `SYSTEMD_EXEC_PID=$$ exec "$0" "$@"`}, cmd.Args...)...)
}

// A killed edge leaves the motors under torque, since no code of it ran after the kill. The unit's
// ExecStopPost= releases them, on a bus that is another process.
func TestTheUnitReleasesTheBusOfAKilledEdge(t *testing.T) {
	t.Parallel()
	const instance = "arm" // the robot's name, which the server answers
	s := newHoldServer(t)
	link := simBusProcess(t, "so101")
	etc := t.TempDir()
	state := t.TempDir()
	calibration, err := filepath.Abs("../../testdata/demo/so101.json")
	if err != nil {
		t.Fatal(err)
	}
	// The rate is low, so that a busy machine can keep it.
	config := fmt.Sprintf("fps: 10\nbus: %s\ncalibration: %s\nconnect: [%s]\nquiet: true\nrequest-timeout: 1s\n", link,
		calibration, s.Endpoint)
	if err := os.WriteFile(filepath.Join(etc, instance+".yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "STATE_DIRECTORY="+state, "EDGE_RT_ID="+instance, "NOTIFY_SOCKET="+newManager(t).path)

	edge := bySystemd(unitCommand(t, "ExecStart", instance, etc))
	edge.Env, edge.Stderr = env, os.Stderr
	edge.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := edge.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-edge.Process.Pid, syscall.SIGKILL) })
	rttest.Eventually(t, "the edge has run", func() bool {
		ctl := exec.Command(binary, "ctl", "status", "--id", instance)
		ctl.Env = env
		out, _ := ctl.Output()
		var status struct{ Chunks int }
		return json.Unmarshal(out, &status) == nil && status.Chunks >= 3
	})
	// arming takes some ticks, and its end cannot be read here: the edge owns the bus
	time.Sleep(500 * time.Millisecond)

	// The whole process group is killed at once.
	if err := syscall.Kill(-edge.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	edge.Wait()
	if on := torqueOnBus(t, link); on != 6 {
		t.Fatalf("%d motors hold torque after the kill, want 6: otherwise there is nothing to release", on)
	}
	post := unitCommand(t, "ExecStopPost", instance, etc)
	post.Env = append(env, "SERVICE_RESULT=signal", "EXIT_CODE=killed", "EXIT_STATUS=KILL")
	if out, err := post.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", post, err, out)
	}
	if on := torqueOnBus(t, link); on != 0 {
		t.Errorf("%d motors hold torque after ExecStopPost=, want 0", on)
	}
}

// With on-exit: hold the unit's command leaves an arm under torque only after an end that the edge
// itself decided on, whatever else systemd reports about the end.
func TestTheUnitHoldsOnlyAfterADecidedEnd(t *testing.T) {
	t.Parallel()
	const instance = "arm"
	link, etc := simBusProcess(t, "so101"), t.TempDir()
	config := fmt.Sprintf("bus: %s\non-exit: hold\n", link)
	if err := os.WriteFile(filepath.Join(etc, instance+".yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		result, code, status string
		on                   int
	}{
		{"success", "exited", "0", 6},
		{"exit-code", "exited", "3", 6},
		{"exit-code", "exited", "4", 6},
		{"exit-code", "exited", "1", 0},
		{"exit-code", "exited", "2", 6}, // a wrong flag: the run before held the arm
		{"exit-code", "exited", "5", 6},
		{"exit-code", "exited", "6", 0},
		{"timeout", "exited", "0", 0},
		{"signal", "killed", "KILL", 0},
		{"signal", "killed", "ABRT", 0},
		{"watchdog", "killed", "KILL", 0},
	} {
		torqueOnAll(t, link)
		post := unitCommand(t, "ExecStopPost", instance, etc)
		post.Env = append(os.Environ(), "SERVICE_RESULT="+tt.result, "EXIT_CODE="+tt.code, "EXIT_STATUS="+tt.status,
			"GOTRACEBACK=crash")
		if out, err := post.CombinedOutput(); err != nil {
			t.Errorf("%s, %s, %s: %v\n%s", tt.result, tt.code, tt.status, err, out)
		}
		if on := torqueOnBus(t, link); on != tt.on {
			t.Errorf("%s, %s, %s: %d motors hold torque, want %d", tt.result, tt.code, tt.status, on, tt.on)
		}
	}
}

// torqueOnAll sets Torque_Enable of the six motors, with packets built by hand instead of by our
// driver.
func torqueOnAll(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	defer unix.Close(fd)
	frame := []byte{0xFF, 0xFF, 0xFE, 16, 0x83, 40, 1, 1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1}
	sum := byte(0)
	for _, v := range frame[2:] {
		sum += v
	}
	if _, err := unix.Write(fd, append(frame, ^sum)); err != nil {
		t.Fatal(err)
	}
	if on := torqueOnBus(t, path); on != 6 {
		t.Fatalf("%d motors hold torque, want 6: otherwise there is nothing to release", on)
	}
}
