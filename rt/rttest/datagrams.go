package rttest

import (
	"net"
	"syscall"
	"testing"
)

// Datagrams reads the datagrams that have arrived at l, the socket of a service manager. It does not wait: a datagram
// to a Unix socket has arrived when its send returns.
func Datagrams(t testing.TB, l *net.UnixConn) (texts []string) {
	t.Helper()
	socket := Must(l.SyscallConn())(t)
	buf := make([]byte, 4096)
	for {
		var n int
		var err error
		Do(t, socket.Read(func(fd uintptr) bool {
			n, err = syscall.Read(int(fd), buf)
			return true
		}))
		if err == syscall.EAGAIN {
			return texts
		}
		Do(t, err)
		texts = append(texts, string(buf[:n]))
	}
}
