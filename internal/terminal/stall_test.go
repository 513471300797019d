package terminal

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAwait(t *testing.T) {
	const most = 5 * time.Second
	for _, tt := range []struct {
		name  string
		ends  time.Duration // when ended is closed; 0: never
		takes time.Duration // until then the counter taken grows
		wait  time.Duration
		ok    bool
	}{
		{"ends at once", time.Nanosecond, 0, time.Nanosecond, true},
		{"takes nothing", 0, 0, StallTimeout, false},
		{"slow, and ends", 3 * time.Second, 3 * time.Second, 3 * time.Second, true},
		{"stops in the middle", 0, 2500 * time.Millisecond, 4 * time.Second, false},
		{"slow, and never ends", 0, time.Hour, most, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, ended := time.Now(), make(chan struct{})
				if tt.ends > 0 {
					time.AfterFunc(tt.ends, func() { close(ended) })
				}
				taken := func() uint64 { return uint64(min(time.Since(began), tt.takes)) }
				ok := Await(ended, taken, most)
				if waited := time.Since(began); ok != tt.ok || waited != tt.wait {
					t.Errorf("Await = %v after %v, want %v after %v", ok, waited, tt.ok, tt.wait)
				}
			})
		})
	}
}
