package server

import (
	"edgert/rt"
	"edgert/server/audit"
	"edgert/server/manifest"
)

const (
	// idleGCObjects is how many heap objects may pile up before an idle server
	// collects by hand; the collector is off while it serves.
	idleGCObjects = 200_000
	// busyGCBytes is how much garbage a server that is never idle collects by
	// hand, between two requests. Robots that behave leave none: it comes from
	// links, queries and pages that come and go, well before the limit of rt.HoldGC.
	busyGCBytes = 16 << 20
)

// collector decides when garbage is collected while the collector itself is off.
//
// Owner: housekeeping.
type collector struct {
	*service
	worker *worker
	hold   *rt.Hold

	last   rt.HeapStat // after the last collection
	served uint64      // requests at the last check
}

// holdGC turns Go's collector off until the returned hold is released, unless the
// heap grows beyond what a server of this size needs.
func (c *collector) holdGC(observationMax int) *rt.Hold {
	c.hold = rt.HoldGC(rt.Headroom + int64(c.limit)*manifest.SessionMemory + c.worker.audit.MemoryMax(observationMax))
	c.last = rt.ReadHeap()
	return c.hold
}

// raiseLimit adds what the mailboxes take to the heap's limit.
func (c *collector) raiseLimit() {
	var mailboxes int64
	for _, session := range c.sessions.all() {
		mailboxes += session.mailbox.size.Load()
	}
	c.hold.Allow(mailboxes)
}

// check has garbage collected by hand when no robot was served since the last
// check, so that the collector never has to run while one waits, and between two
// requests when much has piled up meanwhile.
func (c *collector) check() {
	served := c.stats.outcomes[audit.Answered].Load()
	idle := served == c.served
	c.served = served
	c.raiseLimit() // or lower it: sessions have ended
	heap := rt.ReadHeap()
	switch {
	case heap.Cycles != c.last.Cycles: // the worker, the limit, or the transport
		c.last = heap
	case idle && heap.Allocs-c.last.Allocs > idleGCObjects,
		heap.Bytes-c.last.Bytes > busyGCBytes:
		c.worker.collectNext()
	}
}
