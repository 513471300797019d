package rt

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// HeapStat counts what the Go heap did since the process started.
type HeapStat struct {
	Allocs uint64 // objects allocated, the tiny ones that share a block included
	Cycles uint64 // garbage collections
	Forced uint64 // those of Cycles that the program asked for; the rest the memory limit or GOGC
}

var heapMeter = struct {
	mu      sync.Mutex
	samples [4]metrics.Sample // Guarded by mu; metrics.Read wants them on the heap
}{samples: [4]metrics.Sample{
	{Name: "/gc/heap/allocs:objects"},
	{Name: "/gc/heap/tiny/allocs:objects"},
	{Name: "/gc/cycles/total:gc-cycles"},
	{Name: "/gc/cycles/forced:gc-cycles"},
}}

// ReadHeap returns the counters without stopping the world or allocating.
//
// The runtime counts an object when the span it lies in is used up or swept, so
// Allocs lags by up to a span of each size (8 kB) per processor: a path that
// allocates once per tick shows within a few hundred ticks, a single object may
// not. An exact count wants runtime.ReadMemStats, which stops the world.
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
	}
}

// The memory limit of HoldGC when its caller leaves it open.
const (
	minHeapLimit    = 128 << 20 // bytes
	heapLimitFactor = 4         // times what the heap holds after Open
)

// HoldGC collects once and then keeps the garbage collector off until release is
// called, unless Go's memory reaches limit bytes: the limit is a fuse, and a
// collection it forces shows as HeapStat.Cycles less Forced. A limit of 0 means
// 128 MiB or four times the live heap, whichever is more.
//
// release restores the settings found; calling it again changes nothing. Only
// one hold may be open at a time.
func HoldGC(limit int64) (release func()) {
	runtime.GC()
	if limit <= 0 {
		var stat runtime.MemStats
		runtime.ReadMemStats(&stat)
		limit = max(minHeapLimit, heapLimitFactor*int64(stat.HeapAlloc))
	}
	percent := debug.SetGCPercent(-1)
	before := debug.SetMemoryLimit(limit)
	return sync.OnceFunc(func() {
		debug.SetMemoryLimit(before)
		debug.SetGCPercent(percent)
	})
}
