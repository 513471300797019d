package link

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// unsentBytes is how much the kernel may hold that it has not sent yet: what
// waits there can no longer be replaced by something newer.
const unsentBytes = 16 << 10

// Tune sets a connection up for messages whose newest matters: no Nagle, little
// unsent in the kernel, quick and steady retransmission after a gap in the
// network, and an end when the peer acknowledges nothing for too long. Errors
// are ignored: an old kernel or a unix socket is merely slower.
func Tune(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	tcp.SetNoDelay(true)
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(DefaultStall/time.Millisecond))
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS, 1)
	})
}

// room waits until the kernel holds fewer than unsentBytes unsent, within the
// connection's write deadline. Owner: the writer.
type room struct {
	wait func(func(uintptr) bool) error
	poll func(uintptr) bool
	set  [1]unix.PollFd
}

func (r *room) init(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
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

// until returns when there is room, or with the connection's error.
//
//rt:noalloc
func (r *room) until() error {
	if r.wait == nil {
		return nil
	}
	return r.wait(r.poll)
}
