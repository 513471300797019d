package jpeg

import "golang.org/x/sys/unix"

// raisePriority gives the calling thread, and the programs that it starts, the lowest real-time
// priority, above all ordinary programs, until undo is called.
func raisePriority() (undo func(), err error) {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return func() {}, err
	}
	fifo := *before
	fifo.Policy = unix.SCHED_FIFO
	fifo.Priority = 1
	fifo.Nice = 0
	fifo.Flags = 0
	if err := unix.SchedSetAttr(0, &fifo, 0); err != nil {
		return func() {}, err
	}
	return func() { unix.SchedSetAttr(0, before, 0) }, nil
}
