package batch

import (
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// PastMax is the number of runs that are kept. With most policies they span some seconds.
const PastMax = 512

// Run is a run that is over.
type Run struct {
	Begun    rt.Instant
	Took     time.Duration
	Size     int // rows that were computed
	Requests int // rows with a request; 0: the server's own run
	Failed   bool
}

// Past keeps the last runs, and the total time for which the device was busy.
//
// Owner: one goroutine calls Add. Any goroutine may read at the same time and does not delay Add.
type Past struct {
	slots [PastMax]struct{ begun, rest atomic.Uint64 }
	count atomic.Uint64 // runs so far
	busy  atomic.Int64  // ns
}

// Add stores a run, and overwrites the oldest when PastMax runs are stored.
//
//rt:noalloc
func (p *Past) Add(r Run) {
	n := p.count.Load()
	slot, failed := &p.slots[n%PastMax], uint64(0)
	if r.Failed {
		failed = 1
	}
	slot.begun.Store(uint64(r.Begun))
	slot.rest.Store(uint64(min(r.Took.Microseconds(),
		1<<32-1))<<32 | uint64(r.Size)<<16 | uint64(r.Requests)<<8 | failed)
	p.busy.Add(int64(r.Took))
	p.count.Store(n + 1)
}

// Read appends the last runs to dst, oldest first. Runs that are overwritten meanwhile are left
// out.
func (p *Past) Read(dst []Run) []Run {
	end, begin := p.count.Load(), uint64(0)
	if end > PastMax {
		begin = end - PastMax
	}
	had := len(dst)
	for i := begin; i < end; i++ {
		slot := &p.slots[i%PastMax]
		rest := slot.rest.Load()
		dst = append(dst, Run{
			Begun:    rt.Instant(slot.begun.Load()),
			Took:     time.Duration(rest>>32) * time.Microsecond,
			Size:     int(rest >> 16 & 0xffff),
			Requests: int(rest >> 8 & 0xff),
			Failed:   rest&1 != 0,
		})
	}
	if now := p.count.Load() + 1; now > begin+PastMax { // also leaves out the oldest run: Add may overwrite it
		gone := min(int(now-PastMax-begin), len(dst)-had)
		dst = append(dst[:had], dst[had+gone:]...)
	}
	return dst
}

// Busy returns the total duration of all runs.
func (p *Past) Busy() time.Duration { return time.Duration(p.busy.Load()) }
