package front

import (
	"errors"
	"fmt"
	"sync"

	"github.com/edge-rt/edge-rt/server/memory"
)

// The budget of a server's fronts is 1/MemoryFraction of the server's memory for robots.
const MemoryFraction = 4

// ErrNoMemory marks an observation that the budget of the fronts has no room for.
var ErrNoMemory = errors.New("no memory for the observation")

// Budget bounds the bytes of observations that the clients of all fronts hold together, from the
// arrival of an observation's first byte until the observation is answered or dropped. Half of it
// is divided equally among the server's max_sessions clients, and no client can take the share of
// another. The other half is for clients that need more than their share, first come, first served.
//
// Owner: any goroutine.
type Budget struct {
	limit, share int64 // constant; share is that of one client

	mu     sync.Mutex
	used   int64 // guarded by mu, like the fields below
	most   int64 // largest value of used so far
	beyond int64 // part of used that is beyond the shares
}

// NewBudget returns an unused budget of limit bytes; places is the largest number of clients with a session.
func NewBudget(limit int64, places int) *Budget {
	return &Budget{limit: limit, share: limit / 2 / int64(places)}
}

// Used returns the bytes in use; 0 for a nil Budget.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Most returns the largest value of Used so far.
func (b *Budget) Most() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most
}

// Limit returns the budget in bytes; 0 for a nil Budget.
func (b *Budget) Limit() int64 {
	if b == nil {
		return 0
	}
	return b.limit
}

// Client returns an empty account for a new client.
func (b *Budget) Client() *Held { return &Held{budget: b} }

// Held is the account of one client in a Budget.
//
// Owner: any goroutine.
type Held struct {
	budget *Budget
	bytes  int64 // guarded by budget.mu
}

// Take adds n bytes, or returns an ErrNoMemory.
func (h *Held) Take(n int) error {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	more := max(0, h.bytes+int64(n)-b.share) - max(0, h.bytes-b.share)
	if b.used+int64(n) > b.limit || more > 0 && b.beyond+more > b.limit/2 {
		return fmt.Errorf("%w: %s more where this client holds %s, its share is %s, and the clients of all fronts "+
			"hold %s of %s: send smaller or fewer pictures, or raise memory in the server's manifest", ErrNoMemory,
			memory.Size(n), memory.Size(h.bytes), memory.Size(b.share), memory.Size(b.used), memory.Size(b.limit))
	}
	h.bytes += int64(n)
	b.used += int64(n)
	b.beyond += more
	b.most = max(b.most, b.used)
	return nil
}

// Release gives n bytes back.
func (h *Held) Release(n int) {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beyond -= max(0, h.bytes-b.share) - max(0, h.bytes-int64(n)-b.share)
	h.bytes -= int64(n)
	b.used -= int64(n)
}
