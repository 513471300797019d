package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// When the reader of the log ends (| head, or a terminal multiplexer that dies), the run continues, and still switches
// torque off at its own end. By default Go ends a program that writes to a broken standard error, which would leave
// the arm under torque.
func TestRunOutlivesItsReader(t *testing.T) {
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	reader, w, err := os.Pipe()
	rttest.Do(t, err)
	r := runOn(t, s, b)
	r.Stdout, r.Stderr = w, w
	r.Start()
	w.Close()
	awaitTorque(t, b, 6)
	reader.Close()
	s.Token.Undeclare()     // the lost session causes log lines
	time.Sleep(time.Second) // the run writes to the broken pipe, which cannot be observed
	r.ends(b, 0, 0, syscall.SIGTERM)
}

// With --record all, an unusable record folder ends the run before it touches the arm. With
// --record ring, such a folder does not end the run. A disk that becomes full ends no run.
func TestRecordThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	r := runOn(t, s, b, "--quiet", "--record", "all", "--record-dir", "/dev/null/records")
	if code := r.Start().End(); code != 1 || strings.Count(r.Log.String(), "\n") != 1 {
		t.Errorf("no folder, all: exit code %d, %s; want 1 and one line", code, r.Log)
	}
	r.CheckSays("--record all: |/dev/null|--record-dir")
	r = runOn(t, s, b, "--record", "ring", "--record-dir", "/dev/null/records", "--duration", "3s")
	r.Start()
	r.ends(b, 0, 0)
	r.CheckSays("cannot be saved for now|/dev/null")

	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	defer syscall.Unmount(small, syscall.MNT_DETACH)
	r = runOn(t, s, b, "--record", "all", "--record-dir", small, "--camera", "top=pattern:320x240@30", "--duration",
		"5s")
	code, sum := r.play()
	if code != 0 || sum.Ticks < 25 || sum.Record.Lost+sum.Record.LostPictures == 0 || underTorque(b) != 0 {
		t.Errorf("a disk that gets full: exit code %d, %d ticks, %+v; want 0, ticks as ever, and the lost messages",
			code, sum.Ticks, sum.Record)
	}
	stagetest.CheckSays(t, sum.Record.Error, "no space left")
	r.CheckSays("nothing can be recorded for now")
}

// The run writes the ring to disk once for each event worth keeping, and does not write it without such an
// event.
func TestTheRingIsWrittenWhenSomethingHappens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := startArmed(t, newHoldServer(t), simBus(t), "--record-dir", dir, "--record-size", "64MiB")
	for _, word := range []string{"reset", "save"} {
		r.wants(0, "", word)
	}
	rttest.Eventually(t, "the ring is written", func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "*.mcap"))
		return len(found) > 0
	})
	r.EndsWith(0, syscall.SIGTERM)
	ticks, events := 0, ""
	infos, err := record.ReadFolder(dir, record.Visitor{
		Tick:  func(*record.Tick) error { ticks++; return nil },
		Event: func(e *record.Event) error { events += e.Kind + " " + e.Text.String() + "\n"; return nil },
	})
	if err != nil || len(infos) == 0 {
		t.Fatalf("%d files, %v", len(infos), err)
	}
	last := infos[len(infos)-1]
	// On a busy machine a fault, or a tick without an action, may have saved the ring before the command did.
	why := []string{"edge-rt ctl save", "a fault", "a tick without an action"}
	if last.Torn || !slices.Contains(why, last.Run["why"]) || last.Run["id"] != "arm" || last.Run["fps"] != "10" ||
		last.Run["joints"] == "" || ticks < 5 {
		t.Errorf("%+v with %d ticks", last, ticks)
	}
	stagetest.CheckSays(t, events, "link session open|operator reset|operator save|"+
		"state state  from CONNECTING  to STREAMING|exit code 0")
}

// With on-exit: hold a full disk does not release the arm. The run has the same exit code as with room on the disk, and
// the unit's ExecStopPost= leaves the arm under torque.
func TestAHeldArmOutlivesAFullDisk(t *testing.T) {
	t.Parallel()
	u := newUnit(t, "calibration: %s\nconnect: [%s]\non-exit: hold\nfps: 10\nid: arm\nquiet: true\n"+
		"record-dir: /dev/full/records\njson: /dev/full\nduration: 5s\n", absolute(t, demoCalibration),
		newHoldServer(t).Endpoint)
	edge := u.command("ExecStart")
	code := edge.Start().End()
	edge.CheckSays("--json: write /dev/full: no space left")
	if on := torqueOnBus(t, u.bus); code != 0 || on != 6 {
		t.Fatalf("it ends with %d and %d motors under torque, want code 0 and 6; %s", code, on, edge.Log)
	}
	rttest.Want(t, u.stopPost("success", "exited", "0"), 6, "motors under torque after the unit's line")
}

