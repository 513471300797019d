// Package stall distinguishes a slow output from one that takes nothing.
package stall

import "time"

// Timeout is how long an output may take nothing before it counts as unread.
const Timeout = time.Second

// Await waits until ended is closed and reports whether it was: for most at the
// longest, and no longer than Timeout while taken, which counts what the output took,
// stays as it is.
func Await(ended <-chan struct{}, taken func() uint64, most time.Duration) bool {
	limit := time.NewTimer(most)
	defer limit.Stop()
	tick := time.NewTicker(Timeout)
	defer tick.Stop()
	for before := taken(); ; {
		select {
		case <-ended:
			return true
		case <-limit.C:
			return false
		case <-tick.C:
			now := taken()
			if now == before {
				return false
			}
			before = now
		}
	}
}
