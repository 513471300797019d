package recipe

import (
	"slices"
	"strings"

	"edgert/internal/exit"
)

// Others are the classes that the threads beside the tick may have.
var Others = []string{"nice-10", "nice0", "rr40"}

// Collectors says what Go's collector does while the arm moves.
var Collectors = []string{"off", "on"}

// Loads are what keeps the machine busy: outside in a process at nice 0, or
// inside the edge's own process.
var Loads = []string{"none", "stress", "encode", "alloc"}

// Cell is one recipe under one load.
type Cell struct {
	Others string `json:"others"`
	GC     string `json:"gc"`
	Load   string `json:"load"`
}

// Matrix returns every combination of the three lists, in their order.
func Matrix(others, collectors, loads []string) ([]Cell, error) {
	for _, f := range []struct {
		flag       string
		got, known []string
	}{
		{flag: "--others", got: others, known: Others},
		{flag: "--gc", got: collectors, known: Collectors},
		{flag: "--load", got: loads, known: Loads},
	} {
		if len(f.got) == 0 {
			return nil, exit.Errorf(exit.Usage, "%s names nothing, want some of %s", f.flag, strings.Join(f.known, ", "))
		}
		for i, v := range f.got {
			if !slices.Contains(f.known, v) || slices.Contains(f.got[:i], v) {
				return nil, exit.Errorf(exit.Usage, "%s %s: want some of %s, each once", f.flag, v, strings.Join(f.known, ", "))
			}
		}
	}
	var all []Cell
	for _, load := range loads {
		for _, o := range others {
			for _, gc := range collectors {
				all = append(all, Cell{Others: o, GC: gc, Load: load})
			}
		}
	}
	return all, nil
}

// turned is the order of one round: every other one backwards, each from another
// cell on.
func turned(cells []Cell, round int) []Cell {
	order := slices.Clone(cells)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	at := round % len(order)
	return slices.Concat(order[at:], order[:at])
}
