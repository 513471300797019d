package link

import (
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// unsentBytes bounds the unsent bytes in the kernel. Newer messages can no longer replace these bytes.
	unsentBytes = 16 << 10

	// unixBuffer is the size of a unix socket's send buffer. For such a socket the kernel has no
	// count of unsent bytes. The kernel doubles this size, counts its own bookkeeping in it, and
	// reports the socket as writable when less than a quarter of it is in use.
	unixBuffer = 4 * unsentBytes
)

// Tune configures a connection for messages of which only the newest matters. It switches Nagle's algorithm off, keeps
// few unsent bytes in the kernel, makes retransmissions steady, and lets the connection end when the peer acknowledges
// no byte for too long. It ignores errors, because the connection also works without these options, although more
// slowly.
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

// sendSpace waits until the kernel holds fewer than unsentBytes unsent bytes, or until the connection's write deadline.
// Owner: the writer.
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
	// If poll reports no room, the runtime's poller waits until the kernel signals that there is room.
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

// ackMonitor measures for how long the peer's system has acknowledged no byte. Owner: the reader.
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

// unackedFor returns for how long bytes have been under way without an acknowledgement. It returns 0 if all bytes have
// arrived, or if the peer acknowledges but has no room.
func (p *ackMonitor) unackedFor() time.Duration {
	if p.control == nil || p.control(p.read) != nil || p.errno != 0 || p.info.Unacked == 0 || p.info.Probes > 0 {
		return 0
	}
	return time.Duration(p.info.Last_ack_recv) * time.Millisecond
}

// syscallConn returns the connection below TLS, or nil if it has no descriptor.
func syscallConn(conn net.Conn) syscall.RawConn {
	if c, ok := rawConn(conn).(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}
