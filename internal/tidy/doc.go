// Package tidy contains tests about the code: that functions marked //rt:noalloc keep off the heap, the language and
// the size of the tree, and the house style. Every rule is data with its reason, and is tried on a small bad sample, so
// that a rule that no longer works fails too. The rules that golangci-lint has are in .golangci.yml: import layers,
// banned calls, long functions and lines.
package tidy
