package front

import (
	"context"
	"log/slog"
	"sync"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/local"
)

// Fronts are all fronts of a server. The zero Fronts are none.
type Fronts struct {
	list   []Front
	to     Gateway
	cancel context.CancelFunc
	served sync.WaitGroup
	failed chan error
}

// Join returns the session that a server with fronts uses in the place of network: without fronts
// it is network. budget is that of the fronts.
func (f *Fronts) Join(list []Front, network wire.Session, budget *Budget) wire.Session {
	if len(list) == 0 {
		return network
	}
	f.list, f.to.Bus = list, local.Join(network)
	f.to.Budget = budget
	f.failed = make(chan error, len(list))
	return f.to.Bus.Server()
}

// Start serves the clients of all fronts, once the server gives chunks.
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

// Failed returns a channel with the error of a front that ended; nil without fronts.
func (f *Fronts) Failed() <-chan error { return f.failed }

// Stop ends the clients' sessions and waits for it.
func (f *Fronts) Stop() {
	if f.cancel != nil {
		f.cancel()
		f.served.Wait()
	}
}
