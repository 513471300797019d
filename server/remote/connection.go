package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/policy"
)

const (
	// The time limit of an inference is answerTimes the longest inference of its connection, but at least answerTime.
	// Before the first inference, the time of the blank inputs counts instead, but then the limit is at most
	// Protocol.First, because that time may include a compilation.
	answerTime  = 10 * time.Second
	answerTimes = 10
	// The wait between two attempts to connect doubles from retryFirst to retryMost, until a connection has answered
	// an inference.
	retryFirst, retryMost = 100 * time.Millisecond, 5 * time.Second
)

var (
	// ErrInterrupted is the error of an inference that Interrupt has ended.
	ErrInterrupted = errors.New("interrupted")
	// ErrBlank marks an unusable answer to the blank inputs that test a connection.
	ErrBlank = errors.New("a blank observation")
)

// Away is the error of a server that does not answer.
type Away struct {
	Server string // name of the server in messages
	Err    error
}

func (e *Away) Error() string { return "no answer from " + e.Server + ": " + e.Err.Error() }

// Unwrap returns the cause, and the sentinel errors of package policy for a run that fails because its program is away.
func (e *Away) Unwrap() []error { return []error{policy.ErrRun, policy.ErrAway, e.Err} }

// Link is one connection to a server.
type Link interface {
	comparable
	// Ended returns a channel that is closed when the server ends the connection between two requests; Why then returns
	// the reason. If the channel is nil, only the next request detects that the connection has ended.
	Ended() <-chan struct{}
	Why() error
	Close() error
}

// Protocol is the way to ask one server.
type Protocol[L Link] struct {
	Server string       // name of the server in messages
	Meta   *policy.Meta // description of the server's policy
	Task   string       // task of the blank inputs
	// First bounds the first inference of a connection, in which a server may compile.
	First time.Duration
	Log   *slog.Logger
	Dial  func(context.Context) (L, error)
	// Ask computes a row's ChunkRobot.
	Ask func(context.Context, L, *Row) error
	// IsAnswer reports whether an error of Ask is about the content of an answer. The connection can be used after such
	// an error, but not after another one.
	IsAnswer func(error) bool
}

// Connection is a Runtime that asks the server of another program. While it has no connection, it tries to connect
// again. It uses a connection only after the server has answered blank inputs over it.
//
// Owner: one thread calls Open and Batch, as for a Runtime; any goroutine may call the other
// methods.
type Connection[L Link] struct {
	Protocol[L]
	ctx  context.Context
	stop context.CancelFunc
	lost chan struct{} // capacity 1: wakes keep
	kept sync.WaitGroup
	wait time.Duration // until the next attempt to connect. Owner: keep

	mu      sync.Mutex
	now     Condition          // guarded by mu
	blank   time.Duration      // guarded by mu; time of the answer to this connection's blank inputs
	longest time.Duration      // guarded by mu; longest time of an answer of this connection; 0: there was none
	cancel  context.CancelFunc // guarded by mu; cancels the inference under way; nil: there is none
	link    L                  // guarded by mu; zero: there is no connection
}

// Open connects to the server. Its error wraps ErrBlank when the server's answer to blank inputs does not fit the
// policy.
func Open[L Link](ctx context.Context, p Protocol[L]) (*Connection[L], error) {
	c := &Connection[L]{Protocol: p, lost: make(chan struct{}, 1)}
	l, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.install(l)
	c.kept.Go(c.keep)
	return c, nil
}

// connect returns a connection whose server has answered blank inputs. Owner: Open, then keep.
func (c *Connection[L]) connect(ctx context.Context) (none L, err error) {
	c.update(func(now *Condition) { now.State = "connecting" })
	l, err := c.Dial(ctx)
	if err != nil {
		return none, err
	}
	c.update(func(now *Condition) { now.State = "warming up" })
	ctx, cancel := context.WithTimeoutCause(ctx, c.First, fmt.Errorf("no answer within %v", c.First))
	defer cancel()
	row := newRow(c.Meta)
	row.Task = c.Task
	began := time.Now()
	if err = c.Ask(ctx, l, row); err == nil {
		err = row.checkFinite(c.Meta)
	}
	switch {
	case err == nil:
		c.update(func(*Condition) { c.blank, c.longest = time.Since(began), 0 })
		return l, nil
	case errors.Is(err, errNotFinite) || c.IsAnswer(err):
		err = fmt.Errorf("%w: %w", ErrBlank, err)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	_ = l.Close() // the connection cannot be used
	return none, err
}

// install makes l the connection of Batch.
func (c *Connection[L]) install(l L) {
	c.update(func(now *Condition) {
		c.link = l
		now.Ready, now.State = true, "serving"
	})
}

// update calls the function change while it holds the lock.
func (c *Connection[L]) update(change func(now *Condition)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.now)
}

