package server

import (
	"runtime/debug"
	"testing"

	"edgert/rt"
	"edgert/wire"
)

var garbage []byte

// Goal: a server that is never idle collects what links, queries and pages leave,
// by hand and between two requests, and its mailboxes move the fuse.
func TestBusyServerCollectsBetweenRequests(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	b := newBench(t, config())
	s := b.server
	s.collected = rt.ReadHeap()
	look := func() (forced uint64) {
		s.stats.outcomes[answered].Add(1) // a robot is served
		before := rt.ReadHeap().Forced
		s.collectHeap()
		return rt.ReadHeap().Forced - before
	}
	if n := look(); n != 0 {
		t.Errorf("%d collections of nothing", n)
	}
	for range 2 * busyGCBytes >> 16 {
		garbage = make([]byte, 1<<16)
	}
	s.worker.busySince.Store(1)
	if n := look(); n != 0 {
		t.Errorf("%d collections while a request is in hand", n)
	}
	s.worker.busySince.Store(0)
	if n := look(); n != 1 {
		t.Errorf("%d collections of %d bytes between two requests, want 1", n, 2*busyGCBytes)
	}
	if n := look(); n != 0 {
		t.Errorf("%d collections right after one", n)
	}
}

// Goal: what a robot's mailbox takes is the server's own, and no reason to
// collect.
func TestMailboxesMoveTheFuse(t *testing.T) {
	b := newBench(t, config())
	s := b.server
	s.gc = rt.HoldGC(0)
	defer s.gc.Release()
	fuse := debug.SetMemoryLimit(-1)
	session := newSession("arm")
	s.sessions.add(session)
	for seq := range uint64(3) {
		session.deposit(wire.Header{SeqID: seq + 1}, make([]byte, 1<<20), 1)
		session.box.take()
	}
	s.collectHeap()
	if got, want := debug.SetMemoryLimit(-1)-fuse, int64(3*roomFor(1<<20)); got != want {
		t.Errorf("the fuse moved by %d bytes for three buffers, want %d", got, want)
	}
}
