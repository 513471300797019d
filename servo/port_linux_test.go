package servo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

// openPty returns the master's descriptor and the path of its other side.
func openPty(t testing.TB) (master int, path string) {
	t.Helper()
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	rttest.Do(t, unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0))
	n := rttest.Must(unix.IoctlGetInt(master, unix.TIOCGPTN))(t)
	return master, fmt.Sprintf("/dev/pts/%d", n)
}

func mustOpen(t *testing.T, path string, baud int) Port {
	t.Helper()
	return rttest.Must(OpenPort(path, baud))(t)
}

func TestOpenPortRefuses(t *testing.T) {
	file := rttest.WriteFile(t, t.TempDir(), "file", "")
	master, path := openPty(t)
	defer unix.Close(master)
	p := mustOpen(t, path, 1_000_000)
	for _, tt := range []struct {
		name, path string
		want       error
		text       string
	}{
		{"nothing there", "/dev/ttyACM97", ErrPortAbsent, "plug the adapter in"},
		{"in use", path, ErrPortBusy, "another program"},
		{"a file", file, ErrPort, "edge-rt ports"},
		{"a folder", t.TempDir(), ErrPort, "is a directory; edge-rt ports"},
	} {
		q, err := OpenPort(tt.path, 1_000_000)
		busy := errors.Is(err, ErrPortBusy) && tt.want == ErrPortBusy // the text differs when TIOCEXCL refuses first
		if q != nil || !errors.Is(err, tt.want) || !rttest.Says(err, tt.path) || !busy &&
			!rttest.Says(err, tt.text) {
			t.Errorf("%s: OpenPort(%s) = %v, want %v with %q", tt.name, tt.path, err, tt.want, tt.text)
		}
	}
	// A child process has such a copy of the descriptor between its fork and its exec. The copy
	// must not keep the port locked.
	copied := rttest.Must(unix.Dup(p.(*serialPort).fd))(t)
	defer unix.Close(copied)
	rttest.Do(t, p.Close())
	mustOpen(t, path, 1_000_000).Close()
}

// While a program that does not lock its port, such as LeRobot, has the port open, OpenPortAlone refuses
// it, but OpenPortWait, with which torque is switched off, does not. Here the port is a file, which
// OpenPort itself refuses with another error.
func TestAPortThatAnotherProgramHasOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ttyACM0")
	file := rttest.Must(os.Create(path))(t)
	other := exec.Command("sleep", "60")
	other.Stdin = file
	rttest.Do(t, other.Start())
	rttest.Do(t, file.Close())
	name := fmt.Sprintf("process %d (sleep) has %s open", other.Process.Pid, path)
	_, err := OpenPortAlone(path, 1_000_000, rt.KernelClock(), func() bool { return true })
	rttest.FailsAs(t, err, ErrPortBusy, name)
	rttest.FailsAs(t, rttest.Err(OpenPortWait(path, 1_000_000, rt.KernelClock(), nil)), ErrPort)
	rttest.Do(t, other.Process.Kill())
	_ = other.Wait()
	rttest.FailsAs(t, rttest.Err(OpenPortAlone(path, 1_000_000, rt.KernelClock(), nil)), ErrPort)
}

// The master sees the settings that OpenPort gave the other side.
func TestOpenPortIsRawAtAnyBaud(t *testing.T) {
	for _, baud := range []int{1_000_000, 115_200, 76_800, 1_234_567} {
		master, path := openPty(t)
		p := mustOpen(t, path, baud)
		got := rttest.Must(unix.IoctlGetTermios(master, unix.TCGETS2))(t)
		if int(got.Ospeed) != baud || got.Lflag != 0 || got.Iflag != 0 || got.Oflag != 0 ||
			got.Cflag&unix.CSIZE != unix.CS8 {
			t.Errorf("at %d baud: speed %d, flags %o %o %o %o", baud, got.Ospeed, got.Iflag, got.Oflag, got.Cflag,
				got.Lflag)
		}
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		rttest.Must(p.Write(all))(t)
		back := make([]byte, 512)
		if n, err := unix.Read(master, back); err != nil || !bytes.Equal(back[:n], all) {
			t.Errorf("the other side read % X, %v, want 0 to 255 unchanged", back[:n], err)
		}
		p.Close()
		unix.Close(master)
	}
}

func TestPortWaitsAndReads(t *testing.T) {
	master, path := openPty(t)
	p := mustOpen(t, path, 1_000_000)
	defer p.Close()
	buf := make([]byte, 64)
	rttest.Want(t, rttest.Must(p.Read(buf))(t), 0, "Read of nothing")
	clock := rt.KernelClock()
	start := clock.Now()
	for clock.Now() < start.Add(3*time.Millisecond) {
		rttest.Do(t, p.Wait(start.Add(3*time.Millisecond).Sub(clock.Now())))
	}
	if took := clock.Now().Sub(start); took > time.Second {
		t.Errorf("Wait(3ms) took %v", took)
	}
	rttest.Must(unix.Write(master, []byte("abc")))(t)
	n := 0
	for range 1000 { // a pty delivers bytes in a kernel worker
		rttest.Do(t, p.Wait(time.Second))
		if n, _ = p.Read(buf); n > 0 {
			break
		}
	}
	if string(buf[:n]) != "abc" {
		t.Errorf("Read = %q, want abc", buf[:n])
	}
	unix.Close(master)
	rttest.FailsAs(t, rttest.Err(p.Read(buf)), ErrPortLost)
	rttest.FailsAs(t, rttest.Err(p.Write(buf)), ErrPortLost)
}

// The members of a port's group may open it; without a group that a user can join, the advice is dialout. A
// pseudo-terminal belongs to the user who made it.
func TestDeniedCure(t *testing.T) {
	master, pty := openPty(t)
	defer unix.Close(master)
	link := filepath.Join(t.TempDir(), "so101")
	rttest.Do(t, os.Symlink(pty, link))
	ours := filepath.Join(t.TempDir(), "ttyUSB0")
	rttest.Do(t, errors.Join(os.WriteFile(ours, nil, 0o600), os.Chmod(ours, 0o660)))
	gid := os.Getgid()
	if gid == 0 { // root's ports are of no group that a user can join
		gid = 1
		rttest.Do(t, os.Chown(ours, 0, gid))
	}
	group := rttest.Must(user.LookupGroupId(strconv.Itoa(gid)))(t).Name
	for path, want := range map[string]string{link: "one user", pty: "one user", ours: "the group " + group + " and",
		"/dev/ttyACM0": "dialout", "/dev/null": "dialout"} {
		rttest.FailsAs(t, openError(path, unix.EACCES), ErrPortDenied, want)
	}
}

// A second Close does not close the file that has got the port's descriptor number meanwhile.
func TestCloseTwice(t *testing.T) {
	master, path := openPty(t)
	defer unix.Close(master)
	p := mustOpen(t, path, 1_000_000)
	fd := p.(*serialPort).fd
	rttest.Do(t, p.Close())
	rttest.Do(t, unix.Dup2(master, fd)) // another open file may get the same number
	defer unix.Close(fd)
	rttest.Do(t, p.Close())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		t.Errorf("the other file is closed: %v", err)
	}
}
