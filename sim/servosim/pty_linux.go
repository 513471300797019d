package servosim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pty is a pseudo-terminal in raw mode. The master's end is the wire. The bus keeps a descriptor of
// the client's end open, so that the master gets no EIO and the settings stay when clients come and
// go.
//
// The bus reads with poll(2) on the raw descriptor and not through os.File, because os.File's
// netpoller would put another thread between a request and its reply.
type pty struct {
	name   string
	master int
	slave  int
	bell   int // eventfd; a write to it ends a blocked read
	watch  int // inotify descriptor for clients that come and go; -1: the kernel had no instance left

	poll     [3]unix.PollFd
	left     unix.Timespec
	settings unix.Termios
	clients  int
	events   [eventBuffer]byte
}

const eventBuffer = 16 * unix.SizeofInotifyEvent

// open creates the bell and plugs the terminal in.
func (p *pty) open(baud int) (err error) {
	p.master = -1
	p.slave = -1
	p.watch = -1
	if p.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if err = p.plug(baud); err != nil {
		p.close()
	}
	return err
}

func (p *pty) plug(baud int) (err error) {
	defer func() {
		if err != nil {
			p.unplug()
		}
	}()
	p.clients = 0
	if p.master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open /dev/ptmx: %w", err)
	}
	n, err := unix.IoctlGetInt(p.master, unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("number of the pty: %w", err)
	}
	if err = unix.IoctlSetPointerInt(p.master, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock the pty: %w", err)
	}
	p.name = "/dev/pts/" + strconv.Itoa(n)
	if p.slave, err = unix.Open(p.name, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open %s: %w", p.name, err)
	}
	raw := unix.Termios{Cflag: unix.CS8 | unix.CREAD | unix.CLOCAL | unix.BOTHER, Ispeed: uint32(baud),
		Ospeed: uint32(baud)}
	raw.Cc[unix.VMIN] = 1
	if err = unix.IoctlSetTermios(p.slave, unix.TCSETS2, &raw); err != nil {
		return fmt.Errorf("raw mode on %s: %w", p.name, err)
	}
	if w, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err == nil {
		p.watch = w
		if _, err := unix.InotifyAddWatch(w, p.name, unix.IN_OPEN|unix.IN_CLOSE); err != nil {
			unix.Close(w)
			p.watch = -1
		}
	}
	p.watched()
	return nil
}

// watched sets the descriptors for which read waits; poll(2) ignores a negative descriptor.
func (p *pty) watched() {
	for i, fd := range [...]int{p.master, p.bell, p.watch} {
		p.poll[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
}

func (p *pty) unplug() {
	for _, fd := range [...]*int{&p.master, &p.slave, &p.watch} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	p.watched()
}

func (p *pty) close() {
	p.unplug()
	if p.bell >= 0 {
		unix.Close(p.bell)
		p.bell = -1
	}
}

// read blocks until bytes arrive, writes them into dst and returns their number. It returns 0 when it was woken or the
// timeout has passed, and -1 when the terminal is unusable. With a negative timeout it waits without a limit.
//
//rt:noalloc
func (p *pty) read(dst []byte, timeout time.Duration) int {
	for {
		var left *unix.Timespec
		if timeout >= 0 {
			p.left = unix.NsecToTimespec(int64(timeout))
			left = &p.left
		}
		n, err := unix.Ppoll(p.poll[:], left, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return -1
		case n == 0:
			return 0
		}
		if p.poll[1].Revents != 0 {
			var rung [8]byte
			unix.Read(p.bell, rung[:])
			return 0
		}
		if p.poll[2].Revents != 0 {
			p.clientsChanged()
		}
		if p.poll[0].Revents == 0 {
			continue
		}
		n, err = unix.Read(p.master, dst)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			continue
		case err != nil:
			return -1
		}
		return n
	}
}

// clientsChanged counts the clients that have the terminal open. When the last client has closed the terminal,
// clientsChanged drops unread replies and ends exclusive use, under which only root could open the terminal again. At
// the last close of a real tty the kernel does this. Here the bus's own descriptor prevents it.
//
//rt:noalloc
func (p *pty) clientsChanged() {
	for {
		n, err := unix.Read(p.watch, p.events[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < unix.SizeofInotifyEvent {
			break
		}
		for e := p.events[:n]; len(e) >= unix.SizeofInotifyEvent; {
			switch mask := binary.NativeEndian.Uint32(e[4:]); {
			case mask&unix.IN_OPEN != 0:
				p.clients++
			case mask&unix.IN_CLOSE != 0:
				p.clients--
			}
			e = e[min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(e[12:])), len(e)):]
		}
	}
	if p.clients == 0 {
		unix.IoctlSetInt(p.slave, unix.TCFLSH, unix.TCIFLUSH)
		unix.IoctlSetInt(p.slave, unix.TIOCNXCL, 0)
	}
}

// write returns the number of bytes that the terminal has accepted. It accepts all bytes unless the
// client has left thousands of bytes unread.
//
//rt:noalloc
func (p *pty) write(src []byte) (done int) {
	for done < len(src) {
		n, err := unix.Write(p.master, src[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done
		}
		done += n
	}
	return done
}

// baud returns the rate that the client has set; 0 when it cannot be read.
//
//rt:noalloc
func (p *pty) baud() int {
	// The function of package unix is not used, because it allocates its result on the heap.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.master), unix.TCGETS2, uintptr(unsafe.Pointer(&p.settings)))
	if errno != 0 {
		return 0
	}
	return int(p.settings.Ospeed)
}

func (p *pty) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	unix.Write(p.bell, one[:])
}

// lockName binds an abstract socket whose name consists of the link's folder (as device and inode,
// so that all spellings of the path give one name) and the link's name. When the process ends, the
// kernel frees the socket, and no file is left.
func lockName(path string) (release func(), err error) {
	var dir unix.Stat_t
	if err := unix.Stat(filepath.Dir(path), &dir); err != nil {
		return nil, fmt.Errorf("folder of %s: %w", path, err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%d/%s", dir.Dev, dir.Ino, filepath.Base(path)))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket that holds %s: %w", path, err)
	}
	switch err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@edgert/link/%x", sum)}); {
	case err == unix.EADDRINUSE:
		unix.Close(fd)
		return nil, errLocked
	case err != nil:
		unix.Close(fd)
		return nil, fmt.Errorf("socket that holds %s: %w", path, err)
	}
	return func() { unix.Close(fd) }, nil
}
