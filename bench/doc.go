// Package bench is the common part of all measurements: the facts of the machine (machine.go); the
// load that keeps the machine busy during a measurement (load.go); the order of a round
// (rounds.go); the kernel's scheduling of threads (threads.go); a histogram of exact microseconds
// (tally.go). Package stage runs the measured programs, and bench/report writes the results. `bench
// jitter` is in bench/jitter, and so on.
package bench
