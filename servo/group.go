package servo

import (
	"time"

	"edgert/rt"
	"edgert/servo/packet"
	"edgert/servo/table"
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
	tunings   [2]tuning     // of plain reads and of fast ones

	fast         bool // one merged reply
	merged       packet.Fast
	broken       bool   // and it is damaged
	retryRequest []byte // to those who did not answer, built anew each time
	retryIDs     []byte
	each         []*readGroup // protocols without a sync read ask each servo by itself
}

// newGroup prepares the reading of n bytes from addr of several servos.
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
	g.wire = time.Duration(float64(len(g.request)+packet.FastSize(len(g.ids), g.params))*b.byteNs) + replyGap
}

// expect sets who is expected to answer.
func (g *readGroup) expect(ids ...ID) {
	for i := range g.slot {
		g.slot[i] = -1
	}
	for i, id := range ids {
		g.slot[id] = int8(i)
	}
}

// param returns what index i answered.
//
//rt:noalloc
func (g *readGroup) param(i int) []byte { return g.data[i*g.params : (i+1)*g.params] }

// missing returns the bits of those that gave no data.
//
//rt:noalloc
func (g *readGroup) missing() uint32 { return g.all&^g.answered | g.refused }

// wireTime computes how long a request and its replies occupy the line.
//
//rt:noalloc
func (b *Bus) wireTime(request, replies, params int) time.Duration {
	size := request + replies*(b.format.Overhead()+params)
	return time.Duration(float64(size)*b.byteNs) + time.Duration(replies)*replyGap
}

// window is a stretch of registers of one servo that is read at once.
type window struct {
	unit     int
	bit      uint32 // of the unit's windows
	verifies bool   // it shows whether the servo is the one that it was
	hasLoad  bool   // and how hard it works
	group    *readGroup
}

// windowSpec is where a window begins and ends; a model that lacks the last register
// ends with the one before.
type windowSpec struct {
	from     table.Register
	to       [2]table.Register
	verifies bool
}

// windowSpecs are those worth reading.
var windowSpecs = map[table.Protocol][]windowSpec{
	table.Feetech:    {{table.TorqueEnable, [2]table.Register{table.PresentCurrent, table.PresentTemperature}, true}},
	table.FeetechSCS: {{table.TorqueEnable, [2]table.Register{table.PresentTemperature}, true}},
	table.Dynamixel1: {{table.TorqueEnable, [2]table.Register{table.PresentTemperature}, true}},
	table.Dynamixel2: {
		{table.TorqueEnable, [2]table.Register{table.Status}, true},
		{table.PresentVoltage, [2]table.Register{table.PresentTemperature}, false},
		{table.BusWatchdog, [2]table.Register{table.PresentCurrent, table.PresentLoad}, true},
	},
}

// newHealth prepares the windows of every servo.
func newHealth(a *Arm) *health {
	n := len(a.joints)
	h := &health{units: make([]unitHealth, len(a.units)), streak: make([]int, n), encoders: make([]encoder, n), lastFaults: make([]Fault, n), off: make([]int, len(a.units)), zeros: make([]ID, 0, len(a.units)), exceeded: make([]Fault, n)}
	for i, u := range a.units {
		h.units[i].setBounds(a.robot.Motors[u.joint].Bounds)
		for _, s := range windowSpecs[a.bus.protocol] {
			from, to := u.model.Row(s.from), u.model.Row(s.to[0])
			if to.Size == 0 {
				to = u.model.Row(s.to[1])
			}
			size := to.Addr + to.Size - from.Addr
			g := &readGroup{ids: []ID{u.id}, addr: from.Addr, params: size, all: 1, data: make([]byte, size), errs: make([]byte, 1)}
			g.expect(u.id)
			g.request = a.bus.format.AppendRead(nil, u.id, from.Addr, size)
			g.wire = a.bus.wireTime(len(g.request), 1, size)
			w := window{unit: i, bit: 1 << (len(h.windows) % 32), verifies: s.verifies, group: g}
			w.hasLoad = !u.shadow && (w.covers(u.model.Row(table.PresentLoad)) || w.covers(u.model.Row(table.PresentCurrent)))
			h.windows = append(h.windows, w)
		}
	}
	return h
}

// covers reports whether a register lies in the window.
//
//rt:noalloc
func (w *window) covers(r table.Row) bool {
	at := r.Addr - w.group.addr
	return r.Size != 0 && at >= 0 && at+r.Size <= w.group.params
}

// value takes a register out of the window.
//
//rt:noalloc
func (w *window) value(r table.Row) (v int, ok bool) {
	if !w.covers(r) {
		return 0, false
	}
	return r.Decode(w.group.data[r.Addr-w.group.addr:]), true
}

// windowDeadline is until when a window may be read. Where the reads leave no tick the
// time for it, as at high rates or with a slow adapter, one in healthEvery runs over
// its deadline: a motor that is never compared would be held for ever.
//
//rt:noalloc
func (a *Arm) windowDeadline(w *window, deadline rt.Instant) (end rt.Instant, ok bool) {
	h, now := a.health, a.clock.Now()
	if a.fits(w, 0, deadline) {
		h.crowdedSince = 0
		return deadline, true
	}
	if h.crowdedSince == 0 {
		h.crowdedSince = now
	}
	if now.Sub(h.crowdedSince) < healthEvery {
		return deadline, false
	}
	h.crowdedSince = 0
	return now.Add(w.group.wire + a.bus.replyDelay + healthLoss), true
}
