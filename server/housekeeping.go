package server

import (
	"context"
	"strings"
	"time"

	"edgert/rt"
	"edgert/wire"
)

const (
	housekeepingInterval = time.Second
	// tokenTimeout bounds the query which robots are really gone.
	tokenTimeout = 500 * time.Millisecond
)

// housekeeper is the goroutine for what may take time and may allocate: queries,
// events, and the sessions and the garbage that robots leave.
type housekeeper struct {
	*service
	queries *queries
	events  *events
	heap    *collector
	grown   chan struct{} // cap 1: a mailbox takes more memory than before
}

// run ends with ctx.
func (k *housekeeper) run(ctx context.Context) {
	ticker := time.NewTicker(housekeepingInterval)
	defer ticker.Stop()
	for {
		select {
		case q := <-k.queries.waiting:
			k.queries.answer(q)
		case e := <-k.events.waiting:
			k.events.send(e)
		case <-k.grown:
			k.heap.raiseLimit()
		case <-ticker.C:
			k.tick(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (k *housekeeper) tick(ctx context.Context) {
	now := k.clock.Now()
	k.events.forgetSilent(now)
	for _, session := range k.sessions.all() {
		k.logStale(session)
	}
	k.closeLost(ctx, now)
	k.heap.check()
}

// logStale logs when a robot's camera falls behind, and when it is back. A camera
// that does both again and again costs a line each time.
func (k *housekeeper) logStale(session *Session) {
	stale := cameraSet(session.stale.Load())
	switch {
	case stale == session.staleLogged:
	case stale == 0:
		k.log.Info("pictures are fresh again", "client", session.uuid)
	default:
		k.log.Warn("pictures are older than the robot allows", "client", session.uuid, "cameras", stale.names(k.caps.CameraShapes))
	}
	session.staleLogged = stale
}

// closeLost closes the sessions of robots that are gone: the token vanished and
// stayed away, or nothing was received for long. A token that another link still
// shows saves the session, and so does being cut off ourselves.
func (k *housekeeper) closeLost(ctx context.Context, now rt.Instant) {
	var lost []*Session
	for _, session := range k.sessions.all() {
		if session.lost(now) != "" {
			lost = append(lost, session)
		}
	}
	if len(lost) == 0 || !k.network.Connected() {
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
		why := session.lost(now) // it may have sent meanwhile
		switch {
		case why == "":
		case present[session.uuid]:
			session.seen(now)
		default:
			k.queries.drop(session, why)
		}
	}
}
