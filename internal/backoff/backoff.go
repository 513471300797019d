// Package backoff spaces attempts at what may be absent for long.
package backoff

import "time"

// Backoff is the wait before the next attempt: First, then twice as long each
// time, up to Max. Only First may be longer than Max.
type Backoff struct {
	First, Max time.Duration

	next time.Duration // 0: First
}

// Next returns how long to wait after an attempt that failed.
func (b *Backoff) Next() time.Duration {
	wait := b.next
	if wait == 0 {
		wait = b.First
	}
	b.next = min(2*wait, b.Max)
	return wait
}

// Reset makes First the next wait: an attempt succeeded.
func (b *Backoff) Reset() { b.next = 0 }
