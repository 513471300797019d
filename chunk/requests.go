package chunk

import "edgert/rt"

// requestSlots is how many requests are remembered: over 4 s at 60 Hz for a
// discipline that asks on every tick, 12 s for one with a cooldown. An answer
// that comes later has been superseded long ago.
const requestSlots = 256

// Request is what the edge keeps about an observation that it has sent, because
// the answer only echoes the sequence number.
type Request struct {
	Key        int64      // the sequence number as key of the join
	Step       int64      // Schedule.NextStep at its capture
	Captured   rt.Instant // when its state was read; the round trip starts here
	Source     rt.Instant // older of the state and the pictures
	Delay      int        // announced, in steps
	PrefixRows int        // rows that were sent as conditioning
	Merges     uint64     // answers merged before it was sent
}

// Requests remembers the last requests by key.
//
// Owner: the tick thread.
type Requests struct {
	slots [requestSlots]Request
	held  [requestSlots]bool
	done  [requestSlots]bool // answered
}

// Put remembers r and forgets the one that had its slot, 256 keys before.
//
//rt:noalloc
func (q *Requests) Put(r Request) {
	i := uint64(r.Key) % requestSlots
	q.slots[i], q.held[i], q.done[i] = r, true, false
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

// Take returns the request with this key and notes that it was answered. The
// outcome is Joined, Unknown when it was never sent or is too long ago, or
// Duplicate when it was answered before.
//
//rt:noalloc
func (q *Requests) Take(key int64) (r Request, o Outcome) {
	i := uint64(key) % requestSlots
	switch {
	case !q.held[i] || q.slots[i].Key != key:
		return Request{}, Unknown
	case q.done[i]:
		return Request{}, Duplicate
	}
	q.done[i] = true
	return q.slots[i], Joined
}
