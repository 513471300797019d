//go:build !linux

package rt

import (
	"errors"
	"os"
	"time"
)

// The programs and real time need Linux. With the stubs here the libraries that use this package, such as wire/zenoh,
// also build on other systems.

// kernelClock counts package time's monotonic reading from the start of the
// process.
type kernelClock struct{ base time.Time }

var kernel = &kernelClock{base: time.Now()}

// KernelClock returns the machine's monotonic clock.
func KernelClock() Clock { return kernel }

// Now returns the time since the process started.
func (c *kernelClock) Now() Instant { return Instant(time.Since(c.base)) }

// SleepUntil sleeps on a Go timer.
func (c *kernelClock) SleepUntil(deadline Instant) { time.Sleep(deadline.Sub(c.Now())) }

// ThreadCPU returns 0, because the CPU time is not known here. So every overrun counts as the host's.
func ThreadCPU() time.Duration { return 0 }

// StealTime returns 0, because the steal time is not known here.
func StealTime() time.Duration { return 0 }

type stealReader struct{}

func (r *stealReader) read() time.Duration { return 0 }

type scheduling struct{}

func saveScheduling() scheduling { return scheduling{} }

func releaseRealTime(scheduling) {}

func acquireRealTime(int) Grant {
	return Grant{Why: "real-time scheduling is implemented for Linux only", CPU: UnpinnedCPU}
}

// CheckCPU accepts every CPU, because no loop is pinned here.
func CheckCPU(int) error { return nil }

// ReduceTimerSlack does nothing here.
func ReduceTimerSlack() (undo func()) { return func() {} }

// NiceProcess returns errors.ErrUnsupported.
func NiceProcess(int) error { return errors.ErrUnsupported }

// LockMemory returns errors.ErrUnsupported.
func LockMemory() error { return errors.ErrUnsupported }

func newHeartbeat() (*Heartbeat, *os.File, error) { return nil, nil, errors.ErrUnsupported }

// OpenHeartbeat returns errors.ErrUnsupported.
func OpenHeartbeat(*os.File) (*Heartbeat, error) { return nil, errors.ErrUnsupported }

// Waker cannot be made here.
type Waker struct{}

// NewWaker returns errors.ErrUnsupported.
func NewWaker() (*Waker, error) { return nil, errors.ErrUnsupported }

// Wake does nothing.
func (w *Waker) Wake() {}

// Wait reports false at once.
func (w *Waker) Wait(time.Duration) (woken bool) { return false }

// Close does nothing.
func (w *Waker) Close() error { return nil }
