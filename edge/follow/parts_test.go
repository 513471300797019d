package follow

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// pair is a robot of two parts with two joints each. The test runs its ticks one by one.
type pair struct {
	*Parts
	left, right *motors
	events      *event.Queue
	now         rt.Instant
}

// armedPair returns a pair after its slow start.
func armedPair(t testing.TB, coupling robot.Coupling, change func(*Config)) *pair {
	t.Helper()
	p := &pair{events: event.NewQueue(256), now: rt.Instant(time.Second)}
	var parts []*Follower
	for range 2 {
		r := newRig(func(c *Config) {
			c.Events, c.Clock = p.events, rttest.NewClock(0)
			if change != nil {
				change(c)
			}
		})
		parts = append(parts, r.Follower)
		p.left, p.right = p.right, r.bus
	}
	p.Parts = newParts(coupling, []string{"left", "right"}, parts)
	p.tick(t)
	p.StartArming()
	p.ticks(t, 40)
	return p
}

// tick runs one tick of a policy with this action for both parts.
func (p *pair) tick(t testing.TB, want ...float32) {
	t.Helper()
	p.now = p.now.Add(testPeriod)
	tick := rt.Tick{Deadline: p.now, Woke: p.now}
	p.Read(tick)
	switch {
	case p.Phase == Arming, p.Rearming():
		rttest.Must(p.ArmStep(tick))(t)
	case p.Phase == Parking:
		p.ParkStep(p.now, false)
	}
	if p.Phase == Armed && want != nil {
		p.Drive(p.now, want)
	}
}

func (p *pair) ticks(t testing.TB, n int, want ...float32) {
	t.Helper()
	for range n {
		p.tick(t, want...)
	}
}

// goals runs n ticks of a policy with this action, and returns how many goals each part has received in them.
func (p *pair) goals(t testing.TB, n int, want ...float32) (left, right int) {
	t.Helper()
	left, right = len(p.left.sent), len(p.right.sent)
	p.ticks(t, n, want...)
	return len(p.left.sent) - left, len(p.right.sent) - right
}

// One vector holds the joints of both parts in their order.
func TestPartsShareOneVector(t *testing.T) {
	p := armedPair(t, robot.Together, nil)
	p.ticks(t, 60, 1, 40, 3, 60)
	for j, want := range []float32{1, 40, 3, 60} {
		if p.Goal[j] != want || p.State[j] != want || p.Place[j] != want {
			t.Errorf("joint %d: goal %v, state %v, place %v, want %v", j, p.Goal[j], p.State[j], p.Place[j], want)
		}
	}
	if p.left.at != [2]float32{1, 40} || p.right.at != [2]float32{3, 60} {
		t.Errorf("left is at %v and right at %v", p.left.at, p.right.at)
	}
	if g := p.Gate(); len(g.Min) != 4 || g.Step[2] != 2 || g.Max[3] != 100 {
		t.Errorf("limits %+v", g)
	}
	p.tick(t, 1, 40, 3, 200)
	if ranged, _ := p.Clipped(); ranged != 0b1000 {
		t.Errorf("clipped %b, want the second joint of right", ranged)
	}
}

// While one part cannot be driven, the other part holds, and afterwards goes on slowly. With robot.Apart, the
// other part does not hold.
func TestPartsHoldTogether(t *testing.T) {
	for _, tt := range []struct {
		name       string
		begin, end func(m *motors)
	}{
		{"silent", func(m *motors) { m.stale = 3 }, func(m *motors) { m.stale = 0 }},
		{"every joint held", func(m *motors) { m.says.Hold = 3 }, func(m *motors) { m.says.Hold = 0 }},
	} {
		for _, coupling := range []robot.Coupling{robot.Together, robot.Apart} {
			t.Run(tt.name+" "+string(coupling), func(t *testing.T) {
				p := armedPair(t, coupling, nil)
				tt.begin(p.left)
				p.ticks(t, 25, 5, 50, 5, 50)
				held, other := p.goals(t, 10, 5, 50, 80, 90)
				if held != 0 || coupling == robot.Together && other != 0 || coupling == robot.Apart && other != 10 {
					t.Errorf("%d goals for the part itself, %d for the other in 10 ticks", held, other)
				}
				tt.end(p.left)
				p.tick(t, 5, 50, 80, 90)
				before := p.Goal[2]
				p.tick(t, 5, 50, 80, 90)
				if step := p.Goal[2] - before; coupling == robot.Together && step > 1 {
					t.Errorf("the other part goes on with a step of %v, want at most 1, slowly", step)
				}
				if a, b := p.goals(t, 5, 5, 50, 80, 90); a != 5 || b != 5 {
					t.Errorf("afterwards %d and %d goals in 5 ticks", a, b)
				}
			})
		}
	}
}

