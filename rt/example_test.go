package rt_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A loop at 100 Hz publishes a state; another goroutine would take the newest.
// The third tick takes too long, so the grid point after it is skipped.
func ExampleLoop() {
	clock := rttest.NewClock(0)
	loop := rt.NewLoop(rt.LoopConfig{Clock: clock, Period: 10 * time.Millisecond, CPU: rt.UnpinnedCPU})
	states := rt.NewLatest(func(s *[]float32) { *s = make([]float32, 6) })
	var stop atomic.Bool
	done := make(chan error)
	go func() {
		done <- loop.Run(&stop, func(tick rt.Tick) rt.Wait {
			(*states.Back())[0] = float32(tick.Index)
			states.Publish(int64(tick.Deadline))
			if tick.Index == 2 {
				clock.Work(15 * time.Millisecond)
			}
			stop.Store(tick.Index >= 5)
			return rt.Wait{}
		})
	}()
	fmt.Println("error:", <-done)
	state, key, _ := states.Front()
	s := loop.Stats()
	fmt.Println("newest state:", (*state)[0], "of", time.Duration(key))
	fmt.Println(s.Ticks, "ticks,", s.Skipped, "skipped,", s.OverrunsOwn, "overrun of ours")
	// Output:
	// error: <nil>
	// newest state: 5 of 60ms
	// 5 ticks, 1 skipped, 1 overrun of ours
}

// The tick puts events into a ring; another goroutine drains it later. A full ring refuses an
// event, and the producer decides how to react.
func ExampleRing() {
	type event struct {
		tick uint64
		what string
	}
	ring, lost := rt.NewRing[event](2), 0
	for tick := range uint64(3) { // the tick: never waits
		slot := ring.Reserve()
		if slot == nil {
			lost++
			continue
		}
		slot.tick, slot.what = tick, "overrun"
		ring.Commit()
	}
	for e := ring.Peek(); e != nil; e = ring.Peek() { // this loop runs on the other goroutine
		fmt.Println("tick", e.tick, e.what)
		ring.Release()
	}
	fmt.Println(lost, "lost")
	// Output:
	// tick 0 overrun
	// tick 1 overrun
	// 1 lost
}
