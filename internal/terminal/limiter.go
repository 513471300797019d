package terminal

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// budget is how many lines of a kind may be written at once, and the interval of further lines
// after that.
type budget struct {
	burst int
	every time.Duration
}

var (
	// for lines below slog.LevelWarn, such as those of a fleet that opens its sessions
	notes    = budget{1024, 100 * time.Millisecond}
	warnings = budget{64, 2 * time.Second}
)

// kindsMax bounds the kinds of lines that are counted separately. The lines of all further kinds
// count as one kind.
const kindsMax = 256

// reasonKey is the key of an attribute. Lines with the same message and different reasons are of
// different kinds.
const reasonKey = "reason"

// Limiter is a slog.Handler that omits a line if lines of its kind were logged often shortly
// before. Lines are of one kind if they have the same message and the same attribute `reason`. The
// next line of a kind contains the number of omitted lines.
type Limiter struct {
	slog.Handler
	shared *shared
}

// shared is the state that a Limiter shares with all handlers derived from it.
type shared struct {
	clock   rt.Clock
	leftOut atomic.Uint64

	mu    sync.Mutex
	kinds map[kind]*state // guarded by mu
}

type kind struct{ message, reason string }

// state is the budget of one kind of lines.
type state struct {
	whole   rt.Instant // instant at which the budget is full again
	leftOut uint64     // number of lines omitted since the last one of this kind was written
}

// NewLimiter returns a Limiter that passes the remaining lines on to the handler next.
func NewLimiter(next slog.Handler, clock rt.Clock) *Limiter {
	return &Limiter{next, &shared{clock: clock, kinds: map[kind]*state{}}}
}

// LeftOut returns the number of lines omitted so far. Owner: any goroutine.
func (h *Limiter) LeftOut() uint64 { return h.shared.leftOut.Load() }

// WithAttrs implements slog.Handler.
func (h *Limiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Limiter{h.Handler.WithAttrs(attrs), h.shared}
}

// WithGroup implements slog.Handler.
func (h *Limiter) WithGroup(name string) slog.Handler {
	return &Limiter{h.Handler.WithGroup(name), h.shared}
}

// Handle implements slog.Handler.
func (h *Limiter) Handle(ctx context.Context, r slog.Record) error {
	k := kind{message: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != reasonKey {
			return true
		}
		k.reason = a.Value.String()
		return false
	})
	of := notes
	if r.Level >= slog.LevelWarn {
		of = warnings
	}
	before, ok := h.shared.allow(k, of)
	if !ok {
		return nil
	}
	if before > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Uint64("left_out_before", before))
	}
	return h.Handler.Handle(ctx, r)
}

// allow reports whether a line may be written now. The result before is the number of lines of this kind that were
// omitted since the last one was written.
func (s *shared) allow(k kind, of budget) (before uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.kinds[k]
	if at == nil {
		if len(s.kinds) >= kindsMax {
			k = kind{}
		}
		if at = s.kinds[k]; at == nil {
			at = new(state)
			s.kinds[k] = at
		}
	}
	now := s.clock.Now()
	whole := max(at.whole, now)
	if whole.Sub(now) > time.Duration(of.burst-1)*of.every {
		at.leftOut++
		s.leftOut.Add(1)
		return 0, false
	}
	before, at.leftOut = at.leftOut, 0
	at.whole = whole.Add(of.every)
	return before, true
}