// A part that was away is armed again. Meanwhile the other part keeps its torque: it holds if the parts are Together,
// and moves on if they are Apart.
func TestPartReturns(t *testing.T) {
	for _, coupling := range []robot.Coupling{robot.Together, robot.Apart} {
		p := armedPair(t, coupling, nil)
		p.right.back = hotplug.Unplugged
		want := Unarmed
		if coupling == robot.Apart {
			want = Armed
		}
		_, other := p.goals(t, 5, 20, 50, 5, 50)
		if p.Phase != want || p.parts[1].Phase != Unarmed || p.parts[0].Phase != Armed {
			t.Errorf("%s: phases %v: %v and %v", coupling, p.Phase, p.parts[0].Phase, p.parts[1].Phase)
		}
		rttest.Want(t, other, 0, "%s: goals for the part that is not armed", coupling)
		p.left.armed, p.right.armed = 0, 0
		p.StartArming()
		p.ticks(t, 3, 20, 50, 5, 50)
		if p.Phase != Armed || p.left.armed != 0 || p.right.armed != 3 {
			t.Errorf("%s: phase %v, armed %b and %b, want only right", coupling, p.Phase, p.left.armed, p.right.armed)
		}
	}
}

// A restarted motor of one part makes the robot wait for its operator.
func TestRestartOfAPart(t *testing.T) {
	p := armedPair(t, robot.Together, nil)
	p.events.Drain(func(event.Event) {})
	p.right.back, p.right.restarted = hotplug.Restarted, 2
	p.tick(t)
	if !p.NeedsResume() {
		t.Fatal("nothing waits for an operator")
	}
	var got event.Event
	p.events.Drain(func(e event.Event) {
		if e.Code == event.BusBack {
			got = e
		}
	})
	if got.A != 0b1100<<event.CauseBits|int64(hotplug.Restarted) || got.B != 0b1000<<1|1 {
		t.Errorf("event %+v, want the part's joints and joint 4", got)
	}
	p.StartArming()
	p.ticks(t, 5)
	if p.Phase == Armed {
		t.Error("armed without the operator")
	}
	p.Resume()
	p.ticks(t, 5)
	if p.Phase != Armed || p.NeedsResume() {
		t.Errorf("phase %v after the operator's resume", p.Phase)
	}
}

// No part is armed before each is ready, and a part outside its range is refused before any other
// gets torque.
func TestPartsAreArmedTogether(t *testing.T) {
	p := armedPair(t, robot.Together, nil)
	p.left.back, p.right.back = hotplug.Unplugged, hotplug.Unplugged
	p.tick(t)
	p.left.armed = 0
	p.right.armed = 0
	p.right.stale = 1
	p.StartArming()
	if p.ticks(t, 5); p.left.armed != 0 || p.Phase != Arming {
		t.Errorf("armed %b while a joint of right is silent", p.left.armed)
	}
	p.right.stale, p.right.outside = 0, 1
	p.now = p.now.Add(testPeriod)
	tick := rt.Tick{Deadline: p.now, Woke: p.now}
	p.Read(tick)
	touched, err := p.ArmStep(tick)
	if touched || exit.Of(err) != exit.Fault || !strings.HasPrefix(err.Error(), "right: ") || p.left.armed != 0 {
		t.Errorf("touched %v, armed %b, error %v", touched, p.left.armed, err)
	}
	p.CancelArming()
	rttest.Want(t, p.Phase, Unarmed, "phase")
}

// At the end every part under torque parks, even if another part is away or silent.
func TestPartsEnd(t *testing.T) {
	park := func(c *Config) { c.Exit = ExitPark }
	p := armedPair(t, robot.Together, park)
	p.ticks(t, 10, 20, 50, 20, 50)
	p.right.back = hotplug.Unplugged
	p.tick(t)
	p.Finish(p.now)
	if p.Phase != Parking || p.parts[1].Phase != Done {
		t.Errorf("phases %v and %v, want left parking", p.parts[0].Phase, p.parts[1].Phase)
	}
	p.right.stale = 3
	if left, right := p.goals(t, 5); left != 5 || right != 0 {
		t.Errorf("parking: %d goals for left and %d for right", left, right)
	}
	if p.ticks(t, 200); p.Phase != Done || p.Goal[0] > 5+parkTolerance {
		t.Errorf("phase %v, left at %v, want Done where it was armed", p.Phase, p.Goal[0])
	}
	p = armedPair(t, robot.Together, park)
	p.Finish(p.now)
	if p.ParkStep(p.now, true); p.Phase != Done {
		t.Errorf("phase %v after a hurried end", p.Phase)
	}
}

