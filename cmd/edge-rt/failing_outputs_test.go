package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The reader of the log may go away (| head, a terminal multiplexer that died): the
// run goes on, and switches torque off at the end. By default Go ends a program that
// writes to a broken standard error, which would leave the arm under torque.
func TestRunOutlivesItsReader(t *testing.T) {
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := edgeCommand(t, s, b, "--fps", "10")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() { cmd.Process.Kill() })
	awaitTorque(t, b, 6, "armed")
	r.Close()
	s.token.Undeclare()     // something to write about: the session is lost
	time.Sleep(time.Second) // it writes to nobody meanwhile, which nothing shows
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil || underTorque(b) != 0 {
		t.Errorf("it ended with %v and %d motors under torque; want a clean end, and none", err, underTorque(b))
	}
}

// A run that a signal ends before its time does not say that it took it.
func TestTheReasonOfAnEarlyEnd(t *testing.T) {
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	file := filepath.Join(t.TempDir(), "run.json")
	cmd := startArmed(t, s, b, "--duration", "10m", "--json", file)
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var run struct {
		Exit struct {
			Code   int
			Reason string
		}
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &run)
	}
	if err != nil || run.Exit.Code != 0 || run.Exit.Reason != "stopped by signal" {
		t.Errorf("%v; the summary says %+v", err, run.Exit)
	}
}

// A record that cannot be begun ends the run before it begins; one that breaks off
// does not hold the arm up, and the run says so at its end.
func TestRecordThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	out := func(cmd *exec.Cmd) (int, string) {
		var log bytes.Buffer
		cmd.Stderr = &log
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), log.String()
	}
	code, said := out(edgeCommand(t, s, b, "--quiet", "--fps", "10", "--record", "/dev/full"))
	if code != 1 || !strings.Contains(said, "--record") || !strings.Contains(said, "/dev/full: no space left") || strings.Count(said, "\n") != 1 {
		t.Errorf("a full disk: exit code %d, %s; want 1 and one line that names file, cause and cure", code, said)
	}
	pipe, read := leavingReader(t)
	code, said = out(edgeCommand(t, s, b, "--quiet", "--record", pipe, "--duration", "4s", "--fps", "10"))
	select {
	case err := <-read:
		if err != nil {
			t.Errorf("the first lines: %v", err)
		}
	case <-time.After(patience):
		t.Fatalf("nobody wrote to the pipe: exit code %d, %s", code, said)
	}
	if code != 1 || !strings.Contains(said, "--record stopped after ") || !strings.Contains(said, pipe) || underTorque(b) != 0 {
		t.Errorf("a reader that goes away: exit code %d, %d motors under torque, %s; want 1, none and why", code, underTorque(b), said)
	}
}

// leavingReader is a pipe whose reader takes its first 2000 bytes and leaves; read
// says how that went.
func leavingReader(t *testing.T) (pipe string, read <-chan error) {
	t.Helper()
	pipe = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	left := make(chan error, 1)
	go func() {
		f, err := os.Open(pipe)
		if err == nil {
			_, err = io.ReadFull(f, make([]byte, 2000))
			f.Close()
		}
		left <- err
	}()
	return pipe, left
}

