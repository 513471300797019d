package faulty

import "time"

// Line holds back one direction's message where the plan reorders, and keeps its
// bytes apart where the plan limits the rate.
//
// Owner: whoever passes that direction's messages.
type Line[T any] struct {
	held    T
	holding bool
	free    time.Duration // when the last byte put on the line has left
	counted int           // messages since the last that fell to its number
}

// Next counts a message and completes its fate: every nth is lost where the plan
// says so. It is called once per message, before Pass.
func (l *Line[T]) Next(f Fate) Fate {
	if f.Nth == 0 {
		return f
	}
	if l.counted++; l.counted >= f.Nth {
		l.counted, f.Lost = 0, true
	}
	return f
}

// Pass appends to out what comes out when m meets its fate: nothing, m, m twice,
// or m and then the one held before. lost counts what will never come.
func (l *Line[T]) Pass(f Fate, m T, out []T) (passed []T, lost int) {
	if f.Lost {
		return out, 1
	}
	if l.holding {
		held := l.held
		l.Drop()
		out = append(out, m)
		if !f.Swapped { // the window closed: what was held is gone
			return out, 1
		}
		return append(out, held), 0
	}
	if f.Hold {
		l.held, l.holding = m, true
		return out, 0
	}
	out = append(out, m)
	if f.Twice {
		out = append(out, m)
	}
	return out, 0
}

// Holding reports whether a message is held back.
func (l *Line[T]) Holding() bool { return l.holding }

// Held returns the message that is held back.
func (l *Line[T]) Held() T { return l.held }

// Drop forgets what is held.
func (l *Line[T]) Drop() {
	var none T
	l.held, l.holding = none, false
}

// Transit returns when a message of this size that leaves at the instant has
// crossed the line: behind those before it, at the fate's rate, and after its
// delay.
func (l *Line[T]) Transit(at time.Duration, f Fate, bytes int) time.Duration {
	if f.Rate > 0 {
		at = max(at, l.free) + time.Duration(float64(bytes)/float64(f.Rate)*float64(time.Second))
		l.free = at
	}
	return at + f.Delay
}
