//go:build !linux

package link

import (
	"net"
	"time"
)

// Tune sets the options that package net offers.
func Tune(conn net.Conn) {
	if tcp, ok := rawConn(conn).(*net.TCPConn); ok {
		tcp.SetNoDelay(true)
	}
}

// sendSpace does not wait here: the kernel's own buffer is the bound.
type sendSpace struct{}

func (*sendSpace) init(net.Conn) {}
func (*sendSpace) await() error  { return nil }

// ackMonitor measures nothing here: only the peer's lease ends a silent link.
type ackMonitor struct{}

func (*ackMonitor) init(net.Conn)             {}
func (*ackMonitor) unackedFor() time.Duration { return 0 }
