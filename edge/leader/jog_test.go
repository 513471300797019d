package leader

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestAPressLastsForItsLease(t *testing.T) {
	clock := rttest.NewClock(1_000_000)
	g := NewJog([]string{"pan", "lift"}, clock)
	next := func() [2]float32 {
		dst := []float32{0, 0}
		g.Next(clock.Now(), []float32{5, -5}, []float32{10, 20}, dst)
		return [2]float32(dst)
	}
	rest := [2]float32{5, -5}
	g.Key("2")
	g.Key("up")
	rttest.Want(t, next(), [2]float32{5, -3}, "up moves to (a tenth of the step of the chosen joint)")
	clock.Advance(JogLease - time.Nanosecond)
	if next() == rest {
		t.Error("the motion ended before its lease")
	}
	clock.Advance(time.Nanosecond)
	rttest.Want(t, next(), rest, "after the lease")
	if err := g.Move("pan", -1); err != nil || next() != [2]float32{4, -5} {
		t.Errorf("a button: %v, %v", err, next())
	}
	if err := g.Move("pan", 0); err != nil || next() != rest {
		t.Errorf("a released button: %v, %v", err, next())
	}
	for _, bad := range []struct {
		name string
		way  int
	}{{"elbow", 1}, {"pan", 2}, {"pan", -2}} {
		if err := g.Move(bad.name, bad.way); err == nil || next() != rest {
			t.Errorf("Move(%q, %d) is accepted", bad.name, bad.way)
		}
	}
	rttest.NoAllocs(t, "Way allocates %v times", 100, func() { g.Way(0, clock.Now()) })
}

func TestKeysChooseAJoint(t *testing.T) {
	g := NewJog([]string{"pan", "lift", "grip"}, rttest.NewClock(1))
	for _, tt := range []struct {
		key     string
		handled bool
		say     string
	}{
		{"1", true, "joint 1: pan"}, {"j", true, "joint 3: grip"}, {"k", true, "joint 1: pan"},
		{"k", true, "joint 2: lift"},
		{"3", true, "joint 3: grip"}, {"4", true, "no joint 4: there are 3"}, {"0", true, "no joint 10: there are 3"},
		{"up", true, ""}, {"s", false, ""}, {"esc", false, ""},
	} {
		if handled, say := g.Key(tt.key); handled != tt.handled || say != tt.say {
			t.Errorf("%s: %v, %q, want %v, %q", tt.key, handled, say, tt.handled, tt.say)
		}
	}
	if g.Way(2, 1) != 1 {
		t.Error("an unknown number changed the chosen joint")
	}
}
