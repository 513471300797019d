// Package jitter measures the two programs honestly.
//
// It measures how late a tick wakes. Lateness alone is no figure: on a busy or
// virtual machine every thread is late sometimes, and the best a program can do is
// not to add to it. So three subjects run on the same machine in the same
// minute: the bare rt.Loop with an empty step, the whole edge-rt with its
// simulated arm against a real lean-server, and Debian's cyclictest, whose
// lateness is the kernel's own. The result is a ratio.
//
// A round is a handful of slices in turned order (plan.go). In some a subject
// runs apart, so that nothing but it disturbs it. In the others cyclictest runs
// beside it in the same seconds, at the same priority, on the same CPUs and half
// a period out of phase (phase.go), so that both meet the same noise and never
// each other.
//
// Everything that is measured is a process of its own (child.go), started and
// ended by its id: the bare loop and the loads are this program again
// (loop.go, load.go). Latenesses are counted by the microsecond (tally.go), so
// that slices can be added up and quantiles are those of all ticks.
package jitter
