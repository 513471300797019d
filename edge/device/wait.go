package device

import (
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

const waitPoll = 2 * time.Millisecond

// Within reports whether all threads of a group end within d: a device, a disk or the network may
// block them for ever.
func Within(clock rt.Clock, d time.Duration, threads *sync.WaitGroup) bool {
	ended := make(chan struct{})
	go func() { threads.Wait(); close(ended) }()
	for limit := clock.Now().Add(d); ; clock.SleepUntil(clock.Now().Add(waitPoll)) {
		select {
		case <-ended:
			return true
		default:
		}
		if clock.Now() > limit {
			return false
		}
	}
}
