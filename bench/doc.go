// Package bench is what all measurements share. In the order in which one uses
// them: the facts of the machine (machine.go); programs as processes of their own,
// started and ended by their ids (child.go), edge-rt, lean-server and their
// simulated bus among them (programs.go), and what keeps the machine busy
// meanwhile (load.go); the order of a round (rounds.go); how the kernel schedules
// threads (threads.go) and what the host takes (host.go); a histogram of exact
// microseconds (tally.go). bench/report writes what came of it. Each measurement is
// a folder of its own, named as its command is: bench/jitter for `bench jitter`.
package bench
