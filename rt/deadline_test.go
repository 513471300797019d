package rt

import (
	"testing"
	"time"
)

func TestNextDeadline(t *testing.T) {
	const ms = Instant(time.Millisecond)
	for _, tt := range []struct {
		name        string
		prev, now   Instant
		wantNext    Instant
		wantSkipped uint64
	}{
		{"on time", 0, 4 * ms, 10 * ms, 0},
		{"exactly at the next deadline", 0, 10 * ms, 10 * ms, 0},
		{"one nanosecond late", 0, 10*ms + 1, 20 * ms, 1},
		{"late by whole periods", 0, 30 * ms, 30 * ms, 2},
		{"grid is kept from a non-zero start", 3 * ms, 39 * ms, 43 * ms, 3},
		{"an hour late", 0, 3_600_000 * ms, 3_600_000 * ms, 359_999},
	} {
		t.Run(tt.name, func(t *testing.T) {
			next, skipped := nextDeadline(tt.prev, tt.now, 10*time.Millisecond)
			if next != tt.wantNext || skipped != tt.wantSkipped {
				t.Errorf("nextDeadline(%d, %d) = %d, %d, want %d, %d",
					tt.prev, tt.now, next, skipped, tt.wantNext, tt.wantSkipped)
			}
		})
	}
}
