package backoff

import (
	"testing"
	"time"
)

func TestNextDoublesUpToTheMaximum(t *testing.T) {
	b := Backoff{First: 50 * time.Millisecond, Max: 300 * time.Millisecond}
	for round := range 2 {
		for i, want := range []time.Duration{50, 100, 200, 300, 300} {
			if got := b.Next(); got != want*time.Millisecond {
				t.Errorf("round %d: wait %d is %v, want %d ms", round, i, got, want)
			}
		}
		b.Reset()
	}
}

func TestAFirstWaitMayBeLongerThanTheMaximum(t *testing.T) {
	b := Backoff{First: 20 * time.Second, Max: 10 * time.Second}
	if first, second := b.Next(), b.Next(); first != b.First || second != b.Max {
		t.Errorf("waits of %v and %v, want %v and %v", first, second, b.First, b.Max)
	}
}
