package link

import (
	"time"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

const (
	priorities = 8
	lanes      = 2 * priorities
)

// lane returns the number of the sequence for a priority and reliability. Each combination has its own sequence
// numbers.
func lane(priority uint8, reliable bool) int {
	n := int(priority) * 2
	if reliable {
		n++
	}
	return n
}

// inbox is the receiving half. Owner: the goroutine in Link.Run.
type inbox struct {
	link    *Link
	stream  stream
	last    [lanes]uint32
	partial [lanes]partial
	msg     codec.Message

	// As local variables these would escape to the heap.
	batch, whole codec.Cursor
}

func (in *inbox) init(l *Link, sn uint32) {
	in.link = l
	in.stream = stream{
		conn:       l.conn,
		buf:        make([]byte, baseBuffer),
		limit:      l.batch,
		mem:        &l.mem,
		maxBuf:     2 + l.batch + readAhead,
		lease:      l.lease,
		ackTimeout: max(minAckTimeout, ackKeepAlives*l.cfg.KeepAlive),
		expire:     in.expire,
	}
	in.stream.acks.init(l.conn)
	for i := range in.last {
		in.last[i] = (sn - 1) & l.mask
		in.partial[i].mem = &l.mem
		in.partial[i].limit = l.cfg.MaxMessage
	}
}

// run reads batches until the link ends. It never returns nil.
func (in *inbox) run(handle func(*codec.Message) error) error {
	for {
		batch, err := in.stream.next()
		if err != nil {
			return err
		}
		if err := in.parse(batch, handle); err != nil {
			return err
		}
	}
}

// parse handles the transport messages of one batch.
//
//rt:noalloc
func (in *inbox) parse(batch []byte, handle func(*codec.Message) error) error {
	in.batch = codec.NewCursor(batch)
	c := &in.batch
	for {
		h, ok := c.Peek()
		if !ok {
			return c.Err() //rt:allow a one-byte value becomes an error
		}
		var err error
		switch {
		case codec.ID(h) == codec.IDFrame:
			err = in.frame(c, handle)
		case codec.ID(h) == codec.IDFragment:
			err = in.fragment(c, handle)
		case codec.ID(h) == codec.IDKeepAlive, codec.ID(h) == codec.IDTransportOAM:
			err = codec.SkipTransport(c)
		case codec.ID(h) == codec.IDClose:
			err = parseClose(c) //rt:allow the link ends
		default:
			err = codec.ErrHeader
		}
		if err != nil {
			return err
		}
	}
}

func parseClose(c *codec.Cursor) error {
	reason, err := codec.ParseClose(c)
	if err != nil {
		return err
	}
	return &CloseError{reason}
}

func (in *inbox) frame(c *codec.Cursor, handle func(*codec.Message) error) error {
	m, err := codec.ParseLane(c)
	if err != nil {
		return err
	}
	fresh, _, err := in.advance(m)
	if err != nil {
		return err
	}
	in.msg.Reliable = m.Reliable
	for {
		h, ok := c.Peek()
		if !ok || !codec.IsNetwork(h) {
			return nil
		}
		if err := codec.ParseMessage(c, &in.msg); err != nil {
			return err
		}
		if !fresh {
			continue
		}
		if err := handle(&in.msg); err != nil {
			return err
		}
	}
}

// advance checks and stores the sequence number of a frame or fragment. The result fresh is false if this or a later
// number has arrived before. The result next is true if this number is the direct successor of the last number.
func (in *inbox) advance(m codec.Lane) (fresh, next bool, err error) {
	mask := in.link.mask
	if m.SN&^mask != 0 || !in.link.qos && m.Priority != dataPriority {
		return false, false, codec.ErrRange
	}
	last := &in.last[lane(m.Priority, m.Reliable)]
	gap := (m.SN - *last) & mask
	if gap == 0 || gap > mask>>1 {
		in.link.cfg.Counters.StaleSN.Add(1)
		return false, false, nil
	}
	*last = m.SN
	return true, gap == 1, nil
}

func (in *inbox) fragment(c *codec.Cursor, handle func(*codec.Message) error) error {
	m, err := codec.ParseLane(c)
	if err != nil {
		return err
	}
	piece := c.Rest()
	fresh, next, err := in.advance(m)
	if err != nil || !fresh {
		return err
	}
	p := &in.partial[lane(m.Priority, m.Reliable)]
	whole, lost := p.add(piece, m, next, in.link.patch)
	if lost {
		in.link.cfg.Counters.Unassembled.Add(1)
	}
	if whole == nil {
		return nil
	}
	in.whole = codec.NewCursor(whole)
	if codec.ParseMessage(&in.whole, &in.msg) != nil {
		// The official code also drops such a message and keeps the link.
		in.link.cfg.Counters.Unassembled.Add(1)
		p.clear()
		return nil
	}
	in.msg.Reliable = m.Reliable
	err = handle(&in.msg)
	p.clear()
	return err
}

// expire drops messages whose fragments are overdue.
func (in *inbox) expire(now time.Time) {
	for i := range in.partial {
		if p := &in.partial[i]; p.expired(now) {
			p.clear()
			in.link.cfg.Counters.Unassembled.Add(1)
		}
	}
}

// fragmentTimeout is the longest time between the first and the last fragment of a message.
const fragmentTimeout = 30 * time.Second

// partial is a message whose fragments are still arriving on one lane.
type partial struct {
	buf   []byte
	open  bool      // all fragments from the first to the latest have arrived
	since time.Time // when the first fragment arrived
	limit int
	mem   *account
}

// add joins one fragment. After the last fragment, the result whole is the complete message, lent until clear. The
// result lost is true if a message had to be dropped.
func (p *partial) add(piece []byte, m codec.Lane, next, patch bool) (whole []byte, lost bool) {
	if p.open && (!next || m.First) {
		lost = true
		p.clear()
	}
	if m.First || !patch && !p.open {
		p.open, p.since = true, time.Now()
	}
	if !p.open {
		return nil, lost
	}
	if m.Drop || !p.append(piece) {
		p.clear()
		return nil, true
	}
	if m.More {
		return nil, lost
	}
	p.open = false
	return p.buf, lost
}

func (p *partial) append(piece []byte) bool {
	if len(p.buf)+len(piece) > p.limit {
		return false
	}
	roomier, ok := p.mem.lend(p.buf, len(piece))
	if ok {
		p.buf = append(roomier, piece...)
	}
	return ok
}

func (p *partial) clear() { p.buf, p.open = p.mem.giveBack(p.buf), false }

func (p *partial) expired(now time.Time) bool { return p.open && now.Sub(p.since) > fragmentTimeout }
