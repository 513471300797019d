package terminal

import "time"

// StallTimeout is how long an output may accept no byte before it counts as unread.
const StallTimeout = time.Second

// Await waits until ended is closed, and reports whether it was closed. Await gives up after the time limit most, or if
// the output's counter taken has not changed for StallTimeout.
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
