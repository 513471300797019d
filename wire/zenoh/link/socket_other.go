//go:build !linux

package link

import (
	"net"
	"time"
)

// Tune does what this system offers without its own calls.
func Tune(conn net.Conn) {
	if tcp, ok := bare(conn).(*net.TCPConn); ok {
		tcp.SetNoDelay(true)
	}
}

// room does not wait here: the kernel's own buffer is the bound.
type room struct{}

func (*room) init(net.Conn) {}
func (*room) until() error  { return nil }

// pulse is not taken here: the peer's lease is what remains.
type pulse struct{}

func (*pulse) init(net.Conn)         {}
func (*pulse) silent() time.Duration { return 0 }
