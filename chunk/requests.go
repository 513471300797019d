package chunk

import "github.com/edge-rt/edge-rt/rt"

// The newest requestSlots requests are kept. They cover more than 4 s at 60 Hz even if every tick sends one. A later
// answer would be useless, because newer answers have arrived long before.
const requestSlots = 256

// While no answer arrives for more than repeatsOften ticks, a discipline repeats its request less and less often: each
// time after 1/repeatShare of the time without an answer. So requestSlots requests cover the minutes that a slow policy
// may need for its answer.
const (
	repeatsOften = requestSlots
	repeatShare  = 16
)

// spread returns the least number of ticks between two requests when no answer has arrived for the given number of
// ticks.
//
//rt:noalloc
func spread(waited int) int {
	if waited < repeatsOften {
		return 0
	}
	return waited / repeatShare
}

// request has the data of a sent observation. It is kept because an answer only repeats the key.
type request struct {
	key      int64      // 0: an empty slot
	step     int64      // step of row 0 of the answer
	captured rt.Instant // instant at which the state was read; the round trip begins here
	source   rt.Instant // instant of the state or of the oldest picture, whichever is older
	delay    int        // announced delay, in steps
	merges   uint64     // number of answers merged before the request was sent
	answered bool
}

// requests keeps the last requests by key.
//
// Owner: the tick thread.
type requests [requestSlots]request

// put stores r in place of the request whose key is lower by requestSlots.
//
//rt:noalloc
func (q *requests) put(r request) { q[uint64(r.key)%requestSlots] = r }

//rt:noalloc
func (q *requests) setSource(key int64, source rt.Instant) {
	if r := &q[uint64(key)%requestSlots]; r.key == key {
		r.source = min(r.source, source)
	}
}

// answer returns the request that c answers, and sets c's step, source and Prov.Asked from it. The result's Outcome is
// Joined, Unknown (the request was never sent, or is too old) or duplicate.
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
	c.step = slot.step
	c.source = slot.source
	c.Prov.Asked = int32(slot.delay)
	return *slot, Result{RTT: now.Sub(slot.captured)}
}
