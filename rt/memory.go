package rt

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// HeapStat counts the operations of the Go heap since the process started.
type HeapStat struct {
	Allocs uint64 // objects allocated; tiny objects that share a block count one by one
	Bytes  uint64 // allocated
	Cycles uint64 // garbage collections
	Forced uint64 // the part of Cycles that the program requested; the memory limit or GOGC caused the rest
}

var heapMeter = struct {
	mu      sync.Mutex
	samples [5]metrics.Sample // Guarded by mu; metrics.Read moves it to the heap
	exact   runtime.MemStats  // guarded by mu
}{samples: [5]metrics.Sample{
	{Name: "/gc/heap/allocs:objects"},
	{Name: "/gc/heap/tiny/allocs:objects"},
	{Name: "/gc/cycles/total:gc-cycles"},
	{Name: "/gc/cycles/forced:gc-cycles"},
	{Name: "/gc/heap/allocs:bytes"},
}}

// ReadHeap returns the counters without stopping the world or allocating. Allocs lags by up to a span of each size (8
// kB) per processor: 500 objects of 16 bytes may not show. CountHeap is exact.
//
// Owner: any goroutine but the tick's; it takes a lock.
func ReadHeap() HeapStat {
	heapMeter.mu.Lock()
	defer heapMeter.mu.Unlock()
	s := heapMeter.samples[:]
	metrics.Read(s)
	return HeapStat{
		Allocs: s[0].Value.Uint64() + s[1].Value.Uint64(),
		Cycles: s[2].Value.Uint64(),
		Forced: s[3].Value.Uint64(),
		Bytes:  s[4].Value.Uint64(),
	}
}

// CountHeap returns the counters, exact to a single object. It stops the world for some 20 us, and does not allocate.
//
// Owner: any goroutine but the tick's. Call it rarely while the tick runs.
func CountHeap() HeapStat {
	heapMeter.mu.Lock()
	defer heapMeter.mu.Unlock()
	m := &heapMeter.exact
	runtime.ReadMemStats(m)
	return HeapStat{
		Allocs: m.Mallocs,
		Cycles: uint64(m.NumGC),
		Forced: uint64(m.NumForcedGC),
		Bytes:  m.TotalAlloc,
	}
}

// Pauses measures the garbage collector's pauses of the process since NewPauses.
type Pauses struct {
	before []uint64 // counts of the histogram's buckets; constant

	mu     sync.Mutex
	sample [1]metrics.Sample // guarded by mu
}

// NewPauses returns a Pauses without a recorded pause.
func NewPauses() *Pauses {
	p := &Pauses{sample: [1]metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}}
	metrics.Read(p.sample[:])
	p.before = append(p.before, p.sample[0].Value.Float64Histogram().Counts...)
	return p
}

// Max returns the longest pause, from the decision to stop until all threads run again, rounded up
// by some percent; 0: there was no pause.
//
// Owner: any goroutine but the tick's; it takes a lock.
func (p *Pauses) Max() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	metrics.Read(p.sample[:])
	h := p.sample[0].Value.Float64Histogram()
	for i := len(h.Counts) - 1; i >= 0; i-- {
		if h.Counts[i] <= p.before[i] {
			continue
		}
		end := h.Buckets[i+1]
		if math.IsInf(end, 1) {
			end = h.Buckets[i]
		}
		return time.Duration(end * float64(time.Second))
	}
	return 0
}

// Headroom is the default growth of Go's memory while the collector is held: more than hostile peers can make a session
// allocate, and less than the 64 MiB that they may cost the whole process.
const Headroom = 48 << 20 // bytes

// Hold is the garbage collector switched off, up to a memory limit. The zero value has no effect.
type Hold struct {
	base    int64 // bytes of Go's memory when the hold began, plus the headroom
	percent int   // GOGC before the hold
	limit   int64 // the memory limit before the hold

	mu      sync.Mutex
	allowed int64 // guarded by mu
	held    bool  // guarded by mu
}

// HoldGC collects once and then keeps the garbage collector off until Release,
// unless Go's memory grows by headroom bytes: a collection that this limit forces
// shows as HeapStat.Cycles less Forced. A headroom of 0 means Headroom.
//
// Only one hold may be open at a time.
func HoldGC(headroom int64) *Hold {
	runtime.GC()
	if headroom <= 0 {
		headroom = Headroom
	}
	var stat runtime.MemStats
	runtime.ReadMemStats(&stat)
	h := &Hold{base: int64(stat.Sys-stat.HeapReleased) + headroom, held: true}
	h.percent = debug.SetGCPercent(-1)
	h.limit = debug.SetMemoryLimit(h.base)
	return h
}

// Allow sets HoldGC's limit n bytes higher than HoldGC did, for memory that the program itself needs now. A call with a
// new n stops the world for a moment.
//
// Owner: any goroutine.
func (h *Hold) Allow(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n == h.allowed || !h.held {
		return
	}
	h.allowed = n
	debug.SetMemoryLimit(h.base + n)
}

// Release restores the settings that HoldGC has changed; a second call changes nothing.
func (h *Hold) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.held {
		return
	}
	h.held = false
	debug.SetMemoryLimit(h.limit)
	debug.SetGCPercent(h.percent)
}

// These are the numbers that PrefillRuntime reserves. A processor's list of waiting records has room for 128, and a
// busy machine may need a thread for every long system call.
const (
	prefillWaiters = 1024
	prefillThreads = 16
	prefillSettle  = 10 * time.Millisecond // time until the last goroutine blocks
)

// PrefillRuntime fills the Go runtime's own free lists, which otherwise fill over hours:
// records of blocked goroutines, heaps of timers, threads for long system calls. Without
// it a program that allocates nothing shows up to 20 allocations in 10,000 ticks on a
// loaded machine.
//
// Call it once, after the last collection before the run: a collection empties the lists.
func PrefillRuntime() {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	for i := range prefillWaiters {
		ready.Add(1)
		done.Go(func() {
			if i < prefillThreads {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			ready.Done()
			time.Sleep(prefillSettle) // grows the processor's heap of timers
			<-gate
		})
	}
	ready.Wait()
	clock := KernelClock()
	clock.SleepUntil(clock.Now().Add(2 * prefillSettle))
	close(gate)
	done.Wait()
}

// ResidentSize returns how many bytes of memory the process occupies, 0 where the
// kernel does not report it. It reads a file, so it is not for the tick.
//
// Source: proc_pid_statm(5), the second field, in pages.
func ResidentSize() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
