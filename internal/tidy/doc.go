// Package tidy holds tests about the code rather than of it: which package may
// import which, that functions marked //rt:noalloc keep off the heap, and the
// rules of the house style that a machine can check.
//
// Every rule is data with its reason, so that a failure says why the rule is
// there; and every rule is tried on a small bad sample, so that a rule that has
// stopped biting fails as well.
package tidy
