package link

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

const (
	dataPriority = 5
	closeTimeout = time.Second // time to send the queued messages and the Close
	initialBatch = 4 << 10     // size of the batch buffer until more bytes wait to be sent
)

// outbox is the sending half: queues that any goroutine fills, and the writer that empties them.
type outbox struct {
	// Constant after init.
	link  *Link
	wake  chan struct{} // has a token when the writer has work
	space sendSpace

	// Owner: the writer.
	batch []byte
	sn    [lanes]uint32 // the next sequence number of each lane

	// Guarded by mu, which is never held across a blocking call.
	mu        sync.Mutex
	drained   sync.Cond   // condition on mu: there is room, the link has ended or a deadline has passed
	waitTimer *time.Timer // wakes senders that wait for room; nil before the first
	wakeAt    time.Time   // time at which waitTimer fires; zero: it is not set
	queues    [priorities]queue
	closing   bool
	reason    codec.Reason
	err       error // if not nil, the link has ended
	writeErr  error // the reason why the writer ended the link
}

func (o *outbox) init(l *Link, sn uint32) {
	o.link = l
	o.wake = make(chan struct{}, 1)
	o.drained.L = &o.mu
	o.batch = make([]byte, 0, min(l.batch, initialBatch))
	o.queues[0].control = true
	o.space.init(l.conn)
	for i := range o.sn {
		o.sn[i] = sn
	}
	for i := range o.queues {
		o.queues[i].mem = &l.mem
		if i > 0 {
			o.queues[i].minBuf = dropBytes // a link has few declarations
		}
	}
}

// Push queues one sample. It copies, and allocates nothing in steady state.
// With a dropping QoS it never waits and returns ErrCongested instead.
//
//rt:noalloc
func (l *Link) Push(p *codec.Push, d Delivery) error {
	q, buf, err := l.out.begin(p.Size(), d)
	if err == nil {
		l.out.commit(q, codec.AppendPush(buf, p), d)
	}
	return err
}

// Send queues one encoded message. It copies.
func (l *Link) Send(msg []byte, d Delivery) error {
	q, buf, err := l.out.begin(len(msg), d)
	if err == nil {
		l.out.commit(q, append(buf, msg...), d)
	}
	return err
}

// begin lends the queue's buffer, to which the caller appends at most size bytes. If the QoS blocks, it first waits for
// room. If it returns no error, it holds mu until commit releases it.
func (o *outbox) begin(size int, d Delivery) (q *queue, buf []byte, err error) {
	o.mu.Lock()
	if q, err = o.admit(size, d); err != nil {
		o.mu.Unlock()
		return nil, nil, err
	}
	buf, ok := q.tail(size)
	if !ok {
		return nil, nil, o.dropped()
	}
	return q, buf, nil
}

// commit queues the bytes that were appended to the buffer of begin.
func (o *outbox) commit(q *queue, buf []byte, d Delivery) {
	n := len(buf) - len(q.buf)
	q.buf = buf
	q.add(entry{n: n, reliable: d.Reliable, express: d.QoS&codec.Express != 0}, n)
	o.mu.Unlock()
	o.signal()
}

// PushLatest queues one sample in a slot. It replaces the sample in the slot if the writer has not begun to send that
// sample. It never waits.
//
//rt:noalloc
func (l *Link) PushLatest(s *Slot, p *codec.Push, d Delivery) (replaced bool, err error) {
	o := &l.out
	size := p.Size()
	if size > l.cfg.MaxMessage {
		return false, errTooLarge
	}
	o.mu.Lock()
	if o.err != nil || o.closing {
		o.mu.Unlock()
		return false, ErrClosed
	}
	buf, ok := l.mem.grow(s.msg[:0], size)
	if !ok {
		return false, o.dropped()
	}
	q, old := o.queue(d), len(s.msg)
	s.msg = codec.AppendPush(buf, p)
	if s.waiting {
		q.bytes += len(s.msg) - old
		o.mu.Unlock()
		l.cfg.Counters.Replaced.Add(1)
		return true, nil
	}
	s.waiting = true
	q.add(entry{slot: s, reliable: d.Reliable, express: d.QoS&codec.Express != 0}, len(s.msg))
	o.mu.Unlock()
	o.signal()
	return false, nil
}

// dropped refuses a message for which the budget has no room. Called with mu held, which it
// unlocks.
func (o *outbox) dropped() error {
	o.mu.Unlock()
	o.link.cfg.Counters.Dropped.Add(1)
	return ErrCongested
}

func (o *outbox) queue(d Delivery) *queue {
	if !o.link.qos {
		return &o.queues[dataPriority]
	}
	return &o.queues[d.QoS.Priority()]
}

