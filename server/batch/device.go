package batch

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"edgert/rt"
)

// Device is the one thread that runs a policy. It does nothing else: what it would
// do between two runs, the policy would wait for.
type Device struct {
	// Constant after NewDevice.
	run   func(buffer, size int) error
	clock rt.Clock
	begin chan job
	ended chan Ended
	done  chan struct{}
}

type job struct{ buffer, size int }

// Ended is a run that is over.
type Ended struct {
	Buffer, Size int
	Begun, At    rt.Instant
	Err          error
	Panicked     bool // Err is a panic: the policy is in no known state
}

// NewDevice returns a device whose thread Start starts. run computes the first size
// rows of a buffer.
func NewDevice(run func(buffer, size int) error, clock rt.Clock) *Device {
	return &Device{run: run, clock: clock, begin: make(chan job, 2), ended: make(chan Ended, 2), done: make(chan struct{})}
}

// Start starts the thread. Close ends it, after the run in hand; nothing may begin
// any more then.
func (d *Device) Start() {
	go func() {
		defer close(d.done)
		runtime.LockOSThread() // never unlocked: a GPU's context is the thread's
		for j := range d.begin {
			d.ended <- d.do(j)
		}
	}()
}

// Close has the thread end when nothing runs any more; Done is closed then.
func (d *Device) Close() { close(d.begin) }

// Done is closed when the thread has ended.
func (d *Device) Done() <-chan struct{} { return d.done }

// Begin runs the first size rows of a buffer and returns at once. One more may be begun
// before the last has come out of Ended: it runs as soon as that is over.
//
//rt:noalloc
func (d *Device) Begin(buffer, size int) { d.begin <- job{buffer, size} }

// Ended gives each run back when it is over.
func (d *Device) Ended() <-chan Ended { return d.ended }

// Do is Begin, and waits. Nothing else may have begun.
//
//rt:noalloc
func (d *Device) Do(buffer, size int) Ended {
	d.Begin(buffer, size)
	return <-d.ended
}

// do turns a panic into an error: Go's exit code for a panic would say "do not
// restart".
//
//rt:noalloc
func (d *Device) do(j job) (e Ended) {
	e = Ended{Buffer: j.buffer, Size: j.size, Begun: d.clock.Now()}
	defer func() {
		if p := recover(); p != nil {
			e.Err, e.Panicked = panicked(p), true
		}
	}()
	e.Err = d.run(j.buffer, j.size)
	e.At = d.clock.Now()
	return e
}

//go:noinline
func panicked(p any) error { return fmt.Errorf("the inference panicked: %v\n%s", p, debug.Stack()) }
