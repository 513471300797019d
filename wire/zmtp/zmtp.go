// Package zmtp is the client's end of ZeroMQ's request-reply pattern: a REQ socket over TCP without
// security, as pyzmq's REP sockets serve it. One request is under way at a time.
//
// Source: RFC 23 (ZMTP 3.0), RFC 28 (request-reply).
package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// ErrProtocol marks a peer that does not speak ZMTP 3 as a REP or ROUTER socket does.
var ErrProtocol = errors.New("zmtp")

// The greeting of 64 bytes: signature, version, mechanism, as-server, filler.
const (
	greetingBytes = 64
	signature     = "\xFF\x00\x00\x00\x00\x00\x00\x00\x01\x7F"
	versionAt     = len(signature)
	mechanismAt   = versionAt + 2
	mechanismLen  = 20
	version       = 3
	null          = "NULL"
	ready         = "\x04\x19\x05READY\x0BSocket-Type\x00\x00\x00\x03REQ" // our command after the greeting
)

// Bits of a frame's flags.
const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1
	flagCommand = 1 << 2
	flagsKnown  = flagMore | flagLong | flagCommand
)

// Bounds of the other frames that a peer may send.
const (
	commandMost   = 4 << 10
	envelopeMost  = 1 << 10 // empty frames and commands that may come before a reply
	handshakeTime = 5 * time.Second
)

// Conn is one connection to a server.
//
// Owner: one goroutine. Any goroutine may call Close.
type Conn struct {
	net.Conn
	limit int
	frame [9]byte
	out   net.Buffers
}

// Dial connects to address, such as tcp://127.0.0.1:5555, and exchanges the greetings. A reply may have at most limit
// bytes.
func Dial(ctx context.Context, address string, limit int) (*Conn, error) {
	host, ok := strings.CutPrefix(address, "tcp://")
	if !ok {
		return nil, fmt.Errorf("%w: the address is '%s', want tcp://HOST:PORT", ErrProtocol, address)
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", strings.TrimSuffix(host, "/"))
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: raw, limit: limit}
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	err = c.greet()
	if !stop() {
		err = ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: no greeting within %v", ErrProtocol, handshakeTime)
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) greet() error {
	var own, peer [greetingBytes]byte
	copy(own[:], signature)
	own[versionAt] = version
	copy(own[mechanismAt:], null)
	if _, err := c.Write(own[:]); err != nil {
		return err
	}
	n, err := io.ReadFull(c, peer[:])
	// The eight bytes between the signature's first and last byte may have any value.
	if begins := peer[:min(n, mechanismAt)]; n > 0 && peer[0] != own[0] || n >= versionAt &&
		peer[versionAt-1] != own[versionAt-1] || n > versionAt && peer[versionAt] < version {
		return fmt.Errorf("%w: the peer begins with % x, want a greeting of ZMTP 3", ErrProtocol, begins)
	}
	if err != nil {
		return cut(err, n, greetingBytes, "its greeting")
	}
	mechanism := string(bytes.TrimRight(peer[mechanismAt:][:mechanismLen], "\x00"))
	if mechanism != null {
		return fmt.Errorf("%w: the peer wants the security mechanism %q, want %s", ErrProtocol, mechanism, null)
	}
	if _, err := c.Write([]byte(ready)); err != nil {
		return err
	}
	flags, body, err := c.next()
	if err != nil {
		return fmt.Errorf("after its greeting: %w", err)
	}
	name, properties := cutCommand(body)
	if flags&flagCommand == 0 || name != "READY" {
		return fmt.Errorf("%w: the peer answers the greeting with %.80q, want READY", ErrProtocol, body)
	}
	if kind := socketType(properties); kind != "REP" && kind != "ROUTER" {
		return fmt.Errorf("%w: the peer is a %.20q socket, want REP", ErrProtocol, kind)
	}
	return nil
}

// cutCommand splits a command into its name and the rest. The name is "" when the command is malformed.
func cutCommand(b []byte) (name string, rest []byte) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:]
}

// socketType returns the property Socket-Type of a READY command, or "" when it is missing.
func socketType(b []byte) string {
	for len(b) > 0 {
		name, rest := cutCommand(b)
		if name == "" || len(rest) < 4 {
			return ""
		}
		n := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; uint64(n) > uint64(len(rest)) {
			return ""
		}
		if strings.EqualFold(name, "Socket-Type") {
			return string(rest[:n])
		}
		b = rest[n:]
	}
	return ""
}