// admit returns the queue that a message of the given size may join. If the QoS blocks, it waits for room for at most
// Config.Stall or Delivery.MaxWait. Called with mu held.
func (o *outbox) admit(size int, d Delivery) (*queue, error) {
	if size > o.link.cfg.MaxMessage {
		return nil, errTooLarge
	}
	if o.err != nil || o.closing {
		return nil, ErrClosed
	}
	q := o.queue(d)
	blocks := d.QoS&codec.Block != 0
	switch {
	case d.Unbounded, blocks && q.fits(size, blockBytes, q.messages()), !blocks &&
		q.fits(size, dropBytes, dropMessages):
		return q, nil
	case blocks && !d.NoWait && (d.MaxWait == 0 || !q.timedOut):
		return o.waitForRoom(q, size, d.MaxWait)
	}
	o.link.cfg.Counters.Dropped.Add(1)
	return nil, ErrCongested
}

// waitForRoom is the slow path of admit. A message with maxWait may wait for another maxWait if the queue has sent
// messages meanwhile, but never longer than Config.Stall in all. Called with mu held.
func (o *outbox) waitForRoom(q *queue, size int, maxWait time.Duration) (*queue, error) {
	stall := o.link.cfg.Stall
	limit := stall
	if maxWait > 0 {
		limit = min(stall, maxWait)
	}
	moved, began := q.departed, time.Now()
	deadline := began.Add(limit)
	for {
		o.wakeBy(deadline)
		o.drained.Wait()
		if o.err != nil || o.closing {
			return nil, errEnded
		}
		if q.fits(size, blockBytes, q.messages()) {
			return q, nil
		}
		switch now := time.Now(); {
		case now.Before(deadline):
		case q.departed != moved && now.Sub(began) < stall:
			moved, deadline = q.departed, now.Add(limit)
		default:
			q.timedOut = maxWait > 0
			o.link.cfg.Counters.Dropped.Add(1)
			return nil, ErrCongested
		}
	}
}

// wakeBy makes sure that all senders that wait for room are woken at the time t or before, so that they can check their
// timeouts. All share one timer, which is not stopped when there is room: a timer for each wait would be garbage.
// Called with mu held.
func (o *outbox) wakeBy(t time.Time) {
	switch {
	case !o.wakeAt.IsZero() && !t.Before(o.wakeAt):
		return
	case o.waitTimer == nil:
		o.waitTimer = time.AfterFunc(time.Until(t), o.wakeWaiters)
	default:
		o.waitTimer.Reset(time.Until(t))
	}
	o.wakeAt = t
}

// wakeWaiters wakes the senders that wait for room.
func (o *outbox) wakeWaiters() {
	o.mu.Lock()
	o.wakeAt = time.Time{}
	o.mu.Unlock()
	o.drained.Broadcast()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) close(reason codec.Reason) {
	o.mu.Lock()
	if !o.closing {
		o.closing, o.reason = true, reason
		o.link.conn.SetWriteDeadline(time.Now().Add(closeTimeout))
	}
	o.mu.Unlock()
	o.drained.Broadcast()
	o.signal()
}

func (o *outbox) abort(err error) {
	o.mu.Lock()
	if o.err == nil {
		o.err = err
	}
	o.mu.Unlock()
	o.drained.Broadcast()
	o.signal()
}

func (o *outbox) isClosing() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closing
}

func (o *outbox) cause() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writeErr
}

// run is the writer. It waits for messages and for room in the kernel, writes the most urgent messages, and sends
// keep-alives on an idle link.
func (o *outbox) run() {
	defer close(o.link.written)
	keepAliveTimer := time.NewTimer(o.link.cfg.KeepAlive)
	defer keepAliveTimer.Stop()
	for {
		keepAlive := false
		if o.idle() {
			select {
			case <-o.wake:
			case <-keepAliveTimer.C:
				keepAlive = true
			}
		}
		done, err := o.step(keepAlive)
		if err != nil {
			o.fail(err)
			return
		}
		if done {
			// The peer closes the connection when it has read our Close. If we closed it first, the kernel could
			// discard bytes that the peer has not read yet.
			time.AfterFunc(closeTimeout, o.link.closeSocket)
			if secure, ok := o.link.conn.(*tls.Conn); ok && o.isClosing() {
				secure.CloseWrite()
			}
			return
		}
		keepAliveTimer.Reset(o.link.cfg.KeepAlive)
	}
}

