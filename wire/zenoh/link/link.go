// Package link is one open Zenoh transport over one stream (link.go): the handshake (handshake.go), a writer that owns
// the sending half, a reader that owns the receiving half, and the leases by which each side detects that the other is
// gone.
//
// Sending has a queue per priority (queue.go). Send and Push copy a message into its queue and
// return; the writer (outbox.go) waits until the kernel has hardly any unsent bytes left
// (socket_linux.go), packs the most urgent messages into one batch and writes it. The message in a Slot may be replaced
// until the writer begins to send it, so that the newest message is sent.
//
// Receiving cuts the stream into batches (stream.go) and parses in place (inbox.go): a Message
// lends slices of the read buffer, or of a reassembly buffer, until the handler returns. In steady
// state neither direction allocates; all memory that peers can make grow is bounded (budget.go).
package link

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// Limits of one link.
const (
	handshakeTimeout = 10 * time.Second
	minBatch         = 64 // bytes; the official acceptor panics below 11
	minLease         = 100 * time.Millisecond
	maxLease         = time.Hour
	// DefaultStall is the longest time for which the writing of a batch, or a blocking send, waits for a peer that does
	// not read. The limit is that of the official code.
	DefaultStall = 5 * time.Second
	// A link ends when the peer's system has acknowledged no byte of ours for ackKeepAlives keep-alives, and at least
	// for minAckTimeout. After a cut cable, a new link works sooner than the old link, which would first resend the
	// messages that were under way.
	ackKeepAlives = 3
	minAckTimeout = time.Second
)

// Errors with which a link ends or refuses a message.
var (
	ErrCongested   = errors.New("zenoh: message dropped, the link is congested")
	errTooLarge    = errors.New("zenoh: message larger than the limit")
	ErrExpired     = errors.New("zenoh: nothing received within the peer's lease")
	ErrUnconfirmed = errors.New("zenoh: the network confirms nothing of what we send")
	ErrStalled     = errors.New("zenoh: the peer does not read")
	errMemory      = errors.New("zenoh: ended to free memory, this link held the most of the memory for all links")
	ErrClosed      = errors.New("zenoh: link closed")
	errEnded       = fmt.Errorf("%w before it had room: %w", ErrClosed, ErrCongested) // the message waited for room
	ErrEOF         = errors.New("zenoh: the peer ended the connection without a word")
)

// CloseError is a Close that the peer sent.
type CloseError struct{ Reason codec.Reason }

func (e *CloseError) Error() string { return "zenoh: peer closed: " + e.Reason.String() }

// Config is this node's part of the handshake, and its limits.
type Config struct {
	ZID        []byte // 1 to 16 bytes, the last not zero
	Role       codec.Role
	Lease      time.Duration // the peer may end a link on which we send nothing for this time
	KeepAlive  time.Duration // longest time between two messages of ours
	Stall      time.Duration // longest wait for a peer that does not read; 0 is DefaultStall
	MaxMessage int           // bytes of one message, in either direction
	Budget     *Budget       // bounds the memory of all links of the session
	Counters   *Counters     // shared by the session's links

	small *codec.Init // smaller sizes, which tests offer in the handshake
}

// offer is the first message of a handshake.
func (c *Config) offer() codec.Init {
	i := codec.Init{
		Role:       c.Role,
		ZID:        c.ZID,
		Resolution: codec.DefaultResolution,
		Batch:      codec.DefaultBatch,
		QoS:        true,
		Patch:      1,
	}
	if s := c.small; s != nil {
		i.Resolution = s.Resolution
		i.Batch = s.Batch
		i.QoS = s.QoS
		i.Patch = s.Patch
	}
	return i
}

// Remote is the peer's part of the handshake.
type Remote struct {
	ZID  string // raw bytes without trailing zeros
	Role codec.Role
}

// Link is an open transport.
type Link struct {
	// Constant after the handshake.
	conn    net.Conn
	cfg     Config
	remote  Remote
	lease   time.Duration // the peer's lease
	batch   int           // bytes per batch, prefix included
	mask    uint32        // mask for sequence numbers
	qos     bool          // a lane per priority
	patch   bool          // fragments carry first and drop marks
	written chan struct{} // closed when the writer has ended

	revoked atomic.Bool

	mem account // the memory that is held for the remote
	out outbox  // guarded by its own lock
	in  inbox   // owner: the goroutine in Run

	endOnce sync.Once
}

