package rt

import (
	"runtime"
	"runtime/debug"
	"testing"
)

var sink []byte

// waste allocates about n bytes of garbage.
func waste(n int) {
	const size = 64 << 10
	for ; n > 0; n -= size {
		sink = make([]byte, size)
	}
	sink = nil
}

func TestReadHeapCounts(t *testing.T) {
	before := ReadHeap()
	waste(16 << 20) // 256 objects of a size that is counted at once
	runtime.GC()
	after := ReadHeap()
	if n := after.Allocs - before.Allocs; n < 256 {
		t.Errorf("256 objects counted as %d", n)
	}
	if after.Forced-before.Forced != 1 || after.Cycles-before.Cycles < 1 {
		t.Errorf("runtime.GC counted as %+v after %+v, want one more forced cycle", after, before)
	}
	if n := testing.AllocsPerRun(100, func() { ReadHeap() }); n != 0 {
		t.Errorf("ReadHeap allocates %v times, want 0", n)
	}
}

func TestHoldGC(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	limitBefore := debug.SetMemoryLimit(-1)

	release := HoldGC(0)
	held := ReadHeap()
	waste(64 << 20)
	if n := ReadHeap().Cycles - held.Cycles; n != 0 {
		t.Errorf("%d collections while held, want 0", n)
	}
	release()
	release()
	if percent, limit := debug.SetGCPercent(50), debug.SetMemoryLimit(-1); percent != 50 || limit != limitBefore {
		t.Errorf("after release: percent %d, limit %d, want 50, %d", percent, limit, limitBefore)
	}
}

// The memory limit is a fuse: it collects, and shows as a cycle nobody asked for.
func TestHoldGCFuse(t *testing.T) {
	release := HoldGC(24 << 20)
	defer release()
	held := ReadHeap()
	const rounds = 32 // a cycle counts when it ends, which a busy machine delays
	for range rounds {
		waste(64 << 20)
		now := ReadHeap()
		if (now.Cycles-now.Forced)-(held.Cycles-held.Forced) > 0 {
			return
		}
	}
	t.Errorf("%d MiB of garbage under a limit of 24 MiB collected nothing", rounds*64)
}
