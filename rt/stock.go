package rt

import (
	"runtime"
	"sync"
	"time"
)

// How much Stock puts aside: a processor's list of waiting records holds 128,
// and a busy machine may need a thread for every long system call.
const (
	stockWaiters = 1024
	stockThreads = 16
	stockSettle  = 10 * time.Millisecond // until the last of them blocks
)

// Stock fills the Go runtime's own free lists, which otherwise fill over hours,
// one allocation at a time: every goroutine that blocks on a channel or a lock
// takes a record from its processor's list and leaves it on another's, a
// processor's heap of timers grows with those that wait at once, and a system
// call that takes long may need a new thread. Without it a program that
// allocates nothing shows up to 20 allocations in 10,000 ticks on a loaded
// machine.
//
// Call it once, after the last collection before the run: a collection empties
// the lists.
func Stock() {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	for i := range stockWaiters {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			if i < stockThreads {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			ready.Done()
			time.Sleep(stockSettle) // grows the processor's heap of timers
			<-gate
		}()
	}
	ready.Wait()
	clock := KernelClock()
	clock.SleepUntil(clock.Now().Add(2 * stockSettle))
	close(gate)
	done.Wait()
}
