// Package rt is the real-time base of the runtime: time, the tick loop, the data structures between
// threads, and the process's requests to the kernel. It contains nothing about robots.
//
// One goroutine, locked to one OS thread, runs a Loop (loop.go): it sleeps to an absolute deadline
// of a Clock (clock.go), calls a step, and sleeps to the next point of the same grid. The thread
// asks for SCHED_FIFO and a CPU (sched_linux.go, affinity_linux.go); when the kernel refuses,
// Loop.Grant names in one sentence the limit to raise, and the loop continues. overrun.go separates
// the loop's own overruns from its host's, suspend.go detects that the machine was suspended, and
// heartbeat.go lets another process detect that the loop hangs.
//
// The step's results for other threads leave through a Latest, where only the newest value matters
// (a state, a picture, a chunk), or a Ring, where every element does. Both lend slots that were
// allocated once. A Waker wakes a thread that sleeps in the kernel. These three never block the
// tick and never allocate. The tick records durations in a Hist, which any thread may read
// meanwhile. memory.go keeps the garbage collector and the runtime's own allocations out of a run.
//
// Everything above this package takes its time from a Clock, so the same code runs on KernelClock
// and, in a test's own time, on rttest.Clock.
package rt
