package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/peers"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

const (
	housekeepingInterval = time.Second
	// Every trimEvery ticks the pool frees the buffers that no observation has needed since the
	// last time. With shorter intervals, it would free buffers that robots with a low rate need
	// again.
	trimEvery = 10
	// tokenTimeout bounds each query for the robots' tokens. Housekeeping sends these queries when
	// some robots seem lost.
	tokenTimeout = 500 * time.Millisecond
	// housekeepingStuckAfter is how long one piece of housekeeping may take before housekeeping is reported as stuck.
	// No piece takes longer than two queries to the network, tokenTimeout each.
	housekeepingStuckAfter = 10 * time.Second

	// idleGCObjects is the number of new heap objects after which an idle server collects garbage by hand, because Go's
	// collector is off while it serves.
	idleGCObjects = 200_000
	// busyGCBytes is the number of new heap bytes after which a server that is never idle collects garbage between two
	// requests. Links, queries and pages that come and go leave such garbage.
	busyGCBytes = 16 << 20
)

// housekeeper is the goroutine for work that may take time and may allocate: it answers queries,
// sends events, closes the sessions of lost robots, and starts garbage collections.
type housekeeper struct {
	// Constant.
	prefix  string             // beginning of the service's keys
	cameras []wire.CameraShape // cameras of the policy
	dials   bool               // the server reaches the network through a router that it dials

	network      wire.Session
	clock        rt.Clock
	log          *slog.Logger
	sessions     *registry
	stats        *stats
	pool         *queue.Pool // pool of the mailboxes
	others       *peers.Others
	certificates *certificates
	engine       *engine
	opener       *opener
	counted      queue.Signal // signals that the number of sessions has changed; nil: in a roll-out's second server
	work         *sync.Mutex  // held during each piece of work: servers of one process share quotas and limits
	queries      *queries
	events       *events
	heap         *collector
	grown        queue.Signal // signals that the mailboxes take more memory than before
	moved        atomic.Int64 // rt.Instant at which housekeeping last began to wait for work; 0: it does not run
	ticks        uint64
}

func (k *housekeeper) run(ctx context.Context) {
	ticker := time.NewTicker(housekeepingInterval)
	defer ticker.Stop()
	defer k.moved.Store(0)
	for {
		k.moved.Store(int64(k.clock.Now()))
		var work func()
		select {
		case q := <-k.queries.waiting:
			work = func() { k.queries.answer(q) }
		case e := <-k.events.waiting:
			work = func() { k.events.send(e) }
		case <-k.others.Changed():
			work = k.opener.dropMoved
		case <-k.counted:
			work = k.opener.announceRoom
		case <-k.heap.worker.collectNow:
			work = runtime.GC
		case <-k.grown:
			work = k.heap.raiseLimit
		case <-ticker.C:
			work = func() { k.tick(ctx) }
		case <-ctx.Done():
			return
		}
		k.work.Lock()
		work()
		k.work.Unlock()
	}
}

// healthy reports whether housekeeping still answers queries and opens sessions, and why not. When it is stuck, robots
// that stream still get chunks.
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
		k.opener.informOfModel(session, now)
	}
	k.engine.endHang(now)
	k.closeLost(ctx, now)
	k.opener.dropMoved()
	if k.opener.second { // the first server does the rest for both servers
		return
	}
	if k.ticks++; k.ticks%trimEvery == 0 {
		k.pool.Trim()
	}
	k.certificates.check(k.network, time.Now(), k.log)
	k.opener.measure()
	k.heap.check()
}

// logStale logs when a robot's pictures become too old, and when they are fresh again.
func (k *housekeeper) logStale(session *session) {
	stale := cameraSet(session.stale.Load())
	switch {
	case stale == session.staleLogged:
	case stale == 0:
		k.log.Info("pictures are fresh again", "client", session.uuid, "session", session.id)
	default:
		k.log.Warn("pictures are older than the robot allows", "client", session.uuid, "session", session.id,
			"cameras", stale.names(k.cameras))
	}
	session.staleLogged = stale
}

// logSqueezed logs, once for each session and camera, that pictures have another shape than the
// policy's.
func (k *housekeeper) logSqueezed(session *session) {
	squeezed := cameraSet(session.squeezed.Load())
	if squeezed &^= session.squeezedLogged; squeezed != 0 {
		k.log.Warn("pictures have another shape than the policy's and are squeezed into it: crop them",
			"client", session.uuid, "session", session.id, "cameras", squeezed.names(k.cameras))
		session.squeezedLogged |= squeezed
	}
}

