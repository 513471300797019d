package netfault

import "time"

// Line is one direction of the connection. It reorders messages and limits their rate.
//
// Owner: the goroutine that passes that direction's messages.
type Line[T any] struct {
	held    T
	holding bool
	free    time.Duration // when the line has sent its last byte
	count   int           // messages since the last one lost to Effect.Nth
}

// Next counts a message and returns its effect: f, with Lost set for every nth message if f.Nth is
// set. The caller calls Next once for each message, before Pass.
func (l *Line[T]) Next(f Effect) Effect {
	if f.Nth == 0 {
		return f
	}
	if l.count++; l.count >= f.Nth {
		l.count, f.Lost = 0, true
	}
	return f
}

// Pass appends to out the messages that arrive when m is sent under the effect f: no message, m, m twice, or m and then
// the held message. lost is the number of messages that have now been lost.
func (l *Line[T]) Pass(f Effect, m T, out []T) (passed []T, lost int) {
	if f.Lost {
		return out, 1
	}
	if l.holding {
		held := l.held
		l.Drop()
		out = append(out, m)
		if !f.Reorders { // the fault has ended, so the held message is lost
			return out, 1
		}
		return append(out, held), 0
	}
	if f.Held {
		l.held, l.holding = m, true
		return out, 0
	}
	out = append(out, m)
	if f.Duplicated {
		out = append(out, m)
	}
	return out, 0
}

// Holding reports whether a message is held back.
func (l *Line[T]) Holding() bool { return l.holding }

// Held returns the message that is held back.
func (l *Line[T]) Held() T { return l.held }

// Drop discards the held message.
func (l *Line[T]) Drop() {
	var none T
	l.held, l.holding = none, false
}

// Arrival returns the instant at which a message of the given size in bytes has crossed the line, if it leaves at the
// instant at.
func (l *Line[T]) Arrival(at time.Duration, f Effect, bytes int) time.Duration {
	if f.Rate > 0 {
		at = max(at, l.free) + time.Duration(float64(bytes)/float64(f.Rate)*float64(time.Second))
		l.free = at
	}
	return at + f.Delay
}
