package operator

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// full is a listener at which each thread first gets an error, as in a process with too many open files.
type full struct {
	net.Listener
	errors atomic.Int32
}

func (l *full) Accept() (net.Conn, error) {
	if l.errors.Add(1) <= atOnce {
		return nil, unix.EMFILE
	}
	return l.Listener.Accept()
}

// Goal: Serve handles the commands of all clients, also after errors of the kernel. Ctl skips the socket of a killed
// process.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("STATE_DIRECTORY", dir)
	id := rttest.Must(Claim("arm"))(t)
	defer id.Release()
	leaveSocket(t, dir, "arm") // a socket that the previous process has left
	l := rttest.Must(Listen(id))(t)
	var threads sync.WaitGroup
	start := func(thread func() error) { threads.Go(func() { rttest.Do(t, thread()) }) }
	Serve(&full{Listener: l}, start, func(line string) Reply {
		return Reply{OK: line == "status", Error: "got " + line, ID: id.ID}
	})
	leaveSocket(t, dir, "killed")
	if reply, err := Ctl("", "status"); err != nil || reply.ID != "arm" {
		t.Errorf("beside the socket of an edge that was killed: %+v, %v; want the one that runs", reply, err)
	}
	rttest.Fails(t, rttest.Err(Ctl("arm", "dance")), "got dance")
	l.Close()
	threads.Wait()
	if _, err := Ctl("arm", "status"); err == nil {
		t.Error("a process that has ended answered")
	}
}

// Goal: CheckTask accepts exactly the tasks that stay unchanged in a log, in a line of edge-rt ctl and in a message.
func TestCheckTask(t *testing.T) {
	for _, good := range []string{"pick up the cube", "hebe den Würfel auf", "把方块捡起来", `say "go"`,
		strings.Repeat("x", wire.MaxTextBytes)} {
		if err := CheckTask("--task", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, says := range map[string]string{
		"": "is empty", "two\nlines": "line break", "a\rb": "line break", "red \x1b[31m": "control character",
		"nul\x00": "control character", "next\u0085line": "control character",
		"\xff": "not UTF-8", strings.Repeat("x", wire.MaxTextBytes+1): "want at most",
	} {
		rttest.Ends(t, CheckTask("--task", bad), exit.Usage, says, "--task")
	}
}

// leaveSocket makes the socket of a killed edge, at which no process listens.
func leaveSocket(t *testing.T, dir, id string) {
	t.Helper()
	l := rttest.Must(net.ListenUnix("unix", &net.UnixAddr{Name: SocketPath(dir, id)}))(t)
	l.SetUnlinkOnClose(false)
	l.Close()
}

// Goal: Ctl finds running edges by their sockets, and does not lock their ids: an edge that starts while Ctl holds the
// lock of its id would take another name.
func TestCtlLeavesTheLockAlone(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("STATE_DIRECTORY", dir)
	leaveSocket(t, dir, "starting") // the edge was killed, and has claimed its name again
	starting := rttest.Must(Claim("starting"))(t)
	defer starting.Release()
	running := rttest.Must(net.Listen("unix", SocketPath(dir, "running")))(t)
	defer running.Close()
	if !abandoned(SocketPath(dir, "starting")) {
		t.Error("an edge that does not listen yet is taken for one that runs")
	}
	if abandoned(SocketPath(dir, "running")) {
		t.Error("a socket at which an edge listens is taken for a dead edge's")
	}
	if _, err := os.Stat(filepath.Join(dir, "running.lock")); !os.IsNotExist(err) {
		t.Errorf("ctl looked for the lock: %v", err)
	}
}

// Goal: an operator's command reaches the edge of a service, whose state is outside the operator's
// home.
func TestCtlReachesAService(t *testing.T) {
	service, home := t.TempDir(), t.TempDir()
	before := serviceDir
	t.Cleanup(func() { serviceDir = before })
	serviceDir = service
	serve := func(state, id string) {
		t.Helper()
		t.Setenv("STATE_DIRECTORY", state)
		claimed := rttest.Must(Claim(id))(t)
		t.Cleanup(claimed.Release)
		l := rttest.Must(Listen(claimed))(t)
		t.Cleanup(func() { l.Close() })
		go answer(l, func(line string) Reply { return Reply{OK: true, ID: claimed.ID} })
	}
	ask := func(id string) (Reply, error) {
		t.Setenv("STATE_DIRECTORY", "")
		t.Setenv("XDG_STATE_HOME", home)
		return Ctl(id, "status")
	}
	rttest.Ends(t, rttest.Err(ask("")), exit.Absent, service, home) // no edge runs
	serve(service, "left")
	for _, id := range []string{"", "left"} {
		if r, err := ask(id); err != nil || r.ID != "left" {
			t.Errorf("--id %q: %+v, %v, want left's answer", id, r, err)
		}
	}
	serve(filepath.Join(home, "edge-rt"), "right")
	rttest.Ends(t, rttest.Err(ask("")), exit.Usage, "left.sock", "right.sock") // two edges
	for _, id := range []string{"left", "right"} {
		if r, err := ask(id); err != nil || r.ID != id {
			t.Errorf("--id %s: %+v, %v", id, r, err)
		}
	}
	rttest.Ends(t, rttest.Err(ask("away")), exit.Absent, service, home) // --id away
}

// If an edge ends before it answers, the error names its socket.
func TestCtlOfAnEdgeThatEnds(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	l := rttest.Must(net.Listen("unix", SocketPath(os.Getenv("STATE_DIRECTORY"), "arm")))(t)
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			bufio.NewReader(c).ReadString('\n')
			c.Close()
		}
	}()
	rttest.Fails(t, rttest.Err(Ctl("arm", "status")), "ended before it answered", "arm.sock")
}
