package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The reader of the log may end (| head, a terminal multiplexer that died): the run continues, and
// switches torque off at its end. By default Go ends a program that writes to a broken standard
// error, which would leave the arm under torque.
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
	s.Token.Undeclare()     // the lost session causes log lines
	time.Sleep(time.Second) // the run writes to the broken pipe, which cannot be observed
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil || underTorque(b) != 0 {
		t.Errorf("it ended with %v and %d motors under torque; want a clean end, and none", err, underTorque(b))
	}
}

// When a signal ends a run early, the summary gives the signal as the reason, not the elapsed
// duration.
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

// With --record all an unusable record folder ends the run before the arm is touched; with --record
// ring it does not. A disk that becomes full ends no run.
func TestRecordThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	run := func(args ...string) (int, string) {
		var log bytes.Buffer
		cmd := edgeCommand(t, s, b, args...)
		cmd.Stderr = &log
		overdue := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		defer overdue.Stop()
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), log.String()
	}
	code, said := run("--quiet", "--record", "all", "--record-dir", "/dev/null/records")
	if code != 1 || !strings.Contains(said, "--record all: ") || !strings.Contains(said, "/dev/null") ||
		!strings.Contains(said, "--record-dir") || strings.Count(said, "\n") != 1 {
		t.Errorf("no folder, all: exit code %d, %s; want 1 and one line that names folder, cause and cure", code, said)
	}
	file := filepath.Join(t.TempDir(), "run.json")
	code, said = run("--record", "ring", "--record-dir", "/dev/null/records", "--duration", "3s", "--json", file)
	if code != 0 || !strings.Contains(said, "cannot be saved for now") || !strings.Contains(said, "/dev/null") ||
		underTorque(b) != 0 {
		t.Errorf("no folder, ring: exit code %d, %d motors under torque, %s; want 0, none and a warning", code,
			underTorque(b), said)
	}

	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	defer syscall.Unmount(small, syscall.MNT_DETACH)
	code, said = run("--record", "all", "--record-dir", small, "--camera", "top=pattern:320x240@30", "--duration",
		"12s", "--json", file)
	var sum struct {
		Ticks  uint64
		Record struct {
			Lost         uint64
			LostPictures uint64 `json:"lost_pictures"`
			Error        string
		}
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &sum)
	}
	if err != nil || code != 0 || sum.Ticks < 60 || sum.Record.Lost+sum.Record.LostPictures == 0 ||
		!strings.Contains(sum.Record.Error, "no space left") ||
		!strings.Contains(said, "nothing can be recorded for now") || underTorque(b) != 0 {
		t.Errorf("a disk that gets full: exit code %d, %v, %+v, %s; want 0, ticks as ever, and the lost messages", code,
			err, sum, said)
	}
}

// The ring is written when an event worth keeping happens, once per event, and not in a run without
// such events.
func TestTheRingIsWrittenWhenSomethingHappens(t *testing.T) {
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	dir := t.TempDir()
	cmd := startArmed(t, s, b, "--record-dir", dir, "--record-size", "64MiB")
	state := ""
	for _, v := range cmd.Env {
		if name, value, _ := strings.Cut(v, "="); name == "STATE_DIRECTORY" {
			state = value
		}
	}
	ctl := func(word string) (int, string) {
		c := exec.Command(binary, "ctl", word, "--id", "arm")
		c.Env = append(os.Environ(), "STATE_DIRECTORY="+state)
		out, _ := c.CombinedOutput()
		return c.ProcessState.ExitCode(), string(out)
	}
	if code, out := ctl("reset"); code != 0 {
		t.Fatalf("reset: %d, %s", code, out)
	}
	if code, out := ctl("save"); code != 0 {
		t.Fatalf("save: %d, %s", code, out)
	}
	rttest.Eventually(t, "the ring is written", func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "*.mcap"))
		return len(found) > 0
	})
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	ticks, said := 0, ""
	infos, err := record.ReadFolder(dir, record.Visitor{
		Tick:  func(*record.Tick) error { ticks++; return nil },
		Event: func(e *record.Event) error { said += e.Kind + " " + e.Text.String() + "\n"; return nil },
	})
	if err != nil || len(infos) == 0 {
		t.Fatalf("%d files, %v", len(infos), err)
	}
	last := infos[len(infos)-1]
	// a busy machine may add causes of its own before
	why := []string{"edge-rt ctl save", "a fault", "a tick without an action"}
	if last.Torn || !slices.Contains(why, last.Run["why"]) || last.Run["id"] != "arm" || last.Run["fps"] != "10" ||
		last.Run["joints"] == "" || ticks < 5 {
		t.Errorf("%+v with %d ticks", last, ticks)
	}
	for _, want := range []string{"link session open", "operator reset", "operator save",
		"state state  from CONNECTING  to STREAMING", "exit code 0"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not on record: %s", want, said)
		}
	}
}

