package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
)

// A frame of the plain TCP echo is the operation, the length in four bytes, and the payload.
const (
	frameEcho   = 'e' // the other end sends the payload back
	frameFlood  = 'f' // the other end counts the payload
	frameCount  = 'c' // the other end returns the number of counted messages
	frameHeader = 5
)

// tcp opens an end of the plain echo: the same messages without any protocol.
func (e End) tcp(ctx context.Context) (echo, func(), error) {
	addr := strings.TrimPrefix(e.Endpoint, "tcp/")
	if e.Role == "ping" {
		conn, err := (&net.Dialer{Timeout: openLimit}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, nil, fmt.Errorf("bench: %w", err)
		}
		return &tcpPing{conn: conn}, func() { conn.Close() }, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("bench: %w", err)
	}
	go func() {
		conn, err := l.Accept()
		if err == nil {
			tcpPong(conn)
			conn.Close()
		}
	}()
	return nil, func() { l.Close() }, nil
}

// tcpPong answers frames until the other end closes the connection.
func tcpPong(conn net.Conn) {
	in := bufio.NewReaderSize(conn, 64<<10)
	var buf []byte
	var counted uint64
	for {
		head, err := in.Peek(frameHeader)
		if err != nil {
			return
		}
		n := frameHeader + int(binary.LittleEndian.Uint32(head[1:]))
		if n > frameHeader+maxBytes {
			return
		}
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		if _, err := io.ReadFull(in, buf[:n]); err != nil {
			return
		}
		switch buf[0] {
		case frameEcho:
			_, err = conn.Write(buf[:n])
		case frameFlood:
			counted++
		case frameCount:
			_, err = conn.Write(binary.LittleEndian.AppendUint64(nil, counted))
			counted = 0
		}
		if err != nil {
			return
		}
	}
}

type tcpPing struct {
	conn net.Conn
	buf  []byte
}

func (p *tcpPing) write(kind byte, payload []byte) error {
	p.buf = append(p.buf[:0], kind)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(len(payload)))
	p.buf = append(p.buf, payload...)
	_, err := p.conn.Write(p.buf)
	return err
}

func (p *tcpPing) trip(payload []byte) error {
	if err := p.write(frameEcho, payload); err != nil {
		return err
	}
	_, err := io.ReadFull(p.conn, p.buf)
	return err
}

func (p *tcpPing) send(payload []byte) error { return p.write(frameFlood, payload) }

func (p *tcpPing) count() (uint64, error) {
	if err := p.write(frameCount, nil); err != nil {
		return 0, err
	}
	var sum [8]byte
	_, err := io.ReadFull(p.conn, sum[:])
	return binary.LittleEndian.Uint64(sum[:]), err
}
