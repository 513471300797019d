//go:build !linux

package link

import (
	"net"
	"time"
)

// Tune does what this system offers without its own calls.
func Tune(conn net.Conn) {
	if tcp, ok := rawConn(conn).(*net.TCPConn); ok {
		tcp.SetNoDelay(true)
	}
}

// sendSpace does not wait here: the kernel's own buffer is the bound.
type sendSpace struct{}

func (*sendSpace) init(net.Conn) {}
func (*sendSpace) await() error  { return nil }

// ackMonitor is not taken here: the peer's lease is what remains.
type ackMonitor struct{}

func (*ackMonitor) init(net.Conn)             {}
func (*ackMonitor) unackedFor() time.Duration { return 0 }
