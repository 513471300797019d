package link

import (
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// unsentBytes is how much the kernel may hold that it has not sent yet: what
	// waits there can no longer be replaced by something newer.
	unsentBytes = 16 << 10

	// unixBuffer is the send buffer of a unix socket, where nothing is unsent:
	// the kernel doubles it, counts its own bookkeeping in, and finds room when
	// less than a quarter is in use.
	unixBuffer = 4 * unsentBytes
)

// Tune sets a connection up for messages whose newest matters: no Nagle, little
// unsent in the kernel, quick and steady retransmission after a gap in the
// network, and an end when the peer acknowledges nothing for too long. Errors
// are ignored: an old kernel is merely slower.
func Tune(conn net.Conn) {
	switch c := rawConn(conn).(type) {
	case *net.UnixConn:
		c.SetWriteBuffer(unixBuffer)
	case *net.TCPConn:
		c.SetNoDelay(true)
		raw, err := c.SyscallConn()
		if err != nil {
			return
		}
		raw.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(DefaultStall/time.Millisecond))
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS, 1)
		})
	}
}

// sendSpace waits until the kernel holds fewer than unsentBytes unsent, within the
// connection's write deadline. Owner: the writer.
type sendSpace struct {
	wait func(func(uintptr) bool) error
	poll func(uintptr) bool
	set  [1]unix.PollFd
}

func (r *sendSpace) init(conn net.Conn) {
	raw := syscallConn(conn)
	if raw == nil {
		return
	}
	r.wait = raw.Write
	// A negative answer of poll asks the kernel for an edge when there is room,
	// which is what the runtime's poller then sleeps on.
	r.poll = func(fd uintptr) bool {
		r.set[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
		n, err := unix.Poll(r.set[:], 0)
		return err != nil && err != unix.EINTR || n > 0
	}
}

// await returns when there is room, or with the connection's error.
//
//rt:noalloc
func (r *sendSpace) await() error {
	if r.wait == nil {
		return nil
	}
	return r.wait(r.poll)
}

// ackMonitor tells how long the other end's system has confirmed nothing. Owner: the
// reader.
type ackMonitor struct {
	control func(func(uintptr)) error
	read    func(uintptr)
	info    unix.TCPInfo
	errno   syscall.Errno
}

func (p *ackMonitor) init(conn net.Conn) {
	raw := syscallConn(conn)
	if _, ok := rawConn(conn).(*net.TCPConn); !ok || raw == nil {
		return
	}
	p.control = raw.Control
	p.read = func(fd uintptr) {
		size := uint32(unsafe.Sizeof(p.info))
		_, _, p.errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_TCP, unix.TCP_INFO,
			uintptr(unsafe.Pointer(&p.info)), uintptr(unsafe.Pointer(&size)), 0)
	}
}

// unackedFor is how long something has been under way without any acknowledgement.
// It is 0 when all has arrived, and for a peer that answers and has no room:
// that one is slow, not gone.
func (p *ackMonitor) unackedFor() time.Duration {
	if p.control == nil || p.control(p.read) != nil || p.errno != 0 || p.info.Unacked == 0 || p.info.Probes > 0 {
		return 0
	}
	return time.Duration(p.info.Last_ack_recv) * time.Millisecond
}

// syscallConn is the way to a connection's descriptor, nil when it has none.
func syscallConn(conn net.Conn) syscall.RawConn {
	if c, ok := rawConn(conn).(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}
