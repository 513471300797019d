package servo

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// serialPort is a tty with its file descriptor. docs/lab/modules.md and port_library_linux_test.go
// explain why the package does not use go.bug.st/serial.
type serialPort struct {
	closed bool
	fd     int
	poll   [1]unix.PollFd
	left   unix.Timespec
}

const (
	writeWait   = 5 // milliseconds to wait for space in the tty's buffer, far longer than a frame takes
	baudPercent = 2.5
)

// OpenPort opens a serial device for this process alone, raw, 8N1, at any baud rate of the device's
// driver. It fails with ErrPortAbsent, ErrPortBusy, ErrPortDenied or ErrPort.
//
// TIOCEXCL keeps other programs from opening the device, except programs of root. flock also keeps
// out those programs of root that use flock.
func OpenPort(path string, baud int) (Port, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, openError(path, err)
	}
	if err := lock(fd, path); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := setUp(fd, path, baud); err != nil {
		_ = release(fd)
		return nil, err
	}
	lowLatency(fd, path)
	// This discards bytes that a servo at power-up or a modem probe has left in the buffer.
	if err := unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIOFLUSH); err != nil {
		_ = release(fd)
		return nil, fmt.Errorf("servo: flush %s: %w", path, err)
	}
	return &serialPort{fd: fd, poll: [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}}, nil
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EIO):
		return fmt.Errorf("%w: open %s: %w; plug the adapter in, or name another port", ErrPortAbsent, path, err)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: open %s: %w; another program has it: end it", ErrPortBusy, path, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: open %s: %w; %s", ErrPortDenied, path, err, deniedCure(path))
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("servo: open %s: %w", path, err)
	}
	return fmt.Errorf("%w: %s: %w; edge-rt ports lists those that are here", ErrPort, path, err)
}

// deniedCure returns the advice to a user without permission. No group gives access to a
// pseudo-terminal: only its owner can open it.
func deniedCure(path string) string {
	if device, err := filepath.EvalSymlinks(path); err == nil && strings.HasPrefix(device, "/dev/pts/") {
		return "it is a terminal of the user who started edge-rt sim-bus: run both as one user"
	}
	group := "dialout" // of an adapter, on Debian; uucp on Arch
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil && st.Gid != 0 && st.Mode&0o060 == 0o060 {
		if g, err := user.LookupGroupId(strconv.Itoa(int(st.Gid))); err == nil {
			group = g.Name
		}
	}
	return "add the user to the group " + group + " and log in again"
}

func lock(fd int, path string) error {
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("%w: %s is locked by another program; end it first", ErrPortBusy, path)
		}
		return fmt.Errorf("servo: lock %s: %w", path, err)
	}
	return nil
}

// release unlocks and closes a port that lock has locked. Closing alone is not enough. From its fork to its exec, which
// takes long on a busy machine, a child process shares the open file and its lock. And without TIOCNXCL, a pty whose
// other side is open would stay exclusive.
func release(fd int) error {
	_ = unix.IoctlSetInt(fd, unix.TIOCNXCL, 0)
	_ = unix.Flock(fd, unix.LOCK_UN)
	return unix.Close(fd)
}

func setUp(fd int, path string, baud int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS2)
	if err != nil {
		return openError(path, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TIOCEXCL, 0); err != nil {
		return fmt.Errorf("servo: claim %s: %w", path, err)
	}
	t.Iflag = 0
	t.Oflag = 0
	t.Lflag = 0
	// Without HUPCL the modem lines stay as they are: some boards reset on a change.
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.BOTHER
	t.Ispeed, t.Ospeed = uint32(baud), uint32(baud)
	// With VMIN 1 a read of an empty buffer fails with EAGAIN, so that a read of 0 bytes means that
	// the device has gone.
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS2, t); err != nil {
		return fmt.Errorf("servo: set %s to %d baud: %w", path, baud, err)
	}
	// A driver rounds the rate to a rate that its clock allows, without an error.
	got, err := unix.IoctlGetTermios(fd, unix.TCGETS2)
	if err != nil {
		return fmt.Errorf("servo: read back %s: %w", path, err)
	}
	if off := 100 * (float64(got.Ospeed)/float64(baud) - 1); off > baudPercent || off < -baudPercent {
		return fmt.Errorf("servo: %s runs at %d baud, want %d: this adapter cannot, use another", path, got.Ospeed,
			baud)
	}
	return nil
}

