package server

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"edgert/rt"
	"edgert/server/audit"
	"edgert/wire"
	"edgert/wire/zenoh"
)

const (
	housekeepingInterval = time.Second
	// trimEvery so many ticks the buffers go that no observation needed meanwhile: more
	// often they would be made anew for robots that ask seldom.
	trimEvery = 10
	// tokenTimeout bounds the query which robots are really gone.
	tokenTimeout = 500 * time.Millisecond
	// housekeepingStuckAfter is how long one thing that it does may take until it counts
	// as stuck. None takes longer than two queries to the network, tokenTimeout each.
	housekeepingStuckAfter = 10 * time.Second

	// idleGCObjects is how many heap objects may pile up before an idle server
	// collects by hand; the collector is off while it serves.
	idleGCObjects = 200_000
	// busyGCBytes of garbage, from links, queries and pages that come and go, are
	// collected between two requests of a server that is never idle.
	busyGCBytes = 16 << 20
)

// housekeeper is the goroutine for what may take time and may allocate: queries,
// events, and the sessions and the garbage that robots leave.
type housekeeper struct {
	*service
	queries *queries
	events  *events
	heap    *collector
	grown   chan struct{} // cap 1: the mailboxes take more memory than before
	moved   atomic.Int64  // rt.Instant at which it last began to wait for something to do; 0: it does not run
	ticks   uint64
}

func (k *housekeeper) run(ctx context.Context) {
	ticker := time.NewTicker(housekeepingInterval)
	defer ticker.Stop()
	defer k.moved.Store(0)
	for {
		k.moved.Store(int64(k.clock.Now()))
		select {
		case q := <-k.queries.waiting:
			k.queries.answer(q)
		case e := <-k.events.waiting:
			k.events.send(e)
		case <-k.others.Changed():
			k.queries.yield()
		case <-k.queries.counted:
			k.queries.announceRoom()
		case <-k.heap.worker.collectNow:
			runtime.GC()
		case <-k.grown:
			k.heap.raiseLimit()
		case <-ticker.C:
			k.tick(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// healthy reports whether queries are answered and sessions opened. What the
// housekeeping does not do any more, robots do not notice: those that stream stay.
//
// Owner: any goroutine.
func (k *housekeeper) healthy() (ok bool, why string) {
	moved := rt.Instant(k.moved.Load())
	if quiet := k.clock.Now().Sub(moved); moved != 0 && quiet > housekeepingStuckAfter {
		return false, fmt.Sprintf("housekeeping stuck for %.0f s: no session opens here", quiet.Seconds())
	}
	return true, ""
}

func (k *housekeeper) tick(ctx context.Context) {
	now := k.clock.Now()
	for _, session := range k.sessions.all() {
		k.logStale(session)
		k.logSqueezed(session)
	}
	k.heap.worker.endHang(now)
	if k.ticks++; k.ticks%trimEvery == 0 {
		k.pool.Trim()
	}
	k.certificates.look(k.network, time.Now(), k.log)
	k.queries.measure()
	k.closeLost(ctx, now)
	k.queries.yield()
	k.heap.check()
}

// logStale logs when a robot's camera falls behind, and when it is back.
func (k *housekeeper) logStale(session *Session) {
	stale := cameraSet(session.stale.Load())
	switch {
	case stale == session.staleLogged:
	case stale == 0:
		k.log.Info("pictures are fresh again", "client", session.uuid, "session", session.id)
	default:
		k.log.Warn("pictures are older than the robot allows", "client", session.uuid, "session", session.id, "cameras", stale.names(k.caps.CameraShapes))
	}
	session.staleLogged = stale
}

// logSqueezed logs, once for each session and camera, that pictures have another shape
// than the policy's.
func (k *housekeeper) logSqueezed(session *Session) {
	squeezed := cameraSet(session.squeezed.Load())
	if squeezed &^= session.squeezedLogged; squeezed != 0 {
		k.log.Warn("pictures have another shape than the policy's and are squeezed into it: crop them", "client", session.uuid, "session", session.id, "cameras", squeezed.names(k.caps.CameraShapes))
		session.squeezedLogged |= squeezed
	}
}

// closeLost closes the sessions of robots that are gone: the token vanished and
// stayed away, or nothing was received for long. A token that another link still
// shows saves the session, and so does being cut off from a router that we dial; one
// that only listens and has no link is cut off from nobody who is there.
func (k *housekeeper) closeLost(ctx context.Context, now rt.Instant) {
	var lost []*Session
	patience := 2 * (k.queries.sizes.Turn(len(k.sessions.all())) + k.slowest())
	for _, session := range k.sessions.all() {
		if session.lost(now, patience) != "" {
			lost = append(lost, session)
		}
	}
	if len(lost) == 0 || len(k.cfg.Zenoh.ConnectEndpoints) > 0 && !k.network.Connected() {
		return
	}
	present := make(map[string]bool)
	for _, wildcard := range []string{wire.ClientAliveWildcard(k.prefix), wire.EpochAliveWildcard(k.prefix)} {
		keys, err := k.network.Tokens(ctx, wildcard, tokenTimeout)
		if err != nil {
			k.log.Warn("cannot ask which robots are there; their sessions stay", "why", err)
			return
		}
		for _, key := range keys {
			rest, _ := strings.CutPrefix(key, k.prefix+"/")
			uuid, _, _ := strings.Cut(rest, "/")
			present[uuid] = true
		}
	}
	for _, session := range lost {
		why := session.lost(now, patience) // it may have sent meanwhile
		switch {
		case why == "":
		case present[session.uuid]:
			session.seen(now)
			session.tokenSeen.Store(true)
		default:
			k.queries.evict(session, why)
		}
	}
}

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
func (c *collector) holdGC() *rt.Hold {
	c.hold = rt.HoldGC(rt.Headroom + c.cfg.TransportMemory() - zenoh.DefaultMemory)
	c.last = rt.ReadHeap()
	return c.hold
}

// raiseLimit adds what robots take to the heap's limit.
func (c *collector) raiseLimit() {
	c.hold.Allow(c.memory.Used())
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
