package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// connectTimeout is the longest time that the system gets to connect before we begin a new attempt. The system repeats
// a lost SYN 1, 3 and 7 seconds after the first, which is too seldom when the network has just returned.
const connectTimeout = 3 * time.Second

// Dial connects, TLS handshake included. It gives up when ctx ends. If prepare is not nil, Dial calls it with the
// connection before the TLS handshake.
func (e Endpoint) Dial(ctx context.Context, prepare func(net.Conn)) (net.Conn, error) {
	network := "tcp"
	var cfg *tls.Config
	switch e.Protocol {
	case Unix:
		network = "unix"
	case TLS:
		host, _, _ := net.SplitHostPort(e.Address)
		var err error
		if cfg, err = e.Security.clientConfig(host); err != nil {
			return nil, err
		}
	}
	d := net.Dialer{KeepAlive: -1, Timeout: connectTimeout}
	conn, err := d.DialContext(ctx, network, e.Address)
	if err != nil {
		return nil, e.Unreachable(err)
	}
	if prepare != nil {
		prepare(conn)
	}
	if cfg == nil {
		return conn, nil
	}
	secure := tls.Client(conn, cfg)
	limited, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(limited); err != nil {
		conn.Close()
		return nil, e.tlsError(err, time.Now())
	}
	return secure, nil
}

// Unreachable returns the error for an endpoint that does not answer. It contains the system's error without the
// wrappers of package net.
func (e Endpoint) Unreachable(cause error) error {
	var sys *os.SyscallError
	var op *net.OpError
	switch {
	case errors.Is(cause, context.DeadlineExceeded), errors.Is(cause, os.ErrDeadlineExceeded):
		cause = errors.New("no answer in time")
	case errors.Is(cause, context.Canceled):
		cause = errors.New("no answer until the interruption")
	case errors.Is(cause, syscall.EINVAL) && strings.Contains(e.Address, "fe80:"):
		cause = errors.New("a link-local address needs this machine's interface: [fe80::1%eth0]")
	case errors.As(cause, &sys):
		cause = sys.Err
	case errors.As(cause, &op):
		cause = op.Err
	}
	return fmt.Errorf("wire/zenoh: nobody answers at %s: %w", e, cause)
}
