package rt

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
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
	waste(16 << 20) // 256 objects of a size that the runtime counts at once
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

func TestCountHeapMissesNoObject(t *testing.T) {
	before := CountHeap()
	for range 100 {
		sink = make([]byte, 16)
	}
	if n := CountHeap().Allocs - before.Allocs; n < 100 || n > 200 {
		t.Errorf("100 objects of 16 bytes counted as %d", n)
	}
	if n := testing.AllocsPerRun(10, func() { CountHeap() }); n != 0 {
		t.Errorf("CountHeap allocates %v times, want 0", n)
	}
}

func TestHoldGC(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	limitBefore := debug.SetMemoryLimit(-1)

	hold := HoldGC(128 << 20)
	held := ReadHeap()
	waste(64 << 20)
	now := ReadHeap()
	if n := now.Cycles - held.Cycles; n != 0 {
		t.Errorf("%d collections while held, want 0", n)
	}
	if n := now.Bytes - held.Bytes; n < 63<<20 {
		t.Errorf("64 MiB counted as %d bytes", n)
	}
	hold.Release()
	hold.Release()
	hold.Allow(1) // after Release, Allow has no effect
	if percent, limit := debug.SetGCPercent(50), debug.SetMemoryLimit(-1); percent != 50 || limit != limitBefore {
		t.Errorf("after release: percent %d, limit %d, want 50, %d", percent, limit, limitBefore)
	}
}

// The headroom is a safety limit: garbage beyond it starts a collection, which counts in Cycles but not in Forced.
// Hold.Allow raises the limit.
func TestHoldGCFuse(t *testing.T) {
	hold := HoldGC(24 << 20)
	defer hold.Release()
	hold.Allow(128 << 20)
	held := ReadHeap()
	blown := func() bool {
		now := ReadHeap()
		return now.Cycles-now.Forced > held.Cycles-held.Forced
	}
	if waste(64 << 20); blown() {
		t.Error("64 MiB of garbage under 24 and 128 MiB were collected")
	}
	hold.Allow(0)
	const rounds = 32 // the runtime counts a cycle at its end, which a busy machine delays
	for range rounds {
		if waste(64 << 20); blown() {
			return
		}
	}
	t.Errorf("%d MiB of garbage under 24 MiB collected nothing", rounds*64)
}

// Max returns the longest pause of the collections since NewPauses, and allocates nothing: the
// status page calls it.
func TestPauses(t *testing.T) {
	runtime.GC()
	p := NewPauses()
	if got := p.Max(); got != 0 {
		t.Errorf("before a collection the longest pause is %v", got)
	}
	runtime.GC()
	if got := p.Max(); got <= 0 || got > time.Minute {
		t.Errorf("after a collection the longest pause is %v", got)
	}
	if n := testing.AllocsPerRun(20, func() { p.Max() }); n != 0 {
		t.Errorf("Max allocates %v times, want 0", n)
	}
	if got := NewPauses().Max(); got != 0 {
		t.Errorf("a new one knows of %v", got)
	}
}
