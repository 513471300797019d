// Package rt is the real-time floor of the runtime: time, the tick loop, the
// few shapes in which threads exchange data, and what the process asks of the
// kernel. It knows nothing of robots.
//
// One goroutine, locked to one OS thread, runs a Loop: it sleeps to an absolute
// deadline, calls a step, and sleeps to the next point of the same grid. The
// thread asks for SCHED_FIFO; when the kernel refuses, Loop.Grant says in one
// sentence which limit to raise, and the loop goes on.
//
// What the step produces for other threads leaves through two shapes, which
// both lend slots that were allocated once: a Latest, where only the newest
// value matters (a state, a picture, a chunk), and a Ring, where every element
// does. A Waker rouses a thread that sleeps in the kernel. None
// of them blocks the tick, and none allocates; durations go into a Hist, which
// any thread may read while the tick writes it.
//
// Everything above this package takes its time from a Clock, so the same code
// runs on KernelClock and, in a test's own time, on rttest.Clock.
package rt
