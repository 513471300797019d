package servo

import (
	"time"

	"github.com/edge-rt/edge-rt/servo/packet"
)

// readGroup is a set of servos that answer one request with params bytes each.
type readGroup struct {
	request   []byte
	ids       []byte
	addr      int
	slot      [256]int8 // index in ids by id, -1 for servos outside the group
	params    int
	last      int           // index of the servo that answers last
	wire      time.Duration // computed time from the first byte out to the last byte in
	all       uint32        // bit i is set for every index
	answered  uint32        // bit i is set when index i has answered
	refused   uint32        // bit i is set when the answer of index i was a refusal
	maybeEcho bool          // a received frame has the same bytes as the request
	data      []byte        // params bytes per index
	errs      []byte        // the error byte per index
	tunings   [2]tuning     // tuning of plain reads, and of fast ones

	fast         bool // the reply is one merged frame
	merged       packet.Fast
	broken       bool   // the merged frame is damaged
	retryRequest []byte // request to the servos that did not answer, built anew each time
	retryIDs     []byte
	each         []*readGroup // one group per servo, for protocols without a sync read
}

// newReads returns a group of servos, in which the requests are not set yet.
func newReads(addr, n int, ids ...ID) *readGroup {
	g := &readGroup{
		ids:    ids,
		addr:   addr,
		params: n,
		last:   len(ids) - 1,
		all:    uint32(1)<<len(ids) - 1,
		data:   make([]byte, n*len(ids)),
		errs:   make([]byte, len(ids)),
	}
	g.expect(ids...)
	return g
}

func (b *Bus) newGroup(addr, n int, ids []ID) *readGroup {
	g := newReads(addr, n, ids...)
	if !b.protocol.SyncRead() {
		for _, id := range ids {
			one := b.newSingle(id, addr, n)
			g.each = append(g.each, one)
			g.wire += one.wire
		}
		return g
	}
	g.request = b.format.AppendSyncRead(nil, addr, n, ids)
	g.retryRequest, g.retryIDs = make([]byte, 0, len(g.request)), make([]byte, 0, len(ids))
	g.wire = b.wireTime(len(g.request), len(ids), n)
	return g
}

// newSingle returns the group of one servo, with a plain read as its request.
func (b *Bus) newSingle(id ID, addr, n int) *readGroup {
	g := newReads(addr, n, id)
	g.request = b.format.AppendRead(nil, id, addr, n)
	g.wire = b.wireTime(len(g.request), 1, n)
	return g
}

// setFast switches the group between the fast sync read and the plain one.
//
//rt:noalloc
func (b *Bus) setFast(g *readGroup, fast bool) {
	g.fast = fast
	if !fast {
		g.request = b.format.AppendSyncRead(g.request[:0], g.addr, g.params, g.ids)
		g.wire = b.wireTime(len(g.request), len(g.ids), g.params)
		return
	}
	g.request = packet.Dynamixel2{}.AppendFastSyncRead(g.request[:0], g.addr, g.params, g.ids)
	g.wire = b.lineTime(len(g.request)+packet.FastSize(len(g.ids), g.params)) + replyGap
}

func (g *readGroup) expect(ids ...ID) {
	for i := range g.slot {
		g.slot[i] = -1
	}
	for i, id := range ids {
		g.slot[id] = int8(i)
	}
}

//rt:noalloc
func (g *readGroup) param(i int) []byte { return g.data[i*g.params : (i+1)*g.params] }

// missing returns the bits of the servos that did not answer or refused the request.
//
//rt:noalloc
func (g *readGroup) missing() uint32 { return g.all&^g.answered | g.refused }

// When all replies have arrived by the end of the sleep, the next sleep gets one step shorter. When the read must poll,
// the next sleep gets longer by two steps, but at most by the time by which this sleep was too short. The step halves
// from tuneFirst down to tuneLast.
const (
	tuneFirst = 256 * time.Microsecond
	tuneLast  = time.Microsecond
	tuneEach  = 8 // reads of one step
	// number of reads at which the tuning resumes on the tick, where replies come a little earlier
	// or later than in MeasureCycles
	tuneTick = 5 * tuneEach
	tuneHits = 16 // complete reads in a row after which the step doubles, because the adapter has become faster
	tuneMost = 6  // doublings, at most
)

// tuning measures how long after the computed end the replies of one group have arrived. The time
// depends on the adapter, the servos and the traffic before: on the tick the line is silent between
// reads, or carries goals right before the request.
//
// The sleep shrinks until it is too short for one read. In the end two of three reads are complete
// when the sleep ends, and the third read polls for the last bytes, which takes half as much CPU
// time as the rest of the read. A step is small however late a reply was, so a stall changes the
// delay no more than ordinary variation does.
type tuning struct {
	on    bool
	reads int
	hits  int // number of reads in a row that were complete at the end of the sleep
	delay time.Duration
}

//rt:noalloc
func (g *readGroup) tuning() *tuning {
	if g.fast {
		return &g.tunings[1]
	}
	return &g.tunings[0]
}

func (g *readGroup) startTuning() {
	g.tunings = [2]tuning{{on: true}, {on: true}}
	for _, one := range g.each {
		one.startTuning()
	}
}

// continueTuning resumes with larger steps, because delays on the tick may differ a little. The
// kind of read (plain or fast) that was not used yet begins with the delay of the used kind.
func (g *readGroup) continueTuning() {
	used, unused := *g.tuning(), tuning{on: true, reads: tuneTick, delay: g.replyDelay()}
	used.reads = min(used.reads, tuneTick)
	g.tunings = [2]tuning{unused, unused}
	*g.tuning() = used
	for _, one := range g.each {
		one.continueTuning()
	}
}

func (g *readGroup) replyDelay() time.Duration {
	most := max(0, g.tuning().delay)
	for _, one := range g.each {
		most = max(most, one.tuning().delay)
	}
	return most
}

// due returns the expected time from the first byte out until all of the group's replies have arrived.
//
//rt:noalloc
func (b *Bus) due(g *readGroup) time.Duration {
	if t := g.tuning(); t.on {
		return g.wire + t.delay
	}
	return g.wire + b.replyDelay
}

// tune adjusts the delay of the group's replies if the exchange lost none of them. The delay is never so short that
// replies would be expected before the line has carried all bytes.
//
//rt:noalloc
func (b *Bus) tune(g *readGroup) {
	t := g.tuning()
	if !t.on || g.answered != g.all || g.maybeEcho {
		return
	}
	step := max(tuneLast, tuneFirst>>(t.reads/tuneEach))
	if step > tuneLast {
		t.reads++
	}
	if b.polled {
		t.hits = 0
		t.delay = min(replyDelayMax, t.delay+min(2*step, b.clock.Now().Sub(b.end)))
		return
	}
	t.hits++
	gaps := len(g.ids)
	if g.fast {
		gaps = 1
	}
	t.delay = max(-time.Duration(gaps)*replyGap, t.delay-step<<min(t.hits/tuneHits, tuneMost))
}

func (g *readGroup) saveTunings() (all [][2]tuning) {
	all = append(all, g.tunings)
	for _, one := range g.each {
		all = append(all, one.tunings)
	}
	return all
}

func (g *readGroup) restoreTunings(all [][2]tuning) {
	g.tunings = all[0]
	for i, one := range g.each {
		one.tunings = all[1+i]
	}
}