// Request sends body and returns the reply. When ctx ends first, it returns the error of ctx. After an error close the
// connection and dial again, because the peer may be in another state of the request-reply pattern.
func (c *Conn) Request(ctx context.Context, body []byte) ([]byte, error) {
	deadline, _ := ctx.Deadline() // the zero time means no deadline
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.reply(false); err != nil {
		return nil, reason(ctx, err)
	}
	head := append(c.frame[:0], flagMore, 0) // the empty frame that ends the envelope
	if len(body) > 0xFF {
		head = binary.BigEndian.AppendUint64(append(make([]byte, 0, 11), flagMore, 0, flagLong), uint64(len(body)))
	} else {
		head = append(head, 0, byte(len(body)))
	}
	c.out = append(c.out[:0], head, body)
	buffers := c.out
	if _, err := buffers.WriteTo(c.Conn); err != nil {
		return nil, reason(ctx, err)
	}
	reply, err := c.reply(true)
	return reply, reason(ctx, err)
}

// reason returns the error of ctx if err is due to the deadline of ctx, which is also that of the connection; otherwise
// it returns err. The connection's deadline may pass a moment before ctx ends.
func reason(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.DeadlineExceeded
	}
	return err
}

// reply reads the reply to a request. Without a request (asked is false) it reads the frames that have arrived since
// the last reply, and refuses a message. The pattern has no ids, so the message would count as the reply to the next
// request.
func (c *Conn) reply(asked bool) ([]byte, error) {
	for range envelopeMost {
		if !asked && !c.waiting() {
			return nil, nil
		}
		flags, body, err := c.next()
		switch {
		case err != nil:
			return nil, err
		case flags&flagCommand != 0:
			if err := c.command(body); err != nil {
				return nil, err
			}
		case !asked:
			return nil, fmt.Errorf("%w: the peer sent %d bytes that no request asked for", ErrProtocol, len(body))
		case flags&flagMore == 0:
			return body, nil
		case len(body) > 0:
			return nil, fmt.Errorf("%w: the reply has more than one frame", ErrProtocol)
		}
	}
	return nil, fmt.Errorf("%w: %d frames without a reply", ErrProtocol, envelopeMost)
}

// waiting reports whether bytes of the peer have arrived.
func (c *Conn) waiting() bool {
	n := 0
	if raw, err := c.Conn.(syscall.Conn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // an error: the connection is closed, and the next write fails
			n, _, _ = syscall.Recvfrom(int(fd), c.frame[:1], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		})
	}
	return n > 0
}

// command answers a PING command, and returns an error for an ERROR command.
func (c *Conn) command(body []byte) error {
	switch name, rest := cutCommand(body); name {
	case "PING": // the body is a time to live of two bytes, and a context, which the PONG repeats
		pong := append([]byte("\x04PONG"), rest[min(2, len(rest)):min(2+16, len(rest))]...)
		_, err := c.Write(append([]byte{flagCommand, byte(len(pong))}, pong...))
		return err
	case "ERROR":
		return fmt.Errorf("%w: the peer reports %.200q", ErrProtocol, rest)
	}
	return nil // RFC 23 requires that other commands are ignored
}

// next reads a frame. It allocates memory only as bytes arrive, so that an announced length alone allocates nothing.
func (c *Conn) next() (flags byte, body []byte, err error) {
	head := c.frame[:2]
	if n, err := io.ReadFull(c, head); err != nil {
		return 0, nil, cut(err, n, len(head), "a frame's head")
	}
	flags = head[0]
	size := uint64(head[1])
	if flags&flagLong != 0 {
		if n, err := io.ReadFull(c, c.frame[2:]); err != nil {
			return 0, nil, cut(err, len(head)+n, len(c.frame), "a frame's head")
		}
		size = binary.BigEndian.Uint64(c.frame[1:])
	}
	limit := uint64(c.limit)
	if flags&flagCommand != 0 {
		limit = commandMost
	}
	if flags&^flagsKnown != 0 || size > limit {
		return 0, nil, fmt.Errorf("%w: a frame has flags %#x and %d bytes, want at most %d", ErrProtocol, flags, size,
			limit)
	}
	var buf bytes.Buffer
	n, err := io.CopyN(&buf, c, int64(size))
	return flags, buf.Bytes(), cut(err, int(n), int(size), "a frame")
}

// cut returns an error that names the place in the stream where the peer ended the connection.
func cut(err error, n, of int, part string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the peer ended the connection after %d of %d bytes of %s", n, of, part)
	}
	return err
}
