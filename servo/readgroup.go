package servo

import (
	"time"

	"edgert/servo/packet"
)

// readGroup is a set of servos that answer with params bytes each.
type readGroup struct {
	request   []byte
	ids       []byte
	addr      int
	slot      [256]int8 // index by id, -1 for servos that are not meant
	params    int
	last      int           // index that is expected to answer last
	wire      time.Duration // computed time from the first byte out to the last byte in
	all       uint32        // bit i is set for every index
	answered  uint32        // bit i is set when index i has answered
	refused   uint32        // bit i is set when it answered that it will not
	maybeEcho bool          // what came is, byte by byte, what was sent
	data      []byte        // params bytes per index
	errs      []byte        // the error byte per index
	tunings   [2]tuning     // for plain reads and for fast ones

	fast         bool // one merged reply
	merged       packet.Fast
	broken       bool   // and it is damaged
	retryRequest []byte // to those who did not answer, built anew each time
	retryIDs     []byte
	each         []*readGroup // protocols without a sync read ask each servo by itself
}

func (b *Bus) newGroup(addr, n int, ids []ID) *readGroup {
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
	if !b.protocol.SyncRead() {
		for _, id := range ids {
			one := &readGroup{ids: []ID{id}, addr: addr, params: n, all: 1, data: make([]byte, n), errs: make([]byte, 1)}
			one.expect(id)
			one.request = b.format.AppendRead(nil, id, addr, n)
			one.wire = b.wireTime(len(one.request), 1, n)
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

// setFast makes the group use the fast sync read, or no longer.
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

// missing returns the bits of those that gave no data.
//
//rt:noalloc
func (g *readGroup) missing() uint32 { return g.all&^g.answered | g.refused }

// A read that finds everything there when its sleep ends makes the next sleep
// shorter, one that has to poll makes it longer, and by no more than was missing.
// The step halves until it is the last.
const (
	tuneFirst = 256 * time.Microsecond
	tuneLast  = time.Microsecond
	tuneEach  = 8            // reads of one step
	tuneTick  = 5 * tuneEach // reads after which the tick begins, whose replies come a little earlier or later than MeasureCycles has seen
	tuneHits  = 16           // reads in a row that find everything there, after which the step doubles: the adapter has become faster
	tuneMost  = 6            // times that it does so
)

// tuning is how long after the computed end one group's replies are there. It depends on
// the adapter, the servos and what the line did before: on the tick it rests between
// reads, or carries goals right before the request.
//
// The sleep shrinks until one is too short: two of three reads find everything there, the
// third waits for the last bytes, which takes as much CPU time as half of all the rest. A
// step is small however late a reply was, so a stall moves it no more than chance does.
type tuning struct {
	on    bool
	reads int
	hits  int // reads in a row that found everything there
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

// continueTuning goes on with larger steps: on the tick it may be a little different. The
// other kind of read, which was not used yet, begins where other registers' do.
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

// due is how long after the first byte out all of the group's replies are there.
//
//rt:noalloc
func (b *Bus) due(g *readGroup) time.Duration {
	if t := g.tuning(); t.on {
		return g.wire + t.delay
	}
	return g.wire + b.replyDelay
}

// tune learns from an exchange that lost no reply. No servo answers before the line has
// carried all bytes.
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
