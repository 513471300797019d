package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// Largest batches of a handshake, in bytes. An initiator may receive a large cookie from any acceptor; an acceptor
// receives only its own cookie.
const (
	maxInitiatorBatch = 8 << 10
	maxAcceptorBatch  = 1 << 10
	cookieBytes       = 16
	shownBytes        = 40 // bytes of another protocol that an error quotes
)

// Dial opens a link as the initiator. It gives up when ctx ends.
func Dial(ctx context.Context, conn net.Conn, cfg Config) (*Link, error) {
	defer limitHandshake(ctx, conn)()
	s := &stream{conn: conn, buf: make([]byte, 2+maxInitiatorBatch), limit: maxInitiatorBatch}
	ours := cfg.offer()
	if err := s.write(codec.AppendInit(prefix(), &ours)); err != nil {
		return nil, err
	}
	batch, err := s.first()
	switch {
	case errors.Is(err, ErrForeign):
		return nil, err
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return nil, fmt.Errorf("zenoh: wait for InitAck: %w (it ended the connection at once: where it listens on "+
			"tls/, dial it as tls/; otherwise its log says why)", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("zenoh: wait for InitAck: %w (it took the connection: another program than a server or "+
			"router listens there, or it hangs)", err)
	case err != nil:
		return nil, fmt.Errorf("zenoh: wait for InitAck: %w", err)
	}
	theirs, cookie, err := parseInitAck(batch, &ours)
	if err != nil {
		s.refuse(codec.CloseInvalid)
		return nil, err
	}
	sn := randomSN(ours.Resolution.Min(theirs.Resolution))
	syn := codec.Open{LeaseMS: uint64(cfg.Lease.Milliseconds()), SN: sn, Cookie: cookie}
	if err := s.write(codec.AppendOpen(prefix(), &syn)); err != nil {
		return nil, err
	}
	if batch, err = s.next(); err != nil {
		return nil, fmt.Errorf("zenoh: wait for OpenAck: %w", err)
	}
	ack, err := parseOpen(batch, true)
	if err != nil {
		s.refuse(codec.CloseInvalid)
		return nil, err
	}
	l := open(conn, cfg, &ours, &theirs, time.Duration(ack.LeaseMS)*time.Millisecond, sn, ack.SN)
	l.in.stream.inherit(s)
	return l, nil
}

// parseInitAck returns the acceptor's Init and cookie, with copies of the slices that are used after the batch.
func parseInitAck(batch []byte, ours *codec.Init) (theirs codec.Init, cookie []byte, err error) {
	c := codec.NewCursor(batch)
	if err := expect(&c, codec.IDInit, "InitAck"); err != nil {
		return theirs, nil, err
	}
	if theirs, err = codec.ParseInit(&c); err != nil {
		return theirs, nil, err
	}
	switch {
	case !theirs.Ack:
		err = errors.New("zenoh: got InitSyn, want InitAck")
	case theirs.Role == codec.Client:
		err = errors.New("zenoh: both ends are clients, connect to a router or a listener")
	case theirs.Resolution != ours.Resolution.Min(theirs.Resolution):
		err = fmt.Errorf("zenoh: peer raised the resolution to %#x, want at most %#x", theirs.Resolution,
			ours.Resolution)
	case theirs.Batch < minBatch:
		err = fmt.Errorf("zenoh: peer offers batches of %d bytes, want at least %d", theirs.Batch, minBatch)
	case theirs.Patch > ours.Patch:
		err = fmt.Errorf("zenoh: peer raised the patch level to %d, want at most %d", theirs.Patch, ours.Patch)
	}
	theirs.ZID = bytes.Clone(theirs.ZID)
	return theirs, bytes.Clone(theirs.Cookie), err
}

// Accept opens a link as the acceptor. Once the handshake has identified the peer, admit decides
// whether it may join. Accept sends the reason of a refusal to the peer.
func Accept(conn net.Conn, cfg Config, admit func(Remote) (refusal codec.Reason, ok bool)) (*Link, error) {
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	defer conn.SetDeadline(time.Time{})
	s := &stream{conn: conn, buf: make([]byte, 2+maxAcceptorBatch), limit: maxAcceptorBatch}
	theirs, err := s.acceptInit()
	if err != nil {
		return nil, err
	}
	var cookie [cookieBytes]byte
	rand.Read(cookie[:])
	ours := codec.Init{
		Ack:        true,
		Role:       cfg.Role,
		ZID:        cfg.ZID,
		Resolution: codec.DefaultResolution.Min(theirs.Resolution),
		Batch:      theirs.Batch,
		Cookie:     cookie[:],
		QoS:        theirs.QoS,
		Patch:      min(1, theirs.Patch),
	}
	if err := s.write(codec.AppendInit(prefix(), &ours)); err != nil {
		return nil, err
	}
	batch, err := s.next()
	if err != nil {
		return nil, fmt.Errorf("zenoh: wait for OpenSyn: %w", err)
	}
	syn, err := parseOpen(batch, false)
	if err == nil && subtle.ConstantTimeCompare(syn.Cookie, cookie[:]) != 1 {
		err = errors.New("zenoh: OpenSyn without our cookie")
	}
	if err != nil {
		s.refuse(codec.CloseInvalid)
		return nil, err
	}
	if refusal, ok := admit(Remote{ZID: string(theirs.ZID), Role: theirs.Role}); !ok {
		s.refuse(refusal)
		return nil, fmt.Errorf("zenoh: refused %v: %v", conn.RemoteAddr(), refusal)
	}
	sn := randomSN(ours.Resolution)
	ack := codec.Open{Ack: true, LeaseMS: uint64(cfg.Lease.Milliseconds()), SN: sn}
	if err := s.write(codec.AppendOpen(prefix(), &ack)); err != nil {
		return nil, err
	}
	l := open(conn, cfg, &ours, &theirs, time.Duration(syn.LeaseMS)*time.Millisecond, sn, syn.SN)
	l.in.stream.inherit(s)
	return l, nil
}

func (s *stream) acceptInit() (codec.Init, error) {
	batch, err := s.first()
	if errors.Is(err, ErrForeign) {
		return codec.Init{}, err
	} else if err != nil {
		return codec.Init{}, fmt.Errorf("zenoh: wait for InitSyn: %w", err)
	}
	c := codec.NewCursor(batch)
	if err := expect(&c, codec.IDInit, "InitSyn"); err != nil {
		s.refuse(codec.CloseInvalid)
		return codec.Init{}, err
	}
	theirs, err := codec.ParseInit(&c)
	switch {
	case err != nil:
	case theirs.Ack:
		err = errors.New("zenoh: got InitAck, want InitSyn")
	case theirs.Batch < minBatch:
		err = fmt.Errorf("zenoh: got an offer of %d-byte batches, want at least %d", theirs.Batch, minBatch)
	}
	if err != nil {
		s.refuse(codec.CloseInvalid)
	}
	theirs.ZID = bytes.Clone(theirs.ZID)
	return theirs, err
}

// ErrForeign marks bytes of a protocol other than Zenoh.
var ErrForeign = errors.New("zenoh: not Zenoh")

// first returns a connection's first batch, as next does. It refuses bytes that begin like TLS or HTTP at once. Read as
// a length, they would announce a batch that never arrives, and no first batch is that long.
func (s *stream) first() ([]byte, error) {
	if err := s.fill(2); err != nil {
		return nil, err
	}
	switch begin := [2]byte(s.buf[s.r : s.r+2]); begin {
	case [2]byte{0x16, 0x03}: // a handshake record
		return nil, fmt.Errorf("%w: it speaks TLS, and this endpoint is tcp/: it must dial tcp/HOST:PORT, or the "+
			"listener be tls/", ErrForeign)
	case [2]byte{0x15, 0x03}: // an alert record
		return nil, fmt.Errorf("%w: it speaks TLS: dial it as tls/, with its root CA (--tls-ca, root_ca_certificate)",
			ErrForeign)
	case [2]byte([]byte("HT")), [2]byte([]byte("GE")), [2]byte([]byte("PO")), [2]byte([]byte("PU")),
		[2]byte([]byte("HE")):
		return nil, fmt.Errorf("%w: it speaks HTTP: give each side the port of robots (zenoh.listen_endpoints) and "+
			"not one of a web page (health_port, --http)", ErrForeign)
	}
	batch, err := s.next()
	if errors.Is(err, codec.ErrRange) {
		err = fmt.Errorf("%w: it begins with %q, want a message of at most %d bytes: another program uses this port",
			ErrForeign, s.buf[s.r:min(s.w, s.r+shownBytes)], s.limit)
	}
	return batch, err
}

func parseOpen(batch []byte, ack bool) (codec.Open, error) {
	c := codec.NewCursor(batch)
	if err := expect(&c, codec.IDOpen, "Open"); err != nil {
		return codec.Open{}, err
	}
	m, err := codec.ParseOpen(&c)
	if err != nil {
		return m, err
	}
	if m.Ack != ack {
		return m, errors.New("zenoh: Open from the wrong side")
	}
	if d := time.Duration(m.LeaseMS) * time.Millisecond; d < minLease || d > maxLease {
		return m, fmt.Errorf("zenoh: peer's lease is %v, want %v to %v", d, minLease, maxLease)
	}
	return m, nil
}

// expect checks that the next message has this id. If a Close arrives instead, expect returns it as an error.
func expect(c *codec.Cursor, id byte, what string) error {
	h, ok := c.Peek()
	switch {
	case ok && codec.ID(h) == id:
		return nil
	case ok && codec.ID(h) == codec.IDClose:
		reason, err := codec.ParseClose(c)
		if err != nil {
			return err
		}
		return reasonError("wait for "+what, reason)
	}
	return fmt.Errorf("zenoh: got message %#x, want %s", h, what)
}

// limitHandshake makes a handshake end when ctx ends or the timeout passes. lift removes both limits.
func limitHandshake(ctx context.Context, conn net.Conn) (lift func()) {
	deadline := time.Now().Add(handshakeTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			conn.SetDeadline(time.Time{})
		}
	}
}

func randomSN(r codec.Resolution) uint32 {
	var b [4]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint32(b[:]) & r.Mask()
}

// prefix returns the beginning of a batch: two bytes for the length, which write fills in.
func prefix() []byte { return make([]byte, 2, 128) }

func (s *stream) write(batch []byte) error {
	binary.LittleEndian.PutUint16(batch, uint16(len(batch)-2))
	_, err := s.conn.Write(batch)
	return err
}

func (s *stream) refuse(reason codec.Reason) { s.write(codec.AppendClose(prefix(), reason)) }