// An arm that is to be held does not fall because a disk is full: the code stays
// that of its end, after which the unit leaves it alone.
func TestAHeldArmOutlivesAFullDisk(t *testing.T) {
	t.Parallel()
	const instance = "arm"
	s, link, etc := newHoldServer(t), simBusProcess(t), t.TempDir()
	pipe, read := leavingReader(t)
	calibration, err := filepath.Abs("../../testdata/demo/so101.json")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("bus: %s\ncalibration: %s\nconnect: [%s]\non-exit: hold\nfps: 10\nid: arm\nquiet: true\nrecord: %s\njson: /dev/full\nduration: 5s\n", link, calibration, s.endpoint, pipe)
	if err := os.WriteFile(filepath.Join(etc, instance+".yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	edge, log := unitCommand(t, "ExecStart", instance, etc), new(bytes.Buffer)
	edge.Env, edge.Stderr = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir()), log
	overdue := time.AfterFunc(patience, func() { edge.Process.Kill() })
	defer overdue.Stop()
	err = edge.Run()
	for _, want := range []string{"--record stopped after ", "--json: write /dev/full: no space left"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("it does not say %q: %s", want, log)
		}
	}
	if on := torqueOnBus(t, link); err != nil || on != 6 {
		t.Fatalf("it ends with %v and %d motors under torque, want code 0 and 6; %s", err, on, log)
	}
	if err := <-read; err != nil {
		t.Errorf("the first lines: %v", err)
	}
	post := unitCommand(t, "ExecStopPost", instance, etc)
	post.Env = append(os.Environ(), "SERVICE_RESULT=success", "EXIT_CODE=exited", "EXIT_STATUS="+strconv.Itoa(edge.ProcessState.ExitCode()), "GOTRACEBACK=crash")
	if out, err := post.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", post, err, out)
	}
	if on := torqueOnBus(t, link); on != 6 {
		t.Errorf("%d motors under torque after the unit's line, want 6", on)
	}
}

// Nor because the next run cannot start: it ends before it has touched the arm.
func TestAHeldArmOutlivesAStartThatFails(t *testing.T) {
	const instance = "arm"
	link, etc := simBusProcess(t), t.TempDir()
	torqueOnAll(t, link)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, trouble := range []string{"http: " + taken.Addr().String(), "record: /dev/full"} {
		config := fmt.Sprintf("bus: %s\nconnect: [%s]\non-exit: hold\nid: arm\nquiet: true\n%s\n", link, nobody, trouble)
		if err := os.WriteFile(filepath.Join(etc, instance+".yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		edge, log := unitCommand(t, "ExecStart", instance, etc), new(bytes.Buffer)
		edge.Env, edge.Stderr = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir()), log
		overdue := time.AfterFunc(patience, func() { edge.Process.Kill() })
		edge.Run()
		overdue.Stop()
		if code := edge.ProcessState.ExitCode(); code != 4 {
			t.Errorf("%s: exit code %d, %s; want 4", trouble, code, log)
		}
		post := unitCommand(t, "ExecStopPost", instance, etc)
		post.Env = append(os.Environ(), "SERVICE_RESULT=exit-code", "EXIT_CODE=exited", "EXIT_STATUS="+strconv.Itoa(edge.ProcessState.ExitCode()), "GOTRACEBACK=crash")
		if out, err := post.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v\n%s", trouble, post, err, out)
		}
		if on := torqueOnBus(t, link); on != 6 {
			t.Fatalf("%s: %d motors under torque after the unit's line, want 6", trouble, on)
		}
	}
}

// firstLine starts a command, reads one line of what it says and leaves, as
// | head -1 does.
func firstLine(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() { cmd.Process.Kill() })
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Errorf("the first line: %q, %v", line, err)
	}
	r.Close()
	return line
}

// edge-rt monitor | head: it ends without an error when its reader is gone.
func TestMonitorEndsWithItsReader(t *testing.T) {
	cmd, log := exec.Command(binary, "monitor", "--bus", simBus(t).Path(), "--every", "20ms"), new(bytes.Buffer)
	cmd.Stderr = log
	overdue := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer overdue.Stop()
	firstLine(t, cmd)
	if err := cmd.Wait(); err != nil || log.Len() > 0 {
		t.Errorf("it ends with %v and says %q, want neither", err, log)
	}
	// A file that takes nothing is another thing.
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	cmd = exec.Command(binary, "monitor", "--bus", simBus(t).Path())
	cmd.Stdout, cmd.Stderr = full, log
	cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(log.String(), "no space left") {
		t.Errorf("on a full disk: exit code %d, %q, want 1 and why", code, log)
	}
}