// closeLost closes the sessions of lost robots. A robot seems lost when its token vanished and did
// not come back, or when nothing was received from it for long. Its session stays when another link
// still shows its token, and while this server has lost the router that it dials. A server that
// only listens needs no check for a lost router: without a link, no robot can reach it.
func (k *housekeeper) closeLost(ctx context.Context, now rt.Instant) {
	var lost []*session
	patience := 2 * (k.engine.sizes.Wait(len(k.sessions.all())) + k.engine.tally.slowest())
	for _, session := range k.sessions.all() {
		if session.lost(now, patience) != "" {
			lost = append(lost, session)
		}
	}
	if len(lost) == 0 || k.dials && !k.network.Connected() {
		return
	}
	present := make(map[string]bool)
	for _, wildcard := range []string{wire.ClientAliveWildcard(k.prefix), wire.EpochAliveWildcard(k.prefix)} {
		keys, err := k.network.Tokens(ctx, wildcard, tokenTimeout)
		if err != nil {
			k.log.Warn("the robots' tokens cannot be queried; their sessions stay", "why", err)
			return
		}
		for _, key := range keys {
			rest, _ := strings.CutPrefix(key, k.prefix+"/")
			uuid, _, _ := strings.Cut(rest, "/")
			present[uuid] = true
		}
	}
	for _, session := range lost {
		why := session.lost(now, patience) // checked again, because the robot may have sent meanwhile
		switch {
		case why == "":
		case present[session.uuid]:
			session.seen(now)
			session.tokenSeen.Store(true)
		default:
			k.opener.evict(session, why)
		}
	}
}

// collector decides when garbage is collected while Go's collector is off.
//
// Owner: housekeeping.
type collector struct {
	memory *memory.Bound // bound on the memory of the robots
	fronts *front.Budget // nil without fronts
	links  int64         // bytes that the links may take. Constant
	stats  *stats
	worker *worker
	hold   *rt.Hold

	last   rt.HeapStat // the heap after the last collection
	served uint64      // number of served requests at the last check
	beside int64       // heap bytes that a roll-out's second model may take
}

// holdGC turns Go's collector off until the returned hold is released, unless the heap grows beyond what a server of
// this size needs.
func (c *collector) holdGC() *rt.Hold {
	c.hold = rt.HoldGC(rt.Headroom + c.links - zenoh.DefaultMemory)
	c.last = rt.ReadHeap()
	return c.hold
}

// raiseLimit adds the memory of robots to the heap's limit.
func (c *collector) raiseLimit() {
	c.hold.Allow(c.memory.Used() + c.fronts.Used() + c.beside)
}

// check requests a collection between two requests from the worker when much garbage has piled up: idleGCObjects
// objects if no robot was served since the last check, because then no robot waits, or busyGCBytes bytes in any case.
func (c *collector) check() {
	served := c.stats.outcomes[audit.Answered].Load()
	idle := served == c.served
	c.served = served
	c.raiseLimit() // also lowers the limit when sessions have ended
	heap := rt.ReadHeap()
	switch {
	// a collection at the worker's signal, by the transport or at the heap's limit
	case heap.Cycles != c.last.Cycles:
		c.last = heap
	case idle && heap.Allocs-c.last.Allocs > idleGCObjects,
		heap.Bytes-c.last.Bytes > busyGCBytes:
		c.worker.collectNext()
	}
}

// certified is a network session that can report findings on its own certificates.
type certified interface {
	Certificates(now time.Time) []endpoint.Finding
}

// certificates holds the findings on the certificates by which robots reach the server.
type certificates struct {
	found atomic.Pointer[[]endpoint.Finding]
}

// check reads the findings, and logs each new one and the moment when all are resolved.
//
// Owner: housekeeping.
func (c *certificates) check(network wire.Session, now time.Time, log *slog.Logger) {
	// with fronts the session is wrapped, see wire/local
	if joined, ok := network.(interface{ Unwrap() wire.Session }); ok {
		network = joined.Unwrap()
	}
	shown, ok := network.(certified)
	if !ok {
		return
	}
	before, found := c.all(), shown.Certificates(now)
	for _, f := range found {
		switch {
		case slices.Contains(before, f):
		case f.Refused:
			log.Error("NO ROBOT CAN CONNECT", "why", f.Text, "clock", now.UTC().Format(time.RFC3339))
		default:
			log.Warn("certificate", "why", f.Text)
		}
	}
	if len(before) > 0 && len(found) == 0 {
		log.Info("the certificates are in order again")
	}
	c.found.Store(&found)
}

// all returns the findings of the last check.
//
// Owner: any goroutine.
func (c *certificates) all() []endpoint.Finding {
	if found := c.found.Load(); found != nil {
		return *found
	}
	return nil
}

// texts returns the texts of all findings.
func (c *certificates) texts() (texts []string) {
	for _, f := range c.all() {
		texts = append(texts, f.Text)
	}
	return texts
}

// usable reports whether the certificates let robots connect, and why not.
func (c *certificates) usable() (ok bool, why string) {
	var texts []string
	for _, f := range c.all() {
		if f.Refused {
			texts = append(texts, f.Text)
		}
	}
	return len(texts) == 0, strings.Join(texts, "; ")
}