// If a run held the arm at its end, and the next run cannot start, the next run does not release the arm: it ends
// before it touches the arm.
func TestAHeldArmOutlivesAStartThatFails(t *testing.T) {
	taken := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	for _, trouble := range []string{"http: " + taken.Addr().String(), "record: all\nrecord-dir: /dev/full/records"} {
		u := newUnit(t, "connect: [%s]\non-exit: hold\nid: arm\nquiet: true\n%s\n", unreachable, trouble)
		torqueOnAll(t, u.bus)
		edge := u.command("ExecStart")
		code := edge.Start().End()
		if code != 4 {
			t.Errorf("%s: exit code %d, %s; want 4", trouble, code, edge.Log)
		}
		if on := u.stopPost("exit-code", "exited", strconv.Itoa(code)); on != 6 {
			t.Fatalf("%s: %d motors under torque after the unit's line, want 6", trouble, on)
		}
	}
}

// firstLine starts a command, reads the first line of its output and closes the pipe, as | head -1
// does.
func firstLine(t *testing.T, args ...string) *stagetest.Program {
	t.Helper()
	r, w, err := os.Pipe()
	rttest.Do(t, err)
	p := stagetest.Command(t, binary, args...)
	p.Stdout = w
	p.Start()
	w.Close()
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Errorf("the first line: %q, %v", line, err)
	}
	r.Close()
	return p
}

// In edge-rt monitor | head, the monitor ends without an error when its reader has ended.
func TestMonitorEndsWithItsReader(t *testing.T) {
	p := firstLine(t, "monitor", "--bus", simBus(t).Path(), "--every", "20ms")
	if code := p.End(); code != 0 || p.Log.String() != "" {
		t.Errorf("it ends with %d and says %q, want neither", code, p.Log)
	}
	// If the disk of its output is full, however, monitor ends with an error.
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	p = stagetest.Command(t, binary, "monitor", "--bus", simBus(t).Path())
	p.Stdout = full
	if code := p.Start().End(); code != 1 || !strings.Contains(p.Log.String(), "no space left") {
		t.Errorf("on a full disk: exit code %d, %q, want 1 and why", code, p.Log)
	}
}

// A simulated bus continues when the reader of its first line has ended. A second simulated bus does not replace the
// link of a running bus, but it replaces a link that a killed bus has left.
func TestSimBusKeepsItsLink(t *testing.T) {
	link := filepath.Join(t.TempDir(), "so101")
	first := firstLine(t, "sim-bus", "--link", link)
	refuses(t, "=> 2 "+link+"|another link", "sim-bus", "--link", link)
	rttest.Want(t, torqueOnBus(t, link), 0, "motors of the first under torque")
	first.End(syscall.SIGKILL)
	if _, err := os.Readlink(link); err != nil {
		t.Fatalf("a killed bus took its link along: %v", err)
	}
	next := firstLine(t, "sim-bus", "--link", link)
	rttest.Want(t, torqueOnBus(t, link), 0, "motors of the next under torque")
	if code := next.End(syscall.SIGTERM); code != 0 || next.Log.String() != "" {
		t.Errorf("the next ends with %d and says %q", code, next.Log)
	}
}

