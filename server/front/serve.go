package front

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/local"
)

// Fronts are all fronts of a server. The zero value has no front.
type Fronts struct {
	list   []Front
	to     Gateway
	cancel context.CancelFunc
	served sync.WaitGroup
	failed chan error
}

// Join adds fronts to a network. It returns the session that the server uses in place of network; without fronts, it
// returns network. All fronts share the budget.
func (f *Fronts) Join(list []Front, network wire.Session, budget *Budget) wire.Session {
	if len(list) == 0 {
		return network
	}
	f.list, f.to.Bus = list, local.Join(network)
	f.to.Budget = budget
	f.failed = make(chan error, len(list))
	return f.to.Bus.Server()
}

// Start begins to serve the clients of all fronts. The server calls it when it is ready to compute chunks.
func (f *Fronts) Start(prefix string, meta *policy.Meta, counts *Counts, log *slog.Logger) {
	f.to.Prefix = prefix
	f.to.Meta = meta
	f.to.Counts = counts
	f.to.Log = log
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	for _, one := range f.list {
		f.served.Go(func() {
			if err := one.Serve(ctx, &f.to); err != nil {
				f.failed <- err
			}
		})
	}
}

// Budget returns the budget of the fronts; nil without fronts.
func (f *Fronts) Budget() *Budget { return f.to.Budget }

// Failed returns a channel that gets the error of a front that ended; nil without fronts.
func (f *Fronts) Failed() <-chan error { return f.failed }

// Stop ends the clients' sessions and waits until all have ended.
func (f *Fronts) Stop() {
	if f.cancel != nil {
		f.cancel()
		f.served.Wait()
	}
}

const (
	// connectionsMost bounds the connections of one front. At the bound, a new connection takes the place of a
	// connection that has got no chunk yet, as a new robot takes the session of a silent robot at a full server.
	connectionsMost = 128
	// receiveMost bounds the received bytes of one connection that no call has read yet. The budget does not count
	// these bytes. All connections together have 32 MiB.
	receiveMost = 256 << 10
	// streamsMost bounds the calls of one connection that are under way; LeRobot's client has two.
	streamsMost = 4
	headerMost  = 16 << 10 // bytes of a request's header
	headerTime  = 5 * time.Second
	// idleTime is the longest time for which a connection may have no call. A running LeRobot
	// client always has a call, GetActions.
	idleTime = time.Minute
	// A connection without traffic for aliveTime is pinged. It is closed when no answer comes
	// within aliveTimeout, because its client is then gone.
	aliveTime, aliveTimeout = 10 * time.Second, 5 * time.Second
	// stopTime is how long calls under way may take when the front stops.
	stopTime = 500 * time.Millisecond
)

// Serve answers the clients of one front by s.Handler until ctx is done. Then it ends the contexts of the requests,
// too.
func (g *Gateway) Serve(ctx context.Context, kind Kind, l net.Listener, s *http.Server) error {
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var serving sync.RWMutex // not a WaitGroup, because a connection that Close missed may still begin a request
	handler := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !serving.TryRLock() {
			return
		}
		defer serving.RUnlock()
		handler.ServeHTTP(w, r)
	})
	s.BaseContext = func(net.Listener) context.Context { return calls }
	s.ConnContext = listen.ConnContext
	s.ReadHeaderTimeout, s.IdleTimeout = headerTime, idleTime
	s.MaxHeaderBytes = headerMost
	s.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams:          streamsMost,
		MaxReceiveBufferPerConnection: receiveMost,
		MaxReceiveBufferPerStream:     receiveMost,
		SendPingTimeout:               aliveTime,
		PingTimeout:                   aliveTimeout,
		WriteByteTimeout:              aliveTime,
	}
	s.ErrorLog = slog.NewLogLogger(g.Log.Handler(), slog.LevelDebug)
	served := make(chan error, 1)
	paced := listen.Pace(l, connectionsMost, func(why error) {
		g.Counts.Refused[kind][TooLarge].Add(1)
		if why != nil {
			g.Log.Warn("too many connections to the front for "+kind.String()+" clients", "why", why)
		}
	})
	limited := listen.Limit(paced, connectionsMost, func(from net.Addr) {
		g.Counts.Refused[kind][TooLarge].Add(1)
		g.Log.Warn("too many connections to the front for "+kind.String()+" clients", "max", connectionsMost, "from",
			from.String())
	})
	go func() { served <- s.Serve(limited) }()
	var err error
	select {
	case <-ctx.Done():
		hurry, stop := context.WithTimeout(calls, stopTime)
		_ = s.Shutdown(hurry) // Close ends the remaining calls
		stop()
	case err = <-served:
		err = fmt.Errorf("fronts.%s: %w", kind, err)
	}
	cancel()
	_ = s.Close()
	serving.Lock() // never unlocked, so that no further request is served
	return err
}
