package link

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

const (
	// baseBuffer is the size of a link's receive buffer until a longer batch arrives.
	baseBuffer = 2 + maxInitiatorBatch
	// readAhead is the number of bytes that the read buffer may hold beyond one batch, so that one
	// system call reads several small batches.
	readAhead = 16 << 10
)

// rawConn returns the connection below TLS, or conn itself.
func rawConn(conn net.Conn) net.Conn {
	for {
		above, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = above.NetConn()
	}
}

// stream cuts a connection into batches. Owner: the reader.
type stream struct {
	conn  net.Conn
	buf   []byte
	r, w  int // the unread bytes are buf[r:w]
	limit int // largest batch in bytes

	mem    *account // the account from which buf grows
	maxBuf int      // largest size of buf in bytes; 0: it does not grow

	lease      time.Duration // longest silence of the peer; 0: the caller sets the connection's deadlines
	ackTimeout time.Duration // longest time for which the peer's system may acknowledge no byte of ours
	acks       ackMonitor

	expire     func(now time.Time) // called from time to time while batches arrive
	lastExpire time.Time           // when expire was last called
}

// next lends the next batch, without its length, until the next call. An empty batch is legal.
func (s *stream) next() ([]byte, error) {
	if err := s.fill(2); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint16(s.buf[s.r:]))
	if n > s.limit {
		return nil, codec.ErrRange
	}
	if err := s.fill(2 + n); err != nil {
		return nil, err
	}
	b := s.buf[s.r+2 : s.r+2+n]
	s.r += 2 + n
	return b, nil
}

// fill reads from the connection until the buffer has n bytes that were not yet consumed.
func (s *stream) fill(n int) error {
	if s.r == s.w {
		s.r, s.w = 0, 0
	}
	if s.r > 0 && s.r+n > len(s.buf) {
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	}
	for s.w-s.r < n {
		// The buffer grows only when it is full of bytes that have arrived, never because of the number in a length
		// field.
		if s.w == len(s.buf) && !s.grow() {
			return errMemory
		}
		m, err := s.read(s.buf[s.w:])
		s.w += m
		if err != nil && s.w-s.r < n {
			if errors.Is(err, io.EOF) && s.w > s.r {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// grow enlarges the buffer from its first to its last size in two steps.
func (s *stream) grow() bool {
	size := min(4*len(s.buf), s.maxBuf)
	if size <= len(s.buf) {
		return false
	}
	s.mem.throttle()
	if !s.mem.reserve(size - len(s.buf)) {
		return false
	}
	s.buf = append(make([]byte, 0, size), s.buf...)[:size]
	return true
}

// read waits for bytes until the lease ends. It gives up earlier if the peer's system has acknowledged no byte of ours
// for ackTimeout, because a robot cannot always wait for the end of a lease.
func (s *stream) read(p []byte) (int, error) {
	if s.lease == 0 {
		return s.conn.Read(p)
	}
	for waited := time.Duration(0); ; {
		slice := min(s.lease-waited, s.ackTimeout/ackKeepAlives)
		now := time.Now()
		if now.Sub(s.lastExpire) > time.Second {
			s.expire(now)
			s.lastExpire = now
		}
		s.conn.SetReadDeadline(now.Add(slice))
		n, err := s.conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if waited += slice; waited >= s.lease {
			return 0, ErrExpired
		}
		if s.acks.unackedFor() >= s.ackTimeout {
			return 0, ErrUnconfirmed
		}
	}
}

// inherit copies the bytes that the handshake's stream has read but not consumed.
func (s *stream) inherit(from *stream) { s.w = copy(s.buf, from.buf[from.r:from.w]) }
