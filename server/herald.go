package server

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"edgert/internal/notify"
	"edgert/rt"
)

// heraldEvery is how often the herald looks; what it says may be that old.
const heraldEvery = 200 * time.Millisecond

// herald tells the service manager how the server is: ready when robots get
// chunks, alive while the worker makes progress, and how many robots there are.
type herald struct {
	socket *notify.Socket
	server *Server
	ready  bool
	told   int        // sessions
	busy   rt.Instant // worker.busySince at the last look
	moved  bool       // the worker has made progress since the watchdog was fed
	fed    rt.Instant
}

// openHerald returns the way to the manager, which may be nobody.
func openHerald(log *slog.Logger) *notify.Socket {
	socket, err := notify.Open()
	if err != nil {
		log.Warn("the service manager does not hear how the server is", "why", err)
	}
	socket.Status("loading the policy")
	return socket
}

// announce starts the herald of s, which says that the server is leaving when
// ctx is done. The returned function ends it.
func announce(ctx context.Context, socket *notify.Socket, s *Server) (end func()) {
	h := &herald{socket: socket, server: s, told: -1}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(heraldEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				h.look(s.clock.Now())
			case <-ctx.Done():
				socket.Status("draining")
				socket.Stopping()
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// look passes on what is new; what the manager had no room for is said again.
// It allocates when the number of sessions has changed.
func (h *herald) look(now rt.Instant) {
	ok, _ := h.server.Ready()
	if !h.ready {
		h.ready = ok && h.socket.Ready()
	}
	if n := len(h.server.sessions.all()); h.ready && n != h.told {
		if h.socket.Status("serving " + h.server.prefix + ", sessions: " + strconv.Itoa(n)) {
			h.told = n
		}
	}
	h.moved = h.progress() || h.moved
	if every := h.socket.Interval(); every > 0 && h.moved && now.Sub(h.fed) >= every && h.socket.Watchdog() {
		h.moved, h.fed = false, now
	}
}

// progress reports whether the worker has got anywhere since the last look: it
// has begun or ended a request, or, idle, it has woken up for the poke that each
// look leaves it. A worker that is stuck in a request, or is no more, does
// neither.
//
//rt:noalloc
func (h *herald) progress() bool {
	w := h.server.worker
	busy := rt.Instant(w.busySince.Load())
	moved := busy != h.busy || len(w.wake) == 0
	h.busy = busy
	poke(w.wake)
	return moved
}
