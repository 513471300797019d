package queue

// Signal wakes the goroutine that waits on it. It has a capacity of 1, so several calls of Wake wake the goroutine only
// once.
type Signal chan struct{}

// NewSignal returns a signal on which Wake has not been called.
func NewSignal() Signal { return make(Signal, 1) }

// Wake wakes the goroutine that waits on s. If no goroutine waits, the next wait returns at once.
//
//rt:noalloc
func (s Signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}