// step writes one batch if a message waits; otherwise it writes a keep-alive if keepAlive is set.
//
//rt:noalloc
func (o *outbox) step(keepAlive bool) (done bool, err error) {
	conn := o.link.conn
	o.mu.Lock()
	if !o.closing { // close has set an earlier deadline
		conn.SetWriteDeadline(time.Now().Add(o.link.cfg.Stall))
	}
	o.mu.Unlock()
	if err := o.space.await(); err != nil {
		return false, err
	}
	o.mu.Lock()
	o.fill()
	if len(o.batch) == 2 {
		switch {
		case o.closing:
			o.batch, done = codec.AppendClose(o.batch, o.reason), true
		case o.err != nil:
			o.mu.Unlock()
			return true, nil
		case keepAlive:
			o.batch = codec.AppendKeepAlive(o.batch)
		}
	}
	o.mu.Unlock()
	o.drained.Broadcast()
	if len(o.batch) == 2 {
		return false, nil
	}
	binary.LittleEndian.PutUint16(o.batch, uint16(len(o.batch)-2))
	_, err = conn.Write(o.batch)
	return done, err
}

func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mostUrgent() < 0 && !o.closing && o.err == nil
}

// fail ends the link from the writer's side. The reader's next read then fails.
func (o *outbox) fail(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrStalled
		o.link.cfg.Counters.Stalled.Add(1)
	}
	o.mu.Lock()
	if o.err == nil {
		o.writeErr = err
	}
	o.mu.Unlock()
	o.abort(err)
	o.link.closeSocket()
}

// mostUrgent returns the most urgent priority with a message to send, or -1 if there is no message.
func (o *outbox) mostUrgent() int {
	for p := range o.queues {
		if !o.queues[p].empty() {
			return p
		}
	}
	return -1
}

// fill packs as many of the most urgent messages into one batch as fit, after two bytes for its length. Successive
// messages on the same lane share a Frame. A message that is larger than a batch is sent alone, in fragments. More
// urgent messages may be sent between the fragments. Called with mu held.
//
//rt:noalloc
func (o *outbox) fill() {
	if cap(o.batch) < o.link.batch && o.queuedBytes() > cap(o.batch) {
		o.enlarge()
	}
	o.batch = append(o.batch[:0], 0, 0)
	open := -1 // the lane of the Frame that is being filled
	for {
		p := o.mostUrgent()
		if p < 0 {
			return
		}
		q := &o.queues[p]
		if q.fragmenting() {
			if len(o.batch) == 2 {
				o.fragment(q, uint8(p))
			}
			return
		}
		n, e := q.size(), &q.entries[q.first]
		l := lane(uint8(p), e.reliable)
		header := 0
		if l != open {
			header = codec.FrameHeader
		}
		if len(o.batch)+header+n > cap(o.batch) {
			if len(o.batch) == 2 {
				q.split()
				o.fragment(q, uint8(p))
			}
			return
		}
		if l != open {
			o.batch = codec.AppendFrame(o.batch, codec.Lane{Reliable: e.reliable, SN: o.next(l), Priority: uint8(p)})
			open = l
		}
		express := e.express
		_, msg := q.pop()
		o.batch = append(o.batch, msg...)
		q.bytes -= n
		if express {
			return
		}
	}
}

// queuedBytes returns the number of queued bytes. Called with mu held.
func (o *outbox) queuedBytes() (n int) {
	for i := range o.queues {
		n += o.queues[i].bytes
	}
	return n
}

// enlarge makes room for a full batch, so that large messages are sent in large fragments.
//
//go:noinline
func (o *outbox) enlarge() {
	if o.link.mem.reserve(o.link.batch - cap(o.batch)) {
		o.batch = make([]byte, 0, o.link.batch)
	}
}

// fragment appends the next piece of a message that is larger than a batch.
func (o *outbox) fragment(q *queue, p uint8) {
	l := lane(p, q.reliable)
	n := min(cap(o.batch)-len(o.batch)-codec.FragmentHeader, len(q.fragments)-q.sent)
	o.batch = codec.AppendFragment(o.batch, codec.Lane{
		Reliable: q.reliable,
		SN:       o.next(l),
		Priority: p,
		More:     q.sent+n < len(q.fragments),
		First:    o.link.patch && q.sent == 0,
	})
	o.batch = append(o.batch, q.fragments[q.sent:q.sent+n]...)
	q.sent += n
	q.departed, q.timedOut = q.departed+1, false
	q.bytes -= n
	if !q.fragmenting() {
		q.fragments, q.sent = q.mem.drop(q.fragments), 0
	}
}

func (o *outbox) next(l int) uint32 {
	sn := o.sn[l]
	o.sn[l] = (sn + 1) & o.link.mask
	return sn
}
