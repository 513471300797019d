package server

import (
	"runtime/debug"
	"testing"
	"time"

	"edgert/rt"
	"edgert/server/audit"
	"edgert/server/queue"
	"edgert/wire"
)

var garbage []byte

// Goal: a server that is never idle collects what links, queries and pages leave,
// by hand and between two requests: the housekeeping only requests it, since
// between its check and a collection the next request would begin.
func TestBusyServerCollectsBetweenRequests(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	b := newBench(t, config())
	s := b.server
	s.housekeeper.heap.last = rt.ReadHeap()
	check := func() (requested bool) {
		s.stats.outcomes[audit.Answered].Add(1) // a robot is served
		before := rt.ReadHeap().Forced
		s.housekeeper.heap.check()
		if n := rt.ReadHeap().Forced - before; n != 0 {
			t.Errorf("the housekeeping collects %d times by itself", n)
		}
		return s.worker.collectDue.Load()
	}
	if check() {
		t.Error("nothing is to be collected")
	}
	for range 2 * busyGCBytes >> 16 {
		garbage = make([]byte, 1<<16)
	}
	if !check() {
		t.Errorf("%d bytes of garbage are not to be collected", 2*busyGCBytes)
	}
}

// Goal: a worker that always has a request waiting collects between two of them
// when it is asked to, once.
func TestSaturatedWorkerCollects(t *testing.T) {
	const requests, asked = 20, 5
	var r *robot
	var forced []uint64 // collections seen at the begin of each inference
	o := fakeObs(t)
	b := serve(t, config(), func(b *bench) {
		b.model.Before = func() error {
			if r == nil {
				return nil // warm-up
			}
			forced = append(forced, rt.ReadHeap().Forced)
			if len(forced) == asked {
				b.server.worker.collectNext()
			}
			if n := len(forced); n < requests { // the next is there before this one ends
				r.send(wire.Header{SchemaVersion: 1, MsgType: wire.MsgObservation, SeqID: uint64(n + 1)}, o)
			}
			return nil
		}
	})
	b.open(fakeOpen("arm"))
	r = b.robot("arm")
	r.send(wire.Header{SchemaVersion: 1, MsgType: wire.MsgObservation, SeqID: 1}, o)
	for range requests {
		r.next()
	}
	if forced[asked]-forced[asked-1] != 1 || forced[requests-1]-forced[0] != 1 {
		t.Errorf("collections at the begin of each request: %v, want one more behind request %d", forced, asked)
	}
}

// Goal: it is counted how long what was due during a collection waited for its end, a
// run that was over and an observation that came while nothing ran.
func TestWhatACollectionHoldsUpIsCounted(t *testing.T) {
	const ms = time.Millisecond
	b := newBench(t, config())
	w := b.server.worker
	o := fakeOpen("arm")
	if ack := b.server.queries.open(&o, wire.Origin{}); !ack.Accepted {
		t.Fatal(ack.Error)
	}
	body, key := wire.AppendObservation(nil, fakeObs(t)), ""
	key, _ = wire.ObsKey(b.server.Prefix(), "arm")
	seq := uint64(0)
	ask := func() {
		seq++
		b.server.receiver.onObservation(wire.Sample{Key: key, Payload: body, Attachment: wire.AppendHeader(nil, obsHeader(0, seq))})
	}
	want := func(what string, held time.Duration) {
		t.Helper()
		if got := b.server.Summary().GCDelayMaxMs; got != float64(held)/1e6 {
			t.Errorf("%s: held up %v ms, want %v", what, got, held)
		}
	}
	b.clock.Advance(time.Second)
	collects := func(before, after time.Duration) {
		w.collected = span{b.clock.Now().Add(-before), b.clock.Now().Add(after)}
	}
	ask()
	collects(5*ms, -ms)
	serveOne(w)
	want("a collection that was over", 0)
	b.model.Ran = func(int, int) { w.collected = span{} }
	ask()
	collects(5*ms, 2*ms)
	serveOne(w)
	want("an observation during a collection", 2*ms)
	b.model.Ran = func(int, int) { collects(ms, 3*ms) }
	ask()
	w.collected = span{}
	serveOne(w)
	want("a run that ended during a collection", 3*ms)
	b.model.Ran = nil
	ask()
	collects(ms, ms)
	serveOne(w)
	want("a shorter one", 3*ms)
}

// Goal: what a robot's mailbox takes is the server's own, and no reason to
// collect.
func TestMailboxesRaiseTheHeapLimit(t *testing.T) {
	b := newBench(t, config())
	s := b.server
	s.housekeeper.heap.hold = rt.HoldGC(0)
	defer s.housekeeper.heap.hold.Release()
	limit := debug.SetMemoryLimit(-1)
	session := newSession("arm", s.pool, 1<<20)
	for seq := range uint64(3) { // none is given back
		session.mailbox.Put(&wire.Header{SeqID: seq + 1}, make([]byte, 1<<20), 1, queue.NoDeadline)
		session.mailbox.Take()
	}
	s.housekeeper.heap.raiseLimit()
	if got, want := debug.SetMemoryLimit(-1)-limit, int64(3<<20); got != want {
		t.Errorf("the limit moved by %d bytes for three buffers, want %d", got, want)
	}
}
