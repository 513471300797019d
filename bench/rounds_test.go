package bench

import (
	"slices"
	"testing"
)

// Every round has each subject once, in another order than the round before; no subject is always
// first, or always after the same subject.
func TestTurned(t *testing.T) {
	subjects := []string{"a", "b", "c", "d", "e"}
	firsts, before := map[string]bool{}, map[string]bool{}
	var last []string
	for round := range 8 {
		order := Turned(subjects, round)
		if slices.Equal(order, last) {
			t.Errorf("rounds %d and %d are %v", round-1, round, order)
		}
		last = slices.Clone(order)
		firsts[order[0]] = true
		if i := slices.Index(order, "c"); i > 0 {
			before[order[i-1]] = true
		}
		if slices.Sort(order); !slices.Equal(order, subjects) {
			t.Errorf("round %d has %v", round, order)
		}
	}
	if len(firsts) < 4 || len(before) < 2 {
		t.Errorf("first are %v, before c %v; want four and two", firsts, before)
	}
	var two []string
	for round := range 4 {
		two = append(two, Turned([]string{"a", "b"}, round)...)
	}
	if want := []string{"a", "b", "b", "a", "b", "a", "a", "b"}; !slices.Equal(two, want) {
		t.Errorf("of two: %v, want %v", two, want)
	}
}
