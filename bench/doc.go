// Package bench is what all measurements share: the facts of the machine
// (machine.go); programs as processes (child.go), edge-rt, lean-server and their
// simulated bus among them (programs.go), and what keeps the machine busy meanwhile
// (load.go); the order of a round (rounds.go); how the kernel schedules threads
// (threads.go), what the host takes (host.go); a histogram of exact microseconds
// (tally.go). bench/report writes what came of it. `bench jitter` is in
// bench/jitter, and so on.
package bench
