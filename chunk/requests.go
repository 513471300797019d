package chunk

import "edgert/rt"

// requestSlots is how many requests are remembered: over 4 s at 60 Hz when every
// tick asks. An answer that comes later has been superseded long ago.
const requestSlots = 256

// Repeats of a request come ever more seldom once it has been under way for so many ticks:
// each after this share of the time that has passed. So requestSlots of them cover the
// minutes that a slow policy may take for its answer.
const (
	repeatsOften = requestSlots
	repeatShare  = 16
)

// spread is the least number of ticks until the next repeat of a request that has been under
// way for so many.
//
//rt:noalloc
func spread(waited int) int {
	if waited < repeatsOften {
		return 0
	}
	return waited / repeatShare
}

// request is what is kept about an observation that was sent, because the answer
// only echoes its key.
type request struct {
	key      int64      // 0: an empty slot
	step     int64      // row 0 of the answer is this step
	captured rt.Instant // when its state was read; the round trip starts here
	source   rt.Instant // older of the state and the pictures
	delay    int        // announced, in steps
	merges   uint64     // answers merged before it was sent
	answered bool
}

// requests remembers the last requests by key.
//
// Owner: the tick thread.
type requests [requestSlots]request

// put remembers r and forgets the one that had its slot, 256 keys before.
//
//rt:noalloc
func (q *requests) put(r request) { q[uint64(r.key)%requestSlots] = r }

//rt:noalloc
func (q *requests) setSource(key int64, source rt.Instant) {
	if r := &q[uint64(key)%requestSlots]; r.key == key {
		r.source = min(r.source, source)
	}
}

// answer finds the request that c answers and fills in what it says about c. The
// outcome is Joined, Unknown (never sent or too long ago) or duplicate.
//
//rt:noalloc
func (q *requests) answer(now rt.Instant, c *Chunk) (r request, result Result) {
	slot := &q[uint64(c.Key)%requestSlots]
	switch {
	case c.Key == 0 || slot.key != c.Key:
		return request{}, Result{Outcome: Unknown}
	case slot.answered:
		return request{}, Result{Outcome: duplicate}
	}
	slot.answered = true
	c.step, c.source, c.Prov.Asked = slot.step, slot.source, int32(slot.delay)
	return *slot, Result{RTT: now.Sub(slot.captured)}
}
