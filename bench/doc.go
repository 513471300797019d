// Package bench is the common part of all measurements: the facts of the machine (machine.go);
// programs as processes (child.go), edge-rt, lean-server and their simulated bus among them
// (programs.go), and the load that keeps the machine busy meanwhile (load.go); the order of a round
// (rounds.go); the kernel's scheduling of threads (threads.go), the time that the host takes
// (host.go); a histogram of exact microseconds (tally.go). bench/report writes the results. `bench
// jitter` is in bench/jitter, and so on.
package bench
