package queue

// Signal wakes the goroutine that waits on it. It has a capacity of 1, so that several calls of Wake before the
// goroutine waits wake it once.
type Signal chan struct{}

// NewSignal returns a signal on which Wake has not been called.
func NewSignal() Signal { return make(Signal, 1) }

// Wake wakes the goroutine that waits on s. If no goroutine waits, the next one to wait does not
// block.
//
//rt:noalloc
func (s Signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}
