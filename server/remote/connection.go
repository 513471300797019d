package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/policy"
)

// ErrInterrupted is the cause of an inference's end by Interrupt.
var ErrInterrupted = errors.New("interrupted")

// Away is the error of a server that does not answer.
type Away struct {
	Server string // as people name it
	Err    error
}

func (e *Away) Error() string { return "no answer from " + e.Server + ": " + e.Err.Error() }

// Unwrap returns the sentinels of such a run beside the cause.
func (e *Away) Unwrap() []error { return []error{policy.ErrRun, policy.ErrAway, e.Err} }

// Connection has the condition of a runtime that asks a server, and the inference in hand.
//
// Owner: any goroutine.
type Connection struct {
	mu     sync.Mutex
	now    Condition          // guarded by mu
	cancel context.CancelFunc // guarded by mu; of the inference in hand, may be nil
}

// Update calls change under the lock, which may guard more of the runtime's.
func (c *Connection) Update(change func(now *Condition)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.now)
}

// State sets the state for people.
func (c *Connection) State(text string) { c.Update(func(now *Condition) { now.State = text }) }

// Begin returns the context of an inference, which ends after limit and by Interrupt, each with a cause
// of its own, and at the latest by release.
func (c *Connection) Begin(ctx context.Context, limit time.Duration) (inference context.Context, release func()) {
	ctx, interrupt := context.WithCancelCause(ctx)
	inference, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("no answer within %v", limit.Round(time.Second)))
	c.Update(func(*Condition) { c.cancel = func() { interrupt(ErrInterrupted) } })
	return inference, func() {
		cancel()
		interrupt(nil)
	}
}

// Refused counts an answer that is an error, or of another form than described, and returns its error.
func (c *Connection) Refused(err error) error {
	c.Update(func(now *Condition) {
		now.Why = err.Error()
		now.Errors++
	})
	return fmt.Errorf("%w: %w", policy.ErrRun, err)
}

// Late counts an inference that exceeded its limit, and returns its error; err where it did not.
func (c *Connection) Late(inference context.Context, err error) error {
	if !errors.Is(inference.Err(), context.DeadlineExceeded) {
		return err
	}
	c.Update(func(now *Condition) { now.Timeouts++ })
	return context.Cause(inference)
}

// Interrupt implements Runtime.
func (c *Connection) Interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// Condition implements Runtime.
func (c *Connection) Condition() Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}
