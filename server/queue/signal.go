package queue

// Signal wakes the goroutine that waits on it. It has a capacity of 1: signals that come before the
// goroutine waits become one.
type Signal chan struct{}

// NewSignal returns a signal that has not been given.
func NewSignal() Signal { return make(Signal, 1) }

// Wake wakes the goroutine that waits on s, or the next one that will.
//
//rt:noalloc
func (s Signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}