// A simulated bus goes on when the reader of its first line is gone.
func TestSimBusOutlivesItsReader(t *testing.T) {
	link := filepath.Join(t.TempDir(), "so101")
	cmd, log := exec.Command(binary, "sim-bus", "--link", link), new(bytes.Buffer)
	cmd.Stderr = log
	firstLine(t, cmd)
	if on := torqueOnBus(t, link); on != 0 {
		t.Errorf("%d motors under torque, want 0", on)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil || log.Len() > 0 {
		t.Errorf("it ends with %v and says %q, want neither", err, log)
	}
}

// The link of a simulated bus that runs is not taken over; one that a killed bus
// left is.
func TestSimBusTakesNoLinkOfOneThatRuns(t *testing.T) {
	link := filepath.Join(t.TempDir(), "so101")
	first := exec.Command(binary, "sim-bus", "--link", link)
	firstLine(t, first)
	code, stdout, stderr := edgeRTFor(t, patience, "sim-bus", "--link", link)
	if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, link) || !strings.Contains(stderr, "another link") {
		t.Errorf("a second one: exit code %d, %q, %q; want 2, the link and how to go on", code, stdout, stderr)
	}
	if on := torqueOnBus(t, link); on != 0 {
		t.Errorf("%d motors of the first under torque, want 0", on)
	}
	first.Process.Kill()
	first.Wait()
	if _, err := os.Readlink(link); err != nil {
		t.Fatalf("a killed bus took its link along: %v", err)
	}
	third := exec.Command(binary, "sim-bus", "--link", link)
	firstLine(t, third)
	if on := torqueOnBus(t, link); on != 0 {
		t.Errorf("%d motors of the third under torque, want 0", on)
	}
	third.Process.Signal(syscall.SIGTERM)
	if err := third.Wait(); err != nil {
		t.Errorf("the third ends with %v", err)
	}
}

// A record that takes nothing any more, as on a disk that hangs, does not keep the
// run from ending.
func TestRecordThatHangs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for a thread that is stuck")
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // and never reads
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	cmd, log := exec.Command(binary, "--quiet", "--fps", "60", "--bus", "sim", "--id", "arm", "--connect", newHoldServer(t).endpoint, "--record", pipe, "--duration", "6s"), new(bytes.Buffer)
	cmd.Env, cmd.Stderr = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir()), log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer overdue.Stop()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(log.String(), "did not end") || !strings.Contains(log.String(), "--record") {
		t.Errorf("exit code %d, %s; want 1 and what hangs", code, log)
	}
}

// A mistake elsewhere on the line does not cost the record of the run before.
func TestWrongFlagsKeepFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--record", file, "--fps", "0"}, {"--json", file, "--fps", "0"}, {"--record", file, "--json", file}, {"--record", "-"}} {
		if code, _, stderr := edgeRT(t, append([]string{"--quiet", "--bus", "sim", "--connect", nobody}, args...)...); code != 2 {
			t.Errorf("%s: exit code %d, %s; want 2", args, code, stderr)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file now holds %q, %v", b, err)
	}
}

// What is no camera is refused before anything is opened: nobody listens there.
func TestCamerasThatAreNone(t *testing.T) {
	dir := t.TempDir()
	text, pipe, folder := filepath.Join(dir, "picture.jpg"), filepath.Join(dir, "pipe.png"), filepath.Join(dir, "empty")
	for _, err := range []error{os.WriteFile(text, []byte("no picture"), 0o600), syscall.Mkfifo(pipe, 0o600), os.Mkdir(folder, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		source, says string
		code         int
	}{
		{"/dev/null", "/dev/null", 3},
		{"/dev", "holds 0 files", 3},
		{text, "picture.jpg", 3},
		{pipe, "pipe.png", 3},
		{folder, "holds 0 files", 3},
		{filepath.Join(dir, "none.png"), "none.png", 2},
		{"pattern:1x1", "needs", 2},
		{"sim,format=mjpeg", "paints rgb", 2},
	} {
		code, _, stderr := edgeRT(t, "--quiet", "--bus", "sim", "--connect", nobody, "--camera", "front="+tt.source)
		if code != tt.code || !strings.Contains(stderr, "camera front") || !strings.Contains(stderr, tt.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s; want %d and one line with %q", tt.source, code, stderr, tt.code, tt.says)
		}
	}
}