// The errors and events of a fault name the part and its joints.
func TestPartsNameTheirs(t *testing.T) {
	p := armedPair(t, robot.Together, nil)
	p.right.fatal = errors.New("motor 6 is hot")
	if err := p.Fatal(); err == nil || !strings.HasPrefix(err.Error(), "right: ") {
		t.Errorf("error %v", err)
	}
	p.right.fatal, p.right.stale = nil, 1
	p.events.Drain(func(event.Event) {})
	p.ticks(t, 12, 5, 50, 5, 50)
	frozen := int64(0)
	p.events.Drain(func(e event.Event) {
		if e.Code == event.JointFrozen {
			frozen = e.A
		}
	})
	if frozen != 0b100 || p.Frozen() != 0b100 || p.Stale() != 0b100 || !p.Blind() || p.Silent() {
		t.Errorf("event %b, frozen %b, stale %b, blind %v", frozen, p.Frozen(), p.Stale(), p.Blind())
	}
	v := View{Conditions: make([]Condition, 4), Complaints: make([]int64, 4)}
	if p.View(&v); v.Frozen != 0b100 || v.Conditions[2]&Answering != 0 || v.Conditions[3]&Answering == 0 {
		t.Errorf("view %+v", v)
	}
	if p.apart = true; p.Blind() {
		t.Error("apart, a silent joint of one part keeps the observation back")
	}
	if !strings.HasPrefix(p.Why(2), "silent") || strings.HasPrefix(p.Why(0), "silent") {
		t.Errorf("why: %s", p.Why(2))
	}
}

// During the rescue of one part (its return into the range) the other part waits, except with robot.Apart.
func TestRescueOfAPart(t *testing.T) {
	for _, coupling := range []robot.Coupling{robot.Together, robot.Apart} {
		p := armedPair(t, coupling, func(c *Config) { c.Rescue = true })
		p.right.back = hotplug.Unplugged
		p.tick(t)
		p.right.outside = 1
		p.StartArming()
		if p.parts[1].rescue.active = true; p.Rescuing() { // the arming takes several ticks
			t.Errorf("%s: the rescue begins before the arming, which never ends", coupling)
		}
		p.ticks(t, 3)
		if !p.Rescuing() {
			t.Fatalf("%s: no rescue, phase %v", coupling, p.Phase)
		}
		left, right := p.goals(t, 5, 20, 50, 20, 50)
		if right != 0 || coupling == robot.Together && left != 0 || coupling == robot.Apart && left != 5 {
			t.Errorf("%s: %d and %d goals of the policy", coupling, left, right)
		}
		p.now = p.now.Add(time.Hour) // an operator's pause does not count
		rttest.Do(t, p.RescueStep(p.now))
		if got := len(p.right.sent); got == 0 || p.right.sent[got-1].joints == 0 {
			t.Errorf("%s: the rescue moves nothing", coupling)
		}
		p.right.outside = 0
		rttest.Do(t, p.RescueStep(p.now))
		if p.Rescuing() {
			t.Errorf("%s: the rescue does not end", coupling)
		}
	}
}

func TestPartsNoAlloc(t *testing.T) {
	p := armedPair(t, robot.Together, nil)
	p.left.sent, p.right.sent = make([]sent, 0, 4096), make([]sent, 0, 4096)
	want := []float32{1, 40, 3, 60}
	rttest.NoAllocs(t, "a tick of two parts allocates %v times, want 0", 500, func() {
		p.now = p.now.Add(testPeriod)
		p.Read(rt.Tick{Deadline: p.now, Woke: p.now})
		p.Drive(p.now, want)
		p.Clipped()
		_ = p.Held() | p.AllHeld() | p.Frozen()
		_ = p.Waited()
	})
}

// A part that must start slowly does not slow the other one.
func TestPartStartsSlowlyAlone(t *testing.T) {
	p := armedPair(t, robot.Apart, nil)
	p.ticks(t, 60, 1, 40, 3, 60)
	p.StartOnlySlowly(p.now, 1)
	if p.ticks(t, 1, 2, 43, 4, 63); !p.parts[0].slow.active || p.parts[1].slow.active || p.Goal[1] >= 43 ||
		p.Goal[3] != 63 {
		t.Errorf("goals %v, want left slow and right at 63", p.Goal)
	}
}
