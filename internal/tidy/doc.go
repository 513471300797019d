// Package tidy contains tests of the code: that functions marked //rt:noalloc do not allocate, the language and the
// size of the tree, and the house style. Every rule is data with its reason. The test of a rule also applies the
// rule to a small bad sample, and fails if the rule does not find the defect. The rules that golangci-lint can
// check are in .golangci.yml: import layers, banned calls, long functions and lines.
package tidy
