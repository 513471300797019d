package terminal

import "time"

// StallTimeout is the time without a byte taken after which an output counts as unread.
const StallTimeout = time.Second

// Await waits until ended is closed and reports whether it was. It waits at most for most, and at
// most for Timeout while taken, the output's counter, does not change.
func Await(ended <-chan struct{}, taken func() uint64, most time.Duration) bool {
	limit := time.NewTimer(most)
	defer limit.Stop()
	tick := time.NewTicker(StallTimeout)
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
