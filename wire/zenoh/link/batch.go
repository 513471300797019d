package link

import "edgert/wire/zenoh/codec"

// mostUrgent is the most urgent priority with something to send, or -1.
func (o *outbox) mostUrgent() int {
	for p := range o.queues {
		if !o.queues[p].empty() {
			return p
		}
	}
	return -1
}

// fill packs the most urgent messages into one batch behind two bytes for its
// length: as many as fit, one Frame per run of messages on the same lane. A
// message that fits no batch travels alone, in fragments, between which more
// urgent lanes may pass. Called with mu held.
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

// queuedBytes is how many bytes are queued. Called with mu held.
func (o *outbox) queuedBytes() (n int) {
	for i := range o.queues {
		n += o.queues[i].bytes
	}
	return n
}

// enlarge makes room for a full batch. Without it, large messages leave in small
// fragments.
//
//go:noinline
func (o *outbox) enlarge() {
	if o.link.mem.take(o.link.batch - cap(o.batch)) {
		o.batch = make([]byte, 0, o.link.batch)
	}
}

// fragment appends the next piece of a message that is larger than a batch.
func (o *outbox) fragment(q *queue, p uint8) {
	l := lane(p, q.reliable)
	n := min(cap(o.batch)-len(o.batch)-codec.FragmentHeader, len(q.fragments)-q.sent)
	o.batch = codec.AppendFragment(o.batch, codec.Lane{
		Reliable: q.reliable, SN: o.next(l), Priority: p,
		More: q.sent+n < len(q.fragments), First: o.link.patch && q.sent == 0,
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
