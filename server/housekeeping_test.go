package server

import (
	"runtime/debug"
	"testing"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/wire"
)

var garbage []byte

// Goal: a server that is never idle collects the garbage of links, queries and pages between two
// requests. Housekeeping only requests a collection, because the worker knows when a collection
// delays no request.
func TestBusyServerCollectsBetweenRequests(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	b := newBench(t, config())
	s := b.server
	s.housekeeper.heap.last = rt.ReadHeap()
	check := func() (requested bool) {
		s.stats.outcomes[audit.Answered].Add(1) // a robot's request was answered
		before := rt.ReadHeap().Forced
		s.housekeeper.heap.check()
		rttest.Want(t, rt.ReadHeap().Forced-before, 0, "collections by the housekeeping itself")
		return s.worker.collectDue.Load()
	}
	if check() {
		t.Error("no garbage is due for collection")
	}
	for range 2 * busyGCBytes >> 16 {
		garbage = make([]byte, 1<<16)
	}
	if !check() {
		t.Errorf("%d bytes of garbage are not to be collected", 2*busyGCBytes)
	}
}

// Goal: a worker that always has a waiting request starts one collection when one is requested. The
// collection runs on another goroutine, and the worker does not wait for its end.
func TestSaturatedWorkerCollects(t *testing.T) {
	const asked = 5
	var r *robot
	var requests int
	var before uint64 // number of collections when the first inference began
	collected := func() uint64 { return rt.ReadHeap().Forced - before }
	o, over := fakeObs(t), make(chan struct{})
	b := serve(t, config(), func(b *bench) {
		b.model.Before = func() error {
			if r == nil {
				return nil // a run of the warm-up
			}
			switch requests++; requests {
			case 1:
				before = rt.ReadHeap().Forced
			case asked:
				b.server.worker.collectNext()
			}
			select {
			case <-over:
			default: // the next request arrives before this one ends
				r.send(wire.Header{SchemaVersion: 1, MsgType: wire.MsgObservation, SeqID: uint64(requests + 1)}, o)
			}
			return nil
		}
	})
	b.open(fakeOpen("arm"))
	r = b.robot("arm")
	r.send(wire.Header{SchemaVersion: 1, MsgType: wire.MsgObservation, SeqID: 1}, o)
	n := 0
	for ; n <= asked || n < 100_000 && collected() == 0; n++ {
		r.next()
	}
	for range 20 {
		r.next()
	}
	close(over)
	if got := collected(); got != 1 || b.server.worker.collectDue.Load() {
		t.Errorf("%d collections in %d requests, want one behind request %d", got, n, asked)
	}
	if s := b.server.summary(); s.GCPauseMaxMs <= 0 {
		t.Errorf("the longest pause is %v ms", s.GCPauseMaxMs)
	}
}

// Goal: the memory of a robot's mailbox raises the heap's limit. So it causes no garbage collection.
func TestMailboxesRaiseTheHeapLimit(t *testing.T) {
	b := newBench(t, config())
	s := b.server
	s.housekeeper.heap.hold = rt.HoldGC(0)
	defer s.housekeeper.heap.hold.Release()
	limit := debug.SetMemoryLimit(-1)
	session := newSession("arm", s.pool, 1<<20)
	for seq := range uint64(3) { // the test keeps these buffers
		session.mailbox.Put(&wire.Header{SeqID: seq + 1}, make([]byte, 1<<20), 1,
			queue.Schedule{Deadline: queue.NoDeadline})
		session.mailbox.Take()
	}
	s.housekeeper.heap.raiseLimit()
	rttest.Want(t, debug.SetMemoryLimit(-1)-limit, int64(3<<20), "bytes by which three buffers move the limit")
}
