package batch

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/edge-rt/edge-rt/rt"
)

// Device is the one thread that runs a policy. It does no other work, because the policy would wait
// for it.
type Device struct {
	// Constant after NewDevice.
	run   func(buffer, size int) error
	clock rt.Clock
	begin chan job
	ended chan Ended
	done  chan struct{}
}

type job struct{ buffer, size int }

// Ended is the result of a run.
type Ended struct {
	Buffer, Size int
	Begun, At    rt.Instant
	Err          error
	Panicked     bool // Err is the value of a panic, after which the policy's state is undefined
}

// NewDevice returns a device without a thread, which Start starts. The function run computes the first rows of a
// buffer; its parameter size is the number of these rows.
func NewDevice(run func(buffer, size int) error, clock rt.Clock) *Device {
	return &Device{
		run:   run,
		clock: clock,
		begin: make(chan job, 2),
		ended: make(chan Ended, 2),
		done:  make(chan struct{}),
	}
}

// Start starts the thread. Close ends the thread after the last run. Do not call Begin after Close.
func (d *Device) Start() {
	go func() {
		defer close(d.done)
		runtime.LockOSThread() // never unlocked: a GPU's context belongs to the thread
		for j := range d.begin {
			d.ended <- d.do(j)
		}
	}()
}

// Close makes the thread end after the last run. Then Done is closed.
func (d *Device) Close() { close(d.begin) }

// Done is closed when the thread has ended.
func (d *Device) Done() <-chan struct{} { return d.done }

// Begin starts a run of the first size rows of a buffer and returns at once. The caller may begin one more run before
// it has taken the previous run from Ended. The second run starts as soon as the first ends.
//
//rt:noalloc
func (d *Device) Begin(buffer, size int) { d.begin <- job{buffer, size} }

// Ended delivers each run when it is over.
func (d *Device) Ended() <-chan Ended { return d.ended }

// Do begins a run and waits for its end. No other run may have begun.
//
//rt:noalloc
func (d *Device) Do(buffer, size int) Ended {
	d.Begin(buffer, size)
	return <-d.ended
}

// do runs a job and turns a panic into an error, because Go's exit code for a panic would mean "do not restart" to the
// supervisor.
//
//rt:noalloc
func (d *Device) do(j job) (e Ended) {
	e = Ended{Buffer: j.buffer, Size: j.size, Begun: d.clock.Now()}
	defer func() {
		if p := recover(); p != nil {
			e.Err, e.Panicked = panicked(p), true
		}
		e.At = d.clock.Now()
	}()
	e.Err = d.run(j.buffer, j.size)
	return e
}

//go:noinline
func panicked(p any) error { return fmt.Errorf("the inference panicked: %v\n%s", p, debug.Stack()) }
