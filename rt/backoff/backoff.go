// Package backoff spaces attempts to reach a device or server that may be absent for long.
package backoff

import "time"

// Backoff is the wait before the next attempt: First, then twice as long each
// time, up to Max. Only First may be longer than Max.
type Backoff struct {
	First, Max time.Duration

	next time.Duration // 0: First
}

// Next returns the wait after a failed attempt.
func (b *Backoff) Next() time.Duration {
	wait := b.next
	if wait == 0 {
		wait = b.First
	}
	b.next = min(2*wait, b.Max)
	return wait
}

// Reset makes First the next wait, after a successful attempt.
func (b *Backoff) Reset() { b.next = 0 }
