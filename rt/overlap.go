package rt

import (
	"iter"
	"time"
)

// Waiter is a device on which a thread can wait for bytes, such as a serial port.
type Waiter interface {
	// Wait returns when bytes have arrived or the timeout has passed; it may return earlier without
	// a reason.
	Wait(timeout time.Duration) error
}

// Pause waits in place of a read. Without a device (nil) it waits until the given instant. With a device it waits until
// bytes have arrived at the device or the instant has passed, and may return earlier. If it returns false, it has not
// waited, and the read must wait itself.
type Pause func(until Instant, device Waiter) bool

// overlapSlice is the longest wait for one device while several reads are in progress.
const overlapSlice = 100 * time.Microsecond

// Overlap runs the reads of several buses at the same time, on the caller's thread. Each read is a coroutine: while it
// waits for its bus, the other reads continue. So all requests leave before the thread waits for a reply, and each bus
// has its own losses, retries and time limits.
//
// Owner: one thread. All calls of Run must be on the same thread.
type Overlap struct {
	clock  Clock
	reads  []*overlapRead
	waited Wait
	turn   int // read whose device is awaited next, when several wait for bytes
}

// overlapRead is one read.
type overlapRead struct {
	read   func()
	next   func() (struct{}, bool)
	yield  func(struct{}) bool
	busy   bool    // read has begun in this Run and has not returned
	until  Instant // instant at which the read's wait ends
	device Waiter  // device at which the read waits for bytes; nil: the read sleeps
}

// NewOverlap returns an Overlap without reads.
func NewOverlap(clock Clock) *Overlap { return &Overlap{clock: clock} }

// Add adds a read. It calls setPause with the Pause that the read's bus must use.
func (o *Overlap) Add(read func(), setPause func(Pause)) {
	r := &overlapRead{read: read}
	setPause(r.pause)
	o.reads = append(o.reads, r)
}

// start makes the read's coroutine, on the thread that runs it.
func (r *overlapRead) start() {
	r.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		for r.yield = yield; ; {
			r.read()
			r.busy = false
			yield(struct{}{})
		}
	})
}

// pause is the Pause of the read's bus. Outside Run it returns false, so that the bus waits itself.
//
//rt:noalloc
func (r *overlapRead) pause(until Instant, device Waiter) bool {
	if !r.busy {
		return false
	}
	r.until, r.device = until, device
	r.yield(struct{}{})
	return true
}

// Run runs every read once, and returns when all have returned. A panic in a read becomes a panic of Run.
//
//rt:noalloc
func (o *Overlap) Run() {
	o.waited = Wait{}
	for _, r := range o.reads {
		if r.next == nil {
			r.start() // once, before the arm is armed
		}
		r.busy, r.until = true, 0
		r.device = nil
	}
	for {
		now, busy := o.clock.Now(), 0
		for _, r := range o.reads {
			if r.busy && (r.device != nil || r.until <= now) {
				r.next()
			}
			if r.busy {
				busy++
			}
		}
		if busy == 0 {
			return
		}
		o.wait(busy)
	}
}

// wait waits until one of the busy reads can continue, or for a part of that time.
//
//rt:noalloc
func (o *Overlap) wait(busy int) {
	var device Waiter
	first, from := Instant(1<<63-1), o.turn
	for i := range o.reads {
		r := o.reads[(from+i)%len(o.reads)]
		if !r.busy {
			continue
		}
		if first = min(first, r.until); r.device != nil && device == nil {
			device, o.turn = r.device, (from+i+1)%len(o.reads)
		}
	}
	start := o.clock.Now()
	d := max(0, first.Sub(start))
	if device == nil {
		o.clock.SleepUntil(first)
	} else {
		if busy > 1 {
			d = min(d, overlapSlice)
		}
		_ = device.Wait(d) // when the device is lost, the read gets the error
	}
	took := o.clock.Now().Sub(start)
	o.waited.Add(Wait{Meant: min(d, took), Took: took})
}

// Waited returns the waits of the last Run.
//
//rt:noalloc
func (o *Overlap) Waited() Wait { return o.waited }
