package server

import (
	"runtime/debug"
	"testing"

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
