package link

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"time"

	"edgert/wire/zenoh/codec"
)

const (
	dataPriority = 5
	closeTimeout = time.Second // to say what is queued and goodbye
	initialBatch = 4 << 10     // what is packed into until more than that waits
)

// outbox is the sending half: queues that anyone fills, and the writer that
// empties them.
type outbox struct {
	// Constant after init.
	link  *Link
	wake  chan struct{} // one token: there is something to do
	space sendSpace

	// Owner: the writer.
	batch []byte
	sn    [lanes]uint32 // the next of each lane

	// Guarded by mu, which is held while nothing blocks.
	mu        sync.Mutex
	drained   sync.Cond   // on mu: room was made, the end came, or a deadline
	waitTimer *time.Timer // wakes who waits for room; nil until somebody has
	wakeAt    time.Time   // when it does; zero: it is not set
	queues    [priorities]queue
	closing   bool
	reason    codec.Reason
	err       error // the link has ended
	writeErr  error // why the writer ended it
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
			o.queues[i].minBuf = dropBytes // declarations are few
		}
	}
}

// Push queues one sample. It copies, and allocates nothing in steady state.
// With a dropping QoS it never waits and returns ErrCongested instead.
//
//rt:noalloc
func (l *Link) Push(p *codec.Push, how Delivery) error {
	o := &l.out
	size := p.Size()
	o.mu.Lock()
	q, err := o.admit(size, how)
	if err != nil {
		o.mu.Unlock()
		return err
	}
	before, ok := q.tail(size)
	if !ok {
		return o.dropped()
	}
	q.buf = codec.AppendPush(before, p)
	n := len(q.buf) - len(before)
	q.add(entry{n: n, reliable: how.Reliable, express: how.QoS&codec.Express != 0}, n)
	o.mu.Unlock()
	o.signal()
	return nil
}

// PushLatest queues one sample in a slot, where it replaces one that has not begun
// to leave. It never waits.
//
//rt:noalloc
func (l *Link) PushLatest(s *Slot, p *codec.Push, how Delivery) (replaced bool, err error) {
	o := &l.out
	size := p.Size()
	if size > l.cfg.MaxMessage {
		return false, ErrTooLarge
	}
	o.mu.Lock()
	if o.err != nil || o.closing {
		o.mu.Unlock()
		return false, ErrClosed
	}
	q := o.queue(how)
	replaced = s.waiting
	old := 0
	if replaced {
		old = len(s.msg)
	}
	room, ok := l.mem.reserve(s.msg[:0], size)
	if !ok {
		return false, o.dropped()
	}
	s.msg = codec.AppendPush(room, p)
	if replaced {
		q.bytes += len(s.msg) - old
		o.mu.Unlock()
		l.cfg.Counters.Replaced.Add(1)
		return true, nil
	}
	s.waiting = true
	q.add(entry{slot: s, reliable: how.Reliable, express: how.QoS&codec.Express != 0}, len(s.msg))
	o.mu.Unlock()
	o.signal()
	return false, nil
}

// Send queues one encoded message. It copies.
func (l *Link) Send(msg []byte, how Delivery) error {
	o := &l.out
	o.mu.Lock()
	q, err := o.admit(len(msg), how)
	if err != nil {
		o.mu.Unlock()
		return err
	}
	tail, ok := q.tail(len(msg))
	if !ok {
		return o.dropped()
	}
	q.buf = append(tail, msg...)
	q.add(entry{n: len(msg), reliable: how.Reliable, express: how.QoS&codec.Express != 0}, len(msg))
	o.mu.Unlock()
	o.signal()
	return nil
}

// dropped refuses a message for which the budget has no room. Called with mu
// held, which it lets go.
func (o *outbox) dropped() error {
	o.mu.Unlock()
	o.link.cfg.Counters.Dropped.Add(1)
	return ErrCongested
}

func (o *outbox) queue(how Delivery) *queue {
	if !o.link.qos {
		return &o.queues[dataPriority]
	}
	return &o.queues[how.QoS.Priority()]
}

// admit finds the queue that size bytes may join, waiting for room when the QoS
// blocks, for at most Config.Stall or as long as how says. Called with mu held.
func (o *outbox) admit(size int, how Delivery) (*queue, error) {
	if size > o.link.cfg.MaxMessage {
		return nil, ErrTooLarge
	}
	q := o.queue(how)
	if o.err != nil || o.closing {
		return nil, ErrClosed
	}
	if how.QoS&codec.Block == 0 {
		if !q.fits(size, dropBytes, dropMessages) {
			o.link.cfg.Counters.Dropped.Add(1)
			return nil, ErrCongested
		}
		return q, nil
	}
	if q.fits(size, blockBytes, q.messages()) {
		return q, nil
	}
	if how.NoWait || how.MaxWait > 0 && q.timedOut {
		q.timedOut = how.MaxWait > 0
		o.link.cfg.Counters.Dropped.Add(1)
		return nil, ErrCongested
	}
	return o.waitForRoom(q, size, how.MaxWait)
}

// waitForRoom is the slow way of admit: it waits for room. A patient message waits on
// for as long as the queue moves. Called with mu held.
func (o *outbox) waitForRoom(q *queue, size int, patience time.Duration) (*queue, error) {
	stall := o.link.cfg.Stall
	limit := stall
	if patience > 0 {
		limit = min(stall, patience)
	}
	moved, began := q.departed, time.Now()
	deadline := began.Add(limit)
	for {
		o.wakeBy(deadline)
		o.drained.Wait()
		if o.err != nil || o.closing {
			return nil, ErrClosed
		}
		if q.fits(size, blockBytes, q.messages()) {
			return q, nil
		}
		switch now := time.Now(); {
		case now.Before(deadline):
		case q.departed != moved && now.Sub(began) < stall:
			moved, deadline = q.departed, now.Add(limit)
		default:
			q.timedOut = patience > 0
			o.link.cfg.Counters.Dropped.Add(1)
			return nil, ErrCongested
		}
	}
}

// wakeBy has all who wait for room look at the clock at t or before; each of
// them sets it again when it goes on waiting. One timer for all, which is not
// stopped when there is room, because one for each wait would be garbage on the
// path of whoever sends faster than the link carries. Called with mu held.
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

// wakeWaiters wakes who waits for room.
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

// run is the writer: it waits for messages, waits for room, picks the most
// urgent and writes them, and speaks up when it has been silent for too long.
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
			// The peer closes when it has read our Close; closing first could
			// make the kernel discard what it has not read yet.
			time.AfterFunc(closeTimeout, o.link.closeSocket)
			if secure, ok := o.link.conn.(*tls.Conn); ok && o.isClosing() {
				secure.CloseWrite()
			}
			return
		}
		keepAliveTimer.Reset(o.link.cfg.KeepAlive)
	}
}

// step writes one batch, if there is one to write.
//
//rt:noalloc
func (o *outbox) step(keepAlive bool) (done bool, err error) {
	conn := o.link.conn
	o.mu.Lock()
	closing := o.closing
	o.mu.Unlock()
	if !closing {
		conn.SetWriteDeadline(time.Now().Add(o.link.cfg.Stall))
	}
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

// fail ends the link from the writer's side; the reader then sees a closed
// connection.
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