// open returns the Link after its handshake. txSN is our first sequence number, and rxSN is the
// peer's.
func open(conn net.Conn, cfg Config, ours, theirs *codec.Init, lease time.Duration, txSN, rxSN uint32) *Link {
	cfg.Stall = cmp.Or(cfg.Stall, DefaultStall)
	resolution := ours.Resolution.Min(theirs.Resolution)
	l := &Link{
		conn:    conn,
		cfg:     cfg,
		lease:   lease,
		remote:  Remote{ZID: string(theirs.ZID), Role: theirs.Role},
		batch:   int(min(ours.Batch, theirs.Batch)),
		mask:    resolution.Mask(),
		qos:     ours.QoS && theirs.QoS,
		patch:   min(ours.Patch, theirs.Patch) >= 1,
		written: make(chan struct{}),
	}
	l.mem = cfg.Budget.join(listen.Host(conn.RemoteAddr()), l.Revoke)
	if rawConn(conn) != conn {
		l.mem.charge(tlsBytes)
	}
	l.out.init(l, txSN)
	l.in.init(l, rxSN)
	return l
}

// Remote is the node at the other end.
func (l *Link) Remote() Remote { return l.remote }

// Addr is the other end's address.
func (l *Link) Addr() net.Addr { return l.conn.RemoteAddr() }

// Run carries the link until it ends and returns the reason, never nil. Run calls handle with every network message, on
// this goroutine. An error of handle ends the link.
func (l *Link) Run(handle func(*codec.Message) error) error {
	go l.out.run()
	err := l.in.run(handle)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrEOF
	}
	var malformed codec.Error
	if errors.As(err, &malformed) {
		l.cfg.Counters.Malformed.Add(1)
		l.Close(codec.CloseInvalid)
	}
	l.end(err)
	<-l.written
	l.releaseBuffers()
	if l.revoked.Load() {
		err = errMemory
	}
	if errors.Is(err, errMemory) {
		l.cfg.Counters.Revoked.Add(1)
		return err
	}
	if cause := l.out.cause(); cause != nil {
		return cause
	}
	if malformed == 0 && l.out.isClosing() {
		return ErrClosed
	}
	return err
}

// Close returns at once. The writer then sends the queued messages and a Close, for at most a
// second, and ends the link. Then Run returns.
func (l *Link) Close(reason codec.Reason) { l.out.close(reason) }

// end closes the socket and wakes the senders that wait for room.
func (l *Link) end(err error) {
	l.endOnce.Do(func() {
		l.out.abort(err)
		if l.out.isClosing() {
			select { // the writer still has to send a Close
			case <-l.written:
			case <-time.After(closeTimeout):
			}
		}
		l.closeSocket()
	})
}

// Revoke ends the link because it holds too much memory. Run then returns errMemory.
func (l *Link) Revoke() {
	l.revoked.Store(true)
	l.closeSocket()
}

// closeSocket closes the socket at once, below TLS, because closing a TLS connection would first wait for room for an
// alert.
func (l *Link) closeSocket() { rawConn(l.conn).Close() }

func reasonError(what string, reason codec.Reason) error {
	return fmt.Errorf("zenoh: %s: %w", what, &CloseError{reason})
}

// Discard closes a link for which Run was never called.
func (l *Link) Discard() {
	l.closeSocket()
	l.mem.close()
}

// releaseBuffers frees every buffer. Timers and publishers may still refer to the Link itself for a while.
func (l *Link) releaseBuffers() {
	l.in.stream.buf = nil
	for i := range l.in.partial {
		l.mem.recycle(l.in.partial[i].buf)
		l.in.partial[i].buf = nil
	}
	l.in.msg = codec.Message{}
	l.out.mu.Lock()
	for i := range l.out.queues {
		l.out.queues[i] = queue{mem: &l.mem}
	}
	l.out.batch = nil
	l.out.mu.Unlock()
	l.mem.close()
}
