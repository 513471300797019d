//go:build !linux

package link

import "net"

// Tune does what this system offers without its own calls.
func Tune(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetNoDelay(true)
	}
}

// room does not wait here: the kernel's own buffer is the bound.
type room struct{}

func (*room) init(net.Conn) {}
func (*room) until() error  { return nil }
