package event

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

func TestLacks(t *testing.T) {
	const ms = rt.Instant(time.Millisecond)
	var l Lacks
	now := 1000 * ms
	pass := func(ticks int, is Lacking) {
		for range ticks {
			now += 10 * ms
			l.Add(now, is)
		}
	}
	expect := func(name string, longest Lack, lasted time.Duration, joints robot.Joints) {
		t.Helper()
		if l.Longest() != longest || l.Lasted(longest) != lasted || l.Joints() != joints {
			t.Errorf("%s: lack %d for %v, joints %b; want %d for %v, %b", name, l.Longest(), l.Lasted(longest),
				l.Joints(), longest, lasted, joints)
		}
	}
	expect("nothing yet", LackNone, 0, 0)
	l.Reset(now)
	pass(600, Lacking{Session: true})
	pass(2, Lacking{Session: true, Joints: 6, Bus: true})
	expect("a server that is gone, and at last a cable", LackSession, 6020*time.Millisecond, 6)

	l.Reset(now)
	pass(600, Lacking{Joints: 4})
	pass(60, Lacking{Joints: 7, Bus: true})
	pass(2, Lacking{})
	expect("a silent joint that answers at last", LackJoints, 6600*time.Millisecond, 4)

	l.Reset(now)
	pass(10, Lacking{Session: true})
	pass(20, Lacking{})
	pass(15, Lacking{Pictures: true})
	expect("a server that does not answer", LackAnswers, 200*time.Millisecond, 0)

	l.Reset(now)
	pass(10, Lacking{Session: true, Bus: true, Pictures: true})
	expect("all of it", LackJoints, 100*time.Millisecond, 0)
	now -= 500 * ms
	pass(1, Lacking{})
	expect("time that goes back", LackJoints, 100*time.Millisecond, 0)
	now += 3600 * 1000 * ms
	l.Add(now, Lacking{Session: true})
	expect("an hour without ticks", LackSession, 1100*time.Millisecond, 0)
	if l.Lasted(-1) != 0 || l.Lasted(numLacks) != 0 {
		t.Error("an unknown lack lasted")
	}
	rttest.NoAllocs(t, "%v allocations, want 0", 100, func() { l.Reset(now); l.Add(now, Lacking{Joints: 1}) })
}
