package servo

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"go.bug.st/serial"
	"go.bug.st/serial/enumerator"
	"golang.org/x/sys/unix"
)

// These tests show the differences between go.bug.st/serial and OpenPort that keep OpenPort from using the library.
// When a newer version of the library fails these tests, OpenPort could use it.

func libraryOpen(t testing.TB, path string) serial.Port {
	t.Helper()
	p := rttest.Must(serial.Open(path, &serial.Mode{BaudRate: 1_000_000}))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

// The library's port is inherited by child processes: the watchdog process, for example, would keep
// the port open and claimed.
func TestLibraryPortIsInheritedByChildren(t *testing.T) {
	childHas := func(path string) bool {
		out, err := exec.Command("sh", "-c", "ls -l /proc/self/fd").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Contains(string(out), path+"\n")
	}
	master, path := openPty(t)
	defer unix.Close(master)
	p := mustOpen(t, path, 1_000_000)
	if childHas(path) {
		t.Error("a child has inherited a port of OpenPort")
	}
	p.Close()
	libraryOpen(t, path)
	if !childHas(path) {
		t.Error("a child has not inherited the library's port: it sets O_CLOEXEC now")
	}
}

// The library sets only TIOCEXCL, which does not stop root. Only a lock keeps two programs of root
// from driving one arm.
func TestLibraryPortCanBeOpenedTwice(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("TIOCEXCL binds everybody but root")
	}
	master, path := openPty(t)
	defer unix.Close(master)
	libraryOpen(t, path)
	second, err := serial.Open(path, &serial.Mode{BaudRate: 1_000_000})
	if err != nil {
		t.Fatalf("the library locks its ports now: %v", err)
	}
	second.Close()
	p := mustOpen(t, path, 1_000_000)
	defer p.Close()
	rttest.FailsAs(t, rttest.Err(OpenPort(path, 1_000_000)), ErrPortBusy)
}

// When an adapter hangs and accepts no bytes, the library's Write blocks, which also blocks torque off and Ctrl-C.
func TestLibraryWriteBlocks(t *testing.T) {
	master, path := openPty(t)
	defer unix.Close(master)
	much := make([]byte, 1<<20)
	p := mustOpen(t, path, 1_000_000)
	rttest.FailsAs(t, rttest.Err(p.Write(much)), ErrPortLost)
	p.Close()
	q, ended := libraryOpen(t, path), make(chan error, 1)
	go func() { _, err := q.Write(much); ended <- err }()
	select {
	case err := <-ended:
		t.Errorf("the library's Write ends by itself now: %v", err)
	case <-time.After(50 * writeWait * time.Millisecond):
	}
}

// The library's Read returns the same error for a pulled plug and after Close. Only a pulled plug
// must start the search for the arm.
func TestLibraryTellsNoUnplugFromClose(t *testing.T) {
	master, path := openPty(t)
	p := libraryOpen(t, path)
	unix.Close(master)
	_, gone := p.Read(make([]byte, 1))
	p.Close()
	if _, closed := p.Read(make([]byte, 1)); fmt.Sprint(gone) != fmt.Sprint(closed) {
		t.Errorf("the library says %q of a pulled plug and %q of a closed port: it tells them apart now", gone, closed)
	}
}

// The library uses select(2), which is limited to 1024 descriptors. An edge with a page and many clients has more.
func TestLibraryReadWithManyDescriptors(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Max < 1100 {
		t.Skipf("%v, at most %d descriptors here", err, limit.Max)
	}
	before := limit
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Skip(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	master, path := openPty(t)
	defer unix.Close(master)
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for last := 0; last < 1024; fds = append(fds, last) {
		last = rttest.Must(unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0))(t)
	}
	buf := make([]byte, 1)
	p := mustOpen(t, path, 1_000_000)
	rttest.Want(t, rttest.Must(p.Read(buf))(t), 0, "Read")
	p.Close()
	q := libraryOpen(t, path)
	q.SetReadTimeout(time.Millisecond)
	defer func() {
		if recover() == nil {
			t.Error("the library reads with more than 1024 descriptors now")
		}
	}()
	q.Read(buf)
}

// The library's enumerator opens every /dev/ttyS and sets it to 9600 baud, raw. That breaks a login
// on the serial console of many a Raspberry Pi or server, so edge-rt ports does not use the
// enumerator, and this test runs only on request.
func TestLibraryListingSetsSerialConsoles(t *testing.T) {
	if os.Getenv("EDGERT_TRY_ENUMERATOR") == "" {
		t.Skip("sets this machine's /dev/ttyS ports to 9600 baud; EDGERT_TRY_ENUMERATOR=1, as root, runs it")
	}
	master, path := openPty(t)
	defer unix.Close(master)
	console := rttest.Must(unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(console)
	const link = "/dev/ttyS999"
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	defer os.Remove(link)
	rttest.Must(enumerator.GetDetailedPortsList())(t)
	now := rttest.Must(unix.IoctlGetTermios(console, unix.TCGETS2))(t)
	if now.Lflag&unix.ECHO != 0 || now.Ospeed != 9600 {
		t.Errorf("the console still has echo and %d baud: the library leaves it alone now", now.Ospeed)
	}
}
