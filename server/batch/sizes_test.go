package batch

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestFit(t *testing.T) {
	s := NewSizes([]int{1, 2, 4, 6})
	for rows, want := range []int{1, 1, 2, 4, 4, 6, 6, 6} {
		rttest.Want(t, s.Fit(rows), want, "rows of a batch of %d", rows)
	}
}

// The number of requests that share a run depends on the durations of earlier runs.
func TestChoose(t *testing.T) {
	const ms = time.Millisecond
	// on a GPU, one row uses only a small part of it
	free := []time.Duration{10 * ms, 10 * ms, 10 * ms, 10 * ms}
	linear := []time.Duration{10 * ms, 20 * ms, 40 * ms, 80 * ms} // as on a CPU
	half := []time.Duration{10 * ms, 15 * ms, 20 * ms, 40 * ms}   // larger batches save time up to 4 rows
	for _, tt := range []struct {
		name string
		took []time.Duration
		want [9]int // the result of Choose for n waiting requests
	}{
		{"nothing is known", make([]time.Duration, 4), [9]int{1, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"more rows for nothing", free, [9]int{1, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"no gain", linear, [9]int{1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{"a gain up to 4, and none from filling up", half, [9]int{1, 1, 2, 3, 4, 4, 4, 4, 4}},
	} {
		s := NewSizes([]int{1, 2, 4, 8})
		for i, size := range s.All() {
			if tt.took[i] > 0 {
				s.Learn(size, tt.took[i])
			}
		}
		for n := 1; n <= 8; n++ {
			rttest.Want(t, s.Choose(n), tt.want[n], "%s: of %d that wait, a run's share", tt.name, n)
		}
		rttest.Want(t, testing.AllocsPerRun(10, func() { s.Learn(s.Fit(s.Choose(3)), 10*ms) }), 0, "%s: allocations",
			tt.name)
	}
}

func TestLearnForgetsSlowly(t *testing.T) {
	s := NewSizes([]int{1, 2})
	s.Learn(2, 10*time.Millisecond)
	s.Learn(2, 90*time.Millisecond) // the run was delayed
	if got := s.Took(2); got != 20*time.Millisecond || s.Took(1) != 0 {
		t.Errorf("after 10 and 90 ms a run of 2 takes %v, one of 1 %v, want 20 ms and unknown", got, s.Took(1))
	}
}

// Choose tries a size again that was slow for a while, and these trials cost little time.
func TestASlowSizeIsTriedAgain(t *testing.T) {
	const ms = time.Millisecond
	s := NewSizes([]int{1, 2})
	s.Learn(1, 10*ms)
	s.Learn(2, 200*ms) // the host was busy
	var total, slow time.Duration
	for total < 10*time.Minute {
		rows := s.Choose(2)
		took := 10 * ms
		if rows == 2 {
			if took = 12 * ms; s.Took(2) < 19*ms {
				break
			}
			slow += took
		}
		s.Learn(rows, took)
		total += took
	}
	if s.Choose(2) != 2 {
		t.Fatalf("after %v a batch of 2 is still held to take %v", total, s.Took(2))
	}
	if slow > total/again {
		t.Errorf("trying again took %v of %v, want 1/%d at most", slow, total, again)
	}
	for i := range 3 {
		s.Learn(2, 25*ms)
		if rows := s.Choose(2); i == 2 && rows != 1 {
			t.Errorf("%d rows share a run of %v, want 1", rows, s.Took(2))
		}
	}
}

func TestTurnTakesTheBestSize(t *testing.T) {
	sizes := NewSizes([]int{1, 2, 4})
	rttest.Want(t, sizes.Wait(3), 0, "wait without known durations")
	sizes.Learn(1, time.Second)
	rttest.Want(t, sizes.Wait(3), 3*time.Second, "wait for three runs of one robot")
	sizes.Learn(4, 1200*time.Millisecond)
	rttest.Want(t, sizes.Wait(3), 1200*time.Millisecond, "wait for a run of three robots")
	rttest.Want(t, sizes.Wait(-1), 0, "wait for no robot")
}
