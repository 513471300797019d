package uplink

import (
	"errors"
	"sync"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// refusalsMax is the number of refused handshakes in a row, at each endpoint, after which the run
// ends: a server that exchanges its certificates refuses for a moment.
const refusalsMax = 3

// Refusals counts the TLS handshakes that were refused for an identity or a certificate: retries do
// not cure them. A certificate that is not valid at this time is no refusal, since a clock without a
// battery is wrong until the network sets it.
//
// Any thread may use it.
type Refusals struct {
	endpoints int    // of the configuration
	final     func() // called once, when every endpoint has refused

	mu    sync.Mutex
	inRow map[string]int // by endpoint
	err   error          // of the last refusal, once every endpoint has refused
}

// NewRefusals returns a counter for this number of different endpoints, which calls final once.
func NewRefusals(endpoints int, final func()) *Refusals {
	return &Refusals{endpoints: endpoints, final: final, inRow: map[string]int{}}
}

// Note takes an event of a link.
func (r *Refusals) Note(e zenoh.LinkEvent) {
	var trust *endpoint.AuthError
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Up || !errors.As(e.Err, &trust) || trust.Dated {
		delete(r.inRow, e.Endpoint)
		return
	}
	r.inRow[e.Endpoint]++
	if r.err != nil || len(r.inRow) < r.endpoints {
		return
	}
	for _, n := range r.inRow {
		if n < refusalsMax {
			return
		}
	}
	r.err = exit.With(exit.Config, e.Err)
	r.final()
}

// Err returns the refusal that ends the run, nil without one.
func (r *Refusals) Err() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
