// Package bench is what all measurements share: programs as processes of their
// own, started and ended by their ids (child.go), how the kernel schedules their
// threads (threads.go), a histogram of exact microseconds (tally.go), and the
// facts of the machine (machine.go). Each measurement is a folder of its own,
// named as its command is: bench/jitter for `bench jitter`.
package bench
