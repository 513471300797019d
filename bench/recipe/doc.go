// Package recipe measures how the edge's other threads should be scheduled.
//
// The tick is SCHED_FIFO 80 in every cell. What varies is the class of all other
// threads of the process (camera, encoder, transport), whether Go's collector runs, and what keeps the machine busy: nothing,
// another process, picture encoders on every core of the edge's own process, or
// garbage made in it. Each cell is the whole edge in a process of its own (part.go), against one real
// lean-server and a simulated arm in another process, whose threads come before
// all others because real motors do not share the edge's CPUs. It runs for a few
// seconds, in turned order, so that what else the machine does meets all cells.
//
// It is the experiment behind docs/real-time.md: bytes of a tty reach their
// reader through ordinary kernel workers, so real-time threads beside the tick
// can starve the very bus that the tick waits for.
package recipe
