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

// sendSpace does not wait on this system: only the kernel's buffer bounds the unsent bytes.
type sendSpace struct{}

func (*sendSpace) init(net.Conn) {}
func (*sendSpace) await() error  { return nil }

// ackMonitor measures nothing on this system: only the peer's lease ends a silent link.
type ackMonitor struct{}

func (*ackMonitor) init(net.Conn)             {}
func (*ackMonitor) unackedFor() time.Duration { return 0 }
