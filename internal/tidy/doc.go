// Package tidy contains tests about the code: which package may import which, that
// functions marked //rt:noalloc keep off the heap, and the house style. Every rule is
// data with its reason, and is tried on a small bad sample, so that a rule that no
// longer works fails too.
package tidy
