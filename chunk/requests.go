package chunk

import "edgert/rt"

// requestSlots is how many requests are remembered. At one request per
// estimate + epsilon + 1 >= 3 ticks this is over 3 s of lost answers at 60 Hz;
// an answer that comes later has been superseded long ago.
const requestSlots = 64

// Request is what the edge keeps about an observation that it has sent, because
// the answer only echoes the sequence number.
type Request struct {
	Key        int64      // the sequence number as key of the join
	Step       int64      // Schedule.NextStep at its capture
	Captured   rt.Instant // when its state was read; the round trip starts here
	Source     rt.Instant // older of the state and the pictures
	Delay      int        // announced, in steps
	PrefixRows int        // rows that were sent as conditioning
}

// Requests remembers the last requests by key.
//
// Owner: the tick thread.
type Requests struct {
	slots [requestSlots]Request
	held  [requestSlots]bool
}

// Put remembers r and forgets the request 64 keys before it.
//
//rt:noalloc
func (q *Requests) Put(r Request) {
	i := uint64(r.Key) % requestSlots
	q.slots[i], q.held[i] = r, true
}

// pictured corrects the source of a request that is under way.
//
//rt:noalloc
func (q *Requests) pictured(key int64, source rt.Instant) {
	i := uint64(key) % requestSlots
	if q.held[i] && q.slots[i].Key == key {
		q.slots[i].Source = min(q.slots[i].Source, source)
	}
}

// Take returns the request with this key and forgets it; ok is false when it was
// never sent, was answered before, or is too long ago.
//
//rt:noalloc
func (q *Requests) Take(key int64) (r Request, ok bool) {
	i := uint64(key) % requestSlots
	if !q.held[i] || q.slots[i].Key != key {
		return Request{}, false
	}
	q.held[i] = false
	return q.slots[i], true
}
