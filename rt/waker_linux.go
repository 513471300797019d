package rt

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Waker wakes a thread that sleeps in the kernel. It uses an eventfd and not Go's scheduler, so the tick keeps its P.
// Several calls of Wake before a Wait count as one.
//
// Owner: any goroutine calls Wake, one calls Wait; Close comes after both.
type Waker struct {
	fd      atomic.Int32 // -1 after Close, so that a late Wake does not write to another file
	counter [8]byte      // Owner: the waiter; the value read is not used
}

// NewWaker opens the eventfd.
func NewWaker() (*Waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("rt: eventfd: %w", err)
	}
	w := &Waker{}
	w.fd.Store(int32(fd))
	return w, nil
}

// one is the number that a write adds to the eventfd's counter: 1 or, on a big-endian machine, 1<<56, which leaves room
// for more writes.
var one = [8]byte{1}

// Wake makes the current or the next Wait return true. It never blocks.
//
//rt:noalloc
func (w *Waker) Wake() {
	// The only error of an open eventfd is a full counter, and then the waiter
	// has been woken already.
	unix.Write(int(w.fd.Load()), one[:])
}

// Wait waits for a Wake since the last Wait and returns true, or returns false after the timeout. A negative timeout
// means no timeout. Wait blocks its OS thread.
//
//rt:noalloc
func (w *Waker) Wait(timeout time.Duration) (woken bool) {
	deadline := kernel.Now().Add(timeout)
	fd := w.fd.Load()
	if fd < 0 {
		return false // poll ignores a negative descriptor, so it would sleep
	}
	polled := [1]unix.PollFd{{Fd: fd, Events: unix.POLLIN}}
	for {
		var left *unix.Timespec
		if timeout >= 0 {
			ts := unix.NsecToTimespec(int64(max(deadline.Sub(kernel.Now()), 0)))
			left = &ts
		}
		n, err := unix.Ppoll(polled[:], left, nil)
		if err == unix.EINTR {
			continue
		}
		if n == 0 || err != nil {
			return false
		}
		_, err = unix.Read(int(fd), w.counter[:])
		return err == nil
	}
}

// Close closes the eventfd. It does not end a Wait.
func (w *Waker) Close() error {
	fd := w.fd.Swap(-1)
	if fd < 0 {
		return nil
	}
	if err := unix.Close(int(fd)); err != nil {
		return fmt.Errorf("rt: close eventfd: %w", err)
	}
	return nil
}