// unshared fails with ErrPortBusy while another process has the device open: LeRobot, like most programs, does not lock
// its port. For root, unshared finds all processes, for other users only their own processes. It checks only ttys,
// since a simulator always has its own pseudo-terminal open.
func unshared(path string) error {
	device, err := filepath.EvalSymlinks(path)
	if err != nil || !strings.HasPrefix(filepath.Base(device), "tty") {
		return nil // OpenPort reports why the path is no port
	}
	own := strconv.Itoa(os.Getpid())
	files, _ := filepath.Glob("/proc/[1-9]*/fd/*") // a malformed pattern matches none
	for _, file := range files {
		process := filepath.Dir(filepath.Dir(file))
		if to, _ := os.Readlink(file); to == device && filepath.Base(process) != own {
			name, _ := os.ReadFile(process + "/comm")
			return fmt.Errorf("%w: process %s (%s) has %s open; end it", ErrPortBusy, filepath.Base(process),
				strings.TrimSpace(string(name)), path)
		}
	}
	return nil
}

// The kernel's struct serial_struct in words of 32 bits: 18 on 64-bit machines, fewer on others.
//
// Source: include/uapi/linux/serial.h.
const (
	serialWords     = 18
	serialFlags     = 4 // index of its flags
	asyncLowLatency = 1 << 13
)

// lowLatency makes the driver deliver bytes at once. Otherwise an FTDI adapter collects bytes for
// 16 ms. Other drivers and ptys refuse the request, and do not need it.
func lowLatency(fd int, path string) {
	var s [serialWords]int32
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGSERIAL,
		uintptr(unsafe.Pointer(&s))); errno == 0 {
		s[serialFlags] |= asyncLowLatency
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSSERIAL, uintptr(unsafe.Pointer(&s)))
	}
	if device, err := filepath.EvalSymlinks(path); err == nil {
		_ = os.WriteFile("/sys/bus/usb-serial/devices/"+filepath.Base(device)+"/latency_timer", []byte("1"), 0)
	}
}

//rt:noalloc
func (p *serialPort) Write(b []byte) (int, error) {
	sent := 0
	for tries := 0; sent < len(b); {
		n, err := rawTransfer(unix.SYS_WRITE, p.fd, b[sent:])
		if n > 0 {
			sent += n
			continue
		}
		if err == unix.EINTR {
			continue
		}
		if err != unix.EAGAIN || tries == writeWait {
			return sent, ErrPortLost
		}
		tries++
		p.poll[0].Events = unix.POLLOUT
		_ = p.Wait(time.Millisecond)
		p.poll[0].Events = unix.POLLIN
	}
	return sent, nil
}

//rt:noalloc
func (p *serialPort) Read(b []byte) (int, error) {
	for {
		n, err := rawTransfer(unix.SYS_READ, p.fd, b)
		switch {
		case n > 0:
			return n, nil
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, nil
		default: // 0 after a hang-up, EIO when the other end of a pty is closed
			return 0, ErrPortLost
		}
	}
}

// rawTransfer is read(2) or write(2) on a non-blocking descriptor, as a system call without notice
// to Go's scheduler: otherwise the runtime's monitor could take away the thread's P in these
// microseconds, and the thread would have to wait for another P. The error is 0 or an errno.
//
//rt:noalloc
func rawTransfer(trap uintptr, fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// Wait uses ppoll, whose timeout is not rounded to milliseconds. A signal ends the wait early; the caller has
// the deadline and calls Wait again. A hang-up also ends the wait, and the next Read reports it.
//
//rt:noalloc
func (p *serialPort) Wait(timeout time.Duration) error {
	p.left = unix.NsecToTimespec(int64(timeout))
	_, err := unix.Ppoll(p.poll[:], &p.left, nil)
	if err != nil && err != unix.EINTR {
		return ErrPortLost
	}
	return nil
}

// Close closes the port. A second call does nothing, because another file may have the descriptor's number
// by then.
func (p *serialPort) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	return release(p.fd)
}
