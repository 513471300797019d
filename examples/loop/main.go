// Command loop runs a loop at 100 Hz on a thread of its own for three seconds and prints how late the machine woke it.
//
//	go run ./examples/loop
package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

func main() {
	loop := rt.NewLoop(rt.LoopConfig{
		Clock:  rt.KernelClock(),
		Period: 10 * time.Millisecond,
		Mode:   rt.ModeAuto, // use SCHED_FIFO if the kernel allows it
		CPU:    rt.UnpinnedCPU,
	})
	var stop atomic.Bool
	err := loop.Run(&stop, func(tick rt.Tick) rt.Wait {
		stop.Store(tick.Index >= 300)
		return rt.Wait{} // no time was spent waiting for a device
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "loop:", err)
		os.Exit(1)
	}
	s := loop.Stats()
	fmt.Printf("%d ticks, %d overruns of its own and %d of the host; woken %v late (median), %v at most\n", s.Ticks,
		s.OverrunsOwn, s.OverrunsHost, s.Lateness.Quantile(0.5), s.Lateness.Max())
}
