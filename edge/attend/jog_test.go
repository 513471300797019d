package attend

import (
	"context"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// typed returns a channel from which a test gets the run's function for keys. The test calls it to press a key.
func typed(cfg *Config) (keys chan func(string)) {
	keys = make(chan func(string), 1)
	cfg.Listen = func(key func(string)) func() { keys <- key; return func() {} }
	return keys
}

// A repeated key moves its joint alone, at leader.JogPace, and the joint stops within leader.JogLease of the
// last key. A pause holds the joint.
func TestKeysMoveAJoint(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	cfg, _, follow, _, f := pair(t, "so101")
	keys := typed(&cfg.Config)
	ctx, cancel := context.WithCancel(t.Context())
	done := rttest.Go(func() error { return Jog(ctx, cfg.Config, cfg.FPS) })
	awaitTorque(t, follow)
	key := <-keys
	press := func(name string, d time.Duration) time.Duration {
		began := time.Now()
		for time.Since(began) < d {
			key(name)
			time.Sleep(leader.JogLease / 5) // a terminal repeats a held key
		}
		return time.Since(began) + leader.JogLease
	}
	key("2")
	pressed := press("up", 500*time.Millisecond)
	time.Sleep(2 * leader.JogLease) // the motion has ended then
	at := f.Raw[1].Load()
	most := pressed.Seconds() * leader.JogPace * cfg.Arm.Robot.Motors[1].MaxVelocity / 360 * 4096
	if moved := float64(at - 2047); moved < most/3 || moved > 1.2*most {
		t.Errorf("the joint moved by %v counts in %v, want up to %.0f", moved, pressed, most)
	}
	for j := range f.Raw {
		if raw := f.Raw[j].Load(); j != 1 && (raw < 2045 || raw > 2049) {
			t.Errorf("joint %d moved to %d as well", j+1, raw)
		}
	}
	time.Sleep(leader.JogLease) // some ticks
	rttest.Want(t, f.Raw[1].Load(), at, "it moved on from %d to without a key", at)
	press("down", 100*time.Millisecond)
	time.Sleep(2 * leader.JogLease) // the motion has ended then
	if now := f.Raw[1].Load(); now >= at {
		t.Errorf("down moved it from %d to %d", at, now)
	}
	cancel()
	rttest.Do(t, <-done)
}