// With on-exit: hold a full disk does not release the arm: the exit code stays that of the run's
// end, and the unit's ExecStopPost= leaves the arm alone.
func TestAHeldArmOutlivesAFullDisk(t *testing.T) {
	t.Parallel()
	const instance = "arm"
	s := newHoldServer(t)
	link := simBusProcess(t, "so101")
	etc := t.TempDir()
	calibration, err := filepath.Abs("../../testdata/demo/so101.json")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("bus: %s\ncalibration: %s\nconnect: [%s]\non-exit: hold\nfps: 10\nid: arm\nquiet: "+
		"true\nrecord-dir: /dev/full/records\njson: /dev/full\nduration: 5s\n", link, calibration, s.Endpoint)
	if err := os.WriteFile(filepath.Join(etc, instance+".yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	edge, log := unitCommand(t, "ExecStart", instance, etc), new(bytes.Buffer)
	edge.Env, edge.Stderr = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir()), log
	overdue := time.AfterFunc(patience, func() { edge.Process.Kill() })
	defer overdue.Stop()
	err = edge.Run()
	if want := "--json: write /dev/full: no space left"; !strings.Contains(log.String(), want) {
		t.Errorf("it does not say %q: %s", want, log)
	}
	if on := torqueOnBus(t, link); err != nil || on != 6 {
		t.Fatalf("it ends with %v and %d motors under torque, want code 0 and 6; %s", err, on, log)
	}
	post := unitCommand(t, "ExecStopPost", instance, etc)
	post.Env = append(os.Environ(), "SERVICE_RESULT=success", "EXIT_CODE=exited",
		"EXIT_STATUS="+strconv.Itoa(edge.ProcessState.ExitCode()), "GOTRACEBACK=crash")
	if out, err := post.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", post, err, out)
	}
	if on := torqueOnBus(t, link); on != 6 {
		t.Errorf("%d motors under torque after the unit's line, want 6", on)
	}
}

// A next run that cannot start does not release the held arm either: it ends before it touches the
// arm.
func TestAHeldArmOutlivesAStartThatFails(t *testing.T) {
	const instance = "arm"
	link, etc := simBusProcess(t, "so101"), t.TempDir()
	torqueOnAll(t, link)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, trouble := range []string{"http: " + taken.Addr().String(), "record: all\nrecord-dir: /dev/full/records"} {
		config := fmt.Sprintf("bus: %s\nconnect: [%s]\non-exit: hold\nid: arm\nquiet: true\n%s\n", link, unreachable,
			trouble)
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
		post.Env = append(os.Environ(), "SERVICE_RESULT=exit-code", "EXIT_CODE=exited",
			"EXIT_STATUS="+strconv.Itoa(edge.ProcessState.ExitCode()), "GOTRACEBACK=crash")
		if out, err := post.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v\n%s", trouble, post, err, out)
		}
		if on := torqueOnBus(t, link); on != 6 {
			t.Fatalf("%s: %d motors under torque after the unit's line, want 6", trouble, on)
		}
	}
}

// firstLine starts a command, reads the first line of its output and closes the pipe, as | head -1
// does.
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

// edge-rt monitor | head ends without an error when its reader has ended.
func TestMonitorEndsWithItsReader(t *testing.T) {
	cmd, log := exec.Command(binary, "monitor", "--bus", simBus(t).Path(), "--every", "20ms"), new(bytes.Buffer)
	cmd.Stderr = log
	overdue := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer overdue.Stop()
	firstLine(t, cmd)
	if err := cmd.Wait(); err != nil || log.Len() > 0 {
		t.Errorf("it ends with %v and says %q, want neither", err, log)
	}
	// A full output file, in contrast, is an error.
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

// A simulated bus continues when the reader of its first line has ended.
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

// A second simulated bus does not replace the link of a running one; it does replace a link that a
// killed bus left.
func TestSimBusTakesNoLinkOfOneThatRuns(t *testing.T) {
	link := filepath.Join(t.TempDir(), "so101")
	first := exec.Command(binary, "sim-bus", "--link", link)
	firstLine(t, first)
	code, stdout, stderr := edgeRTFor(t, patience, "sim-bus", "--link", link)
	if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, link) ||
		!strings.Contains(stderr, "another link") {
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

// A wrong flag does not truncate the --json file of the previous run.
func TestWrongFlagsKeepFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--json", file, "--fps", "0"}, {"--json", file, "--record", "some"},
		{"--json", file, "--record-size", "1MiB"}} {
		if code, _, stderr := edgeRT(t,
			append([]string{"--quiet", "--bus", "sim", "--connect", unreachable}, args...)...); code != 2 {
			t.Errorf("%s: exit code %d, %s; want 2", args, code, stderr)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file now holds %q, %v", b, err)
	}
}

// An unusable camera source is refused before any connection is attempted: the endpoint has no
// server.
func TestCamerasThatAreNone(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "picture.jpg")
	pipe := filepath.Join(dir, "pipe.png")
	folder := filepath.Join(dir, "empty")
	for _, err := range []error{os.WriteFile(text, []byte("no picture"), 0o600), syscall.Mkfifo(pipe, 0o600),
		os.Mkdir(folder, 0o700)} {
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
		code, _, stderr := edgeRT(t, "--quiet", "--bus", "sim", "--connect", unreachable, "--camera", "front="+
			tt.source)
		if code != tt.code || !strings.Contains(stderr, "camera front") || !strings.Contains(stderr, tt.says) ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s; want %d and one line with %q", tt.source, code, stderr, tt.code, tt.says)
		}
	}
}
