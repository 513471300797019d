package jitter

import (
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestPlan(t *testing.T) {
	all := kindsOf([]string{Loop, Edge}, true, false)
	if len(all) != 5 {
		t.Fatalf("kindsOf = %v, want five", all)
	}
	for _, tt := range []struct {
		name         string
		kinds        []kind
		total, slice time.Duration
		rounds       int
		length       time.Duration
		refused      bool
	}{
		{"two minutes", all, 2 * time.Minute, 8 * time.Second, 3, 8 * time.Second, false},
		{"what is left of a round is left", all, 119 * time.Second, 8 * time.Second, 2, 8 * time.Second, false},
		{"too short for a round", all, 10 * time.Second, 8 * time.Second, 1, 2 * time.Second, false},
		{"at the limit", all, 2500 * ms, 8 * time.Second, 1, 500 * ms, false},
		{"below it", all, 2499 * ms, 8 * time.Second, 0, 0, true},
		{"LeRobot beside", kindsOf([]string{Loop}, true, true), 16 * time.Second, 2 * time.Second, 2, 2 * time.Second,
			false},
		{"a short slice", all, time.Minute, 499 * ms, 0, 0, true},
		{"without cyclictest", kindsOf([]string{Loop}, false, false), 10 * time.Second, 5 * time.Second, 2,
			5 * time.Second,
			false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rounds, length, err := plan(tt.kinds, tt.total, tt.slice)
			if refused := err != nil; refused != tt.refused || refused && exit.Of(err) != exit.Usage {
				t.Fatalf("plan = %v, want refused %t with code 2", err, tt.refused)
			}
			if len(rounds) != tt.rounds || length != tt.length {
				t.Errorf("plan = %d rounds of %v, want %d of %v", len(rounds), length, tt.rounds, tt.length)
			}
			for i, r := range rounds {
				for _, k := range tt.kinds {
					if !slices.Contains(r, k) || len(r) != len(tt.kinds) {
						t.Errorf("round %d is %v, want every kind once", i, r)
					}
				}
				if i > 0 && len(r) > 1 && slices.Equal(r, rounds[i-1]) {
					t.Errorf("rounds %d and %d have the same order %v", i-1, i, r)
				}
			}
		})
	}
}

func TestJitterRefusesNonsense(t *testing.T) {
	rttest.Ends(t, rttest.Err(Measure(t.Context(), Config{})), exit.Usage, "--subject names nothing")
	rttest.Ends(t, rttest.Err(Measure(t.Context(), Config{Subjects: []string{Loop, Loop}})), exit.Usage, "each once")
}

func TestPinnedBy(t *testing.T) {
	for _, tt := range []struct{ wish, cpus, want int }{{-1, 2, -1}, {-1, 4, 3}, {-1, 8, 7}, {0, 2, 0}, {1, 8, 1}} {
		rttest.Want(t, pinnedBy(tt.wish, tt.cpus), tt.want, "pinnedBy(%d, %d)", tt.wish, tt.cpus)
	}
}