// current returns the connection. ok is false when there is no connection.
func (c *Connection[L]) current() (l L, ok bool) {
	var none L
	c.update(func(*Condition) { l = c.link })
	return l, l != none
}

// keep opens a new connection whenever the present one is lost.
func (c *Connection[L]) keep() {
	for c.ctx.Err() == nil {
		l, ok := c.current()
		var ended <-chan struct{}
		if ok {
			ended = l.Ended()
		}
		select {
		case <-c.ctx.Done():
			return
		case <-ended:
			c.drop(l, l.Why())
		case <-c.lost:
		}
		c.reconnect()
	}
}

// reconnect connects again: at once if the last connection has answered an inference, and otherwise after a pause,
// because the server may end each connection after its blank inputs.
func (c *Connection[L]) reconnect() {
	why := ""
	c.update(func(*Condition) {
		if c.longest > 0 {
			c.wait = 0
		}
	})
	for c.ctx.Err() == nil {
		if _, ok := c.current(); ok {
			return
		}
		c.update(func(now *Condition) { now.State = "waiting to reconnect" })
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(c.wait):
		}
		c.wait = min(max(2*c.wait, retryFirst), retryMost)
		l, err := c.connect(c.ctx)
		if err == nil {
			c.update(func(now *Condition) { now.Restarts++ })
			c.install(l)
			c.Log.Info("the policy's server answers again", "server", c.Server)
			return
		}
		if c.ctx.Err() == nil && err.Error() != why {
			why = err.Error()
			c.Log.Warn("the policy's server does not serve", "server", c.Server, "why", why)
		}
		c.update(func(now *Condition) { now.Why = err.Error() })
	}
}

// drop closes l because of err, and wakes keep, which connects again. It does nothing if another goroutine has already
// dropped l.
func (c *Connection[L]) drop(l L, err error) {
	var none L
	dropped := false
	c.update(func(now *Condition) {
		if dropped = l == c.link; !dropped {
			return
		}
		c.link = none
		now.Ready = false
		now.State = "connecting"
		now.Why = err.Error()
		now.Failures++
	})
	if !dropped {
		return
	}
	_ = l.Close() // the connection has failed already
	c.Log.Warn("the connection to the policy's server is lost", "server", c.Server, "why", err)
	select {
	case c.lost <- struct{}{}:
	default:
	}
}

// Batch implements Runtime: it asks for the chunk of each row.
func (c *Connection[L]) Batch(rows []*Row) error {
	for _, row := range rows {
		if err := c.infer(row); err != nil {
			return err
		}
	}
	return nil
}

func (c *Connection[L]) infer(row *Row) error {
	l, ok := c.current()
	if !ok {
		return &Away{Server: c.Server, Err: errors.New(c.Condition().Why)}
	}
	var limit time.Duration
	c.update(func(*Condition) {
		limit = max(answerTime, answerTimes*cmp.Or(c.longest, min(c.blank, c.First/answerTimes)))
	})
	ctx, interrupt := context.WithCancelCause(c.ctx)
	defer interrupt(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit.Round(time.Second)))
	defer cancel()
	c.update(func(*Condition) { c.cancel = func() { interrupt(ErrInterrupted) } })
	began := time.Now()
	err := c.Ask(ctx, l, row)
	switch {
	case err == nil:
		c.update(func(*Condition) { c.longest = max(c.longest, time.Since(began)) })
		copy(row.ChunkModel, row.ChunkRobot)
		return nil
	case c.IsAnswer(err):
		c.update(func(now *Condition) {
			now.Why = err.Error()
			now.Errors++
		})
		return fmt.Errorf("%w: %w", policy.ErrRun, err)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.update(func(now *Condition) { now.Timeouts++ })
	}
	c.drop(l, err)
	return &Away{Server: c.Server, Err: err}
}

// Interrupt implements Runtime.
func (c *Connection[L]) Interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// Fail implements Runtime. It drops the connection. The next one is used only after the server has
// answered blank inputs over it.
func (c *Connection[L]) Fail(why error) {
	if l, ok := c.current(); ok {
		c.drop(l, why)
	}
}

// Condition implements Runtime.
func (c *Connection[L]) Condition() (now Condition) {
	c.update(func(is *Condition) { now = *is })
	return now
}

// Close implements Runtime.
func (c *Connection[L]) Close() error {
	c.stop()
	c.kept.Wait()
	if l, ok := c.current(); ok {
		return l.Close()
	}
	return nil
}