// A report that was not written to standard output is an error.
func TestAFullDiskFailsEveryReport(t *testing.T) {
	full := rttest.Must(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
	defer full.Close()
	for _, args := range []string{"version", "--help", "cameras --all", "ports", "sim-bus --link " +
		filepath.Join(t.TempDir(), "arm"), "doctor --json -"} {
		p := stagetest.Command(t, binary, strings.Fields(args)...)
		p.Stdout = full
		p.Start()
		if strings.HasPrefix(args, "sim-bus") {
			link := strings.Fields(args)[2]
			rttest.Eventually(t, "the arm", func() bool { _, err := os.Stat(link); return err == nil })
			p.Process.Signal(syscall.SIGTERM)
		}
		if code := p.End(); code == 0 || !strings.Contains(p.Log.String(), "no space left on device") &&
			!strings.Contains(p.Log.String(), "no serial port") && !strings.Contains(p.Log.String(), "no camera") {
			t.Errorf("%s: exit code %d, %q, want an error about standard output", args, code, p.Log)
		}
	}
}

// Neither a wrong flag nor a command that fails truncates the --json file of the previous run.
func TestWrongFlagsKeepFiles(t *testing.T) {
	file := rttest.WriteFile(t, t.TempDir(), "precious", "precious")
	refuses(t, `
		--fps 0 => 2
		--record some => 2
		--record-size 1MiB => 2
		--camera a=sim --camera a=sim => 2
		--leader zenoh:white --leader-id white => 2
	`, append(atNoServer, "--json", file)...)
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file now holds %q, %v", b, err)
	}
	refuses(t, `
		scan --bus /dev/ttyNONE9 => 4
		monitor --bus /dev/ttyNONE9 => 4
		why /none.mcap => 2
		dataset info /none => 2
		fleet top --once --connect `+unreachable+` => 4
		replay /none.mcap --bus sim => 2
	`, "--json", file)
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("after commands that failed the file holds %q, %v", b, err)
	}
	kept := filepath.Join(t.TempDir(), "precious.mcap")
	rttest.Do(t, os.Rename(file, kept))
	refuses(t, "=> 2 would replace a record", append(atNoServer, "--json", kept)...)
	if b, err := os.ReadFile(kept); err != nil || string(b) != "precious" {
		t.Errorf("the record now holds %q, %v", b, err)
	}
}

// A run refuses an unusable camera source before it tries to connect: the endpoint in this test has no server.
func TestCamerasThatAreNone(t *testing.T) {
	dir := t.TempDir()
	rttest.WriteFile(t, dir, "picture.jpg", "no picture")
	rttest.Do(t, syscall.Mkfifo(dir+"/pipe.png", 0o600))
	rttest.Do(t, os.Mkdir(dir+"/empty", 0o700))
	refuses(t, strings.ReplaceAll(`
		--camera front=/dev/null => 3 camera front|/dev/null
		--camera front=/dev => 3 camera front|holds 0 files
		--camera front=DIR/picture.jpg => 3 camera front|picture.jpg
		--camera front=DIR/pipe.png => 3 camera front|pipe.png
		--camera front=DIR/empty => 3 camera front|holds 0 files
		--camera front=DIR/none.png => 2 camera front|none.png
		--camera front=pattern:1x1 => 2 camera front|needs
		--camera front=sim,format=mjpeg => 2 camera front|paints rgb
	`, "DIR", dir), "--quiet", "--bus", "sim", "--connect", unreachable)
}

// absolute returns the absolute path of a file.
func absolute(t *testing.T, path string) string {
	t.Helper()
	path = rttest.Must(filepath.Abs(path))(t)
	return path
}

// unit is the instance arm of the edge's systemd unit, with a bus that another process serves.
type unit struct {
	t        *testing.T
	etc, bus string
}

// newUnit returns a unit whose configuration file has the bus and config, a format for args.
func newUnit(t *testing.T, config string, args ...any) *unit {
	t.Helper()
	u := &unit{t, t.TempDir(), simBusProcess(t, "so101")}
	rttest.WriteFile(t, u.etc, "arm.yaml", fmt.Sprintf("bus: %s\n"+config, append([]any{u.bus}, args...)...))
	return u
}

// command returns a command of the unit as systemd would run it, with the installed paths replaced
// by those of this test.
func (u *unit) command(key string) *stagetest.Program {
	u.t.Helper()
	text := rttest.OrPanic(os.ReadFile("../../systemd/edge-rt@.service"))
	_, line, ok := strings.Cut(string(text), "\n"+key+"=")
	if !ok {
		u.t.Fatalf("the unit has no %s=", key)
	}
	line, _, _ = strings.Cut(line, "\n")
	line = strings.TrimPrefix(line, "-") // this sign tells systemd to ignore a failure of the command
	words := strings.Fields(strings.NewReplacer("/usr/bin/edge-rt", binary, "/etc/edge-rt", u.etc, "%i", "arm").
		Replace(line))
	return stagetest.Command(u.t, words[0], words[1:]...)
}

// stopPost runs the unit's ExecStopPost= with the variables by which systemd describes the end of a run. It returns the
// number of motors under torque afterwards.
func (u *unit) stopPost(result, code, status string) (on int) {
	u.t.Helper()
	post := u.command("ExecStopPost")
	post.Env = append(post.Env, "SERVICE_RESULT="+result, "EXIT_CODE="+code, "EXIT_STATUS="+status,
		"GOTRACEBACK=crash")
	if got := post.Start().End(); got != 0 {
		u.t.Errorf("%s, %s, %s: code %d, %s", result, code, status, got, post.Log)
	}
	return torqueOnBus(u.t, u.bus)
}
