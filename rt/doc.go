// Package rt is the real-time floor of the runtime: time, the tick loop, the
// shapes in which threads exchange data, and what the process asks of the kernel.
// It contains nothing about robots.
//
// One goroutine, locked to one OS thread, runs a Loop (loop.go): it sleeps to an
// absolute deadline of a Clock (clock.go), calls a step, and sleeps to the next
// point of the same grid. The thread asks for SCHED_FIFO and a CPU (sched_linux.go,
// affinity_linux.go); when the kernel refuses, Loop.Grant says in one sentence which
// limit to raise, and the loop goes on. overrun.go tells the loop's own overruns
// from its host's, suspend.go finds that the machine slept, and heartbeat.go lets
// another process see that the loop hangs.
//
// What the step produces for other threads leaves through a Latest, where only the
// newest value matters (a state, a picture, a chunk), or a Ring, where every element
// does. Both lend slots that were allocated once. A Waker wakes a thread that sleeps
// in the kernel. None of them blocks the tick or allocates; durations go into a
// Hist, which any thread may read while the tick writes it. memory.go keeps the
// garbage collector and the runtime's own allocations out of a run.
//
// Everything above this package takes its time from a Clock, so the same code
// runs on KernelClock and, in a test's own time, on rttest.Clock.
package rt
