package uplink

import (
	"errors"
	"sync"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// refusalsMax is the number of refused handshakes in a row, at each endpoint, after which the run ends: while a server
// replaces its certificates, it refuses handshakes for a moment.
const refusalsMax = 3

// Refusals counts the TLS handshakes that failed because of an identity or a certificate. Retries do not cure such a
// failure. A certificate that is not valid at this time is no refusal, since a clock without a battery is wrong until
// the network sets it.
//
// Any thread may use it.
type Refusals struct {
	endpoints int    // number of different endpoints in the configuration
	final     func() // called once, when every endpoint has refused

	mu    sync.Mutex
	inRow map[string]int // refusals in a row, by endpoint
	err   error          // error of the last refusal; nil until every endpoint has refused refusalsMax times
}

// NewRefusals returns a counter for this number of different endpoints. It calls final once, when every endpoint has
// refused refusalsMax times in a row.
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

// Err returns the refusal that ends the run, nil if there is no such refusal.
func (r *Refusals) Err() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
