package leader

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// encoders has a reading of joint 0, raw, and the limits of the joint's range, low and high.
type encoders struct{ raw, low, high int }

func (e *encoders) Raws(dst []int) {
	for j := range dst {
		dst[j] = 2048
	}
	dst[0] = e.raw
}

func (e *encoders) Outside(slack int) robot.Joints {
	if e.raw < e.low-slack || e.raw > e.high+slack {
		return 1
	}
	return 0
}

// reading is a reading of joint 0, some time after the previous reading.
type reading struct {
	after time.Duration
	raw   int
	want  Cause
}

const tick = 20 * time.Millisecond

// Goal: a joint with a reading that a hand cannot have caused does not lead. It leads again when its reading is
// possible again.
func TestWhichJointsLead(t *testing.T) {
	for _, tt := range []struct {
		name      string
		robot     string
		low, high int
		readings  []reading
	}{
		{"a hand moves it", "so101_leader", 0, 4095,
			[]reading{{0, 2000, 0}, {tick, 2200, 0}, {tick, 2000, 0}, {5 * time.Second, 3900, 0}}},
		{"over the seam and back", "so101_leader", 0, 4095, []reading{
			{0, 4080, 0}, {tick, 30, OverSeam}, {tick, 200, OverSeam}, {time.Second / 2, 800, OverSeam},
			{tick, 700, OverSeam},
			{tick * 5, 4, OverSeam}, {tick, 4090, 0}, {tick, 4000, 0},
		}},
		{"over the seam the other way", "so101_leader", 0, 4095,
			[]reading{{0, 10, 0}, {tick, 4090, OverSeam}, {tick, 3, 0}}},
		{"over the seam twice", "so101_leader", 0, 4095, []reading{
			{0, 4090, 0}, {tick, 5, OverSeam}, {200 * time.Millisecond, 1800, OverSeam},
			{200 * time.Millisecond, 3600, OverSeam},
			{100 * time.Millisecond, 100, OverSeam}, {tick, 4090, OverSeam}, {200 * time.Millisecond, 2300, OverSeam},
			{200 * time.Millisecond, 500, OverSeam}, {100 * time.Millisecond, 4000, 0},
		}},
		{"over the seam during a silence", "so101_leader", 0, 4095,
			[]reading{{0, 4000, 0}, {300 * time.Millisecond, 200, OverSeam}}},
		{"a damaged reading", "so101_leader", 0, 4095, []reading{{0, 2000, 0}, {tick, 3300, TooFar}, {tick, 2010, 0}}},
		{"damaged readings that do not agree", "so101_leader", 0, 4095, []reading{
			{0, 2000, 0}, {tick, 3300, TooFar}, {tick, 700, TooFar}, {tick, 3900, TooFar}, {tick, 2010, 0},
		}},
		{"a damaged reading at the seam", "so101_leader", 0, 4095,
			[]reading{{0, 4090, 0}, {tick, 1500, TooFar}, {tick, 5, OverSeam}, {tick, 4090, 0}}},
		{"a place that lasts is believed", "so101_leader", 0, 4095, []reading{
			{0, 1000, 0}, {5 * time.Millisecond, 2700, TooFar}, {50 * time.Millisecond, 2700, TooFar},
			{49 * time.Millisecond, 2700, TooFar}, {time.Millisecond, 2700, 0},
		}},
		{"outside its range", "so101_leader", 900, 3100, []reading{
			{0, 800, OutsideRange}, {tick, 850, OutsideRange}, {tick, 890, 0}, {tick, 850, 0},
			{tick, 835, OutsideRange},
		}},
		{"a Koch's wrist counts on", "koch_leader", 0, 4095,
			[]reading{{0, 4080, 0}, {tick, 4110, 0}, {tick, 4200, OutsideRange}, {tick, 4100, 0}}},
		{"a turn is forgotten", "koch_leader", -306, 2419,
			[]reading{{0, -194, 0}, {tick, 3901, OverSeam}, {tick, -194, 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rttest.Must(robot.ByName(tt.robot))(t)
			l := NewLeading(r)
			now := rt.Instant(time.Hour)
			held := Cause(0)
			for i, k := range tt.readings {
				now = now.Add(k.after)
				began, ended := l.Check(now, &encoders{k.raw, tt.low, tt.high})
				got := held
				for cause, joints := range began {
					if joints != 0 {
						got = Cause(cause)
					}
				}
				if ended != 0 {
					got = 0
				}
				if got != k.want || (l.Held() == 1) != (k.want != 0) || l.Held()&^1 != 0 {
					t.Fatalf("reading %d, %d: cause %d (%v), held %b, want %d (%v)", i, k.raw, got, got, l.Held(),
						k.want, k.want)
				}
				held = got
			}
		})
	}
}

// Goal: after a reconnect any first reading is accepted, and a check allocates nothing.
func TestLeadingForgets(t *testing.T) {
	r := rttest.Must(robot.ByName("so101_leader"))(t)
	l, e := NewLeading(r), &encoders{4090, 0, 4095}
	l.Check(1, e)
	e.raw = 5
	if l.Check(rt.Instant(tick), e); l.Held() != 1 {
		t.Fatalf("held %b", l.Held())
	}
	l.Forget()
	if l.Check(rt.Instant(2*tick), e); l.Held() != 0 {
		t.Errorf("held %b after a reconnect", l.Held())
	}
	rttest.NoAllocs(t, "a check allocates %v times", 50, func() { l.Check(rt.Instant(2*tick), e) })
}

// Goal: a joint that crosses its encoder's seam keeps its place in the pose and is marked as held. The leader reports
// the crossing and counts no push.
func TestLeaderGoesOverItsSeam(t *testing.T) {
	t.Parallel()
	s := newStand(t, "so101_leader", func(c *Config) { c.Push = true })
	at := []int{middle, middle, middle, middle, 4090, middle}
	s.hand.Lead(s.now(), at, 1e6)
	s.until("there", func(p *Pose) bool { return p.Joints[4] > 170 })
	s.cycles(150) // the leader no longer counts pushes of this motion
	pushes := s.Pose().Pushes
	at[4] = 4100
	s.hand.Lead(s.now(), at, 1000)
	s.until("held", func(p *Pose) bool { return p.Held == 1<<4 })
	if p := s.Pose(); p.Joints[4] < 170 || p.Pushes != pushes {
		t.Errorf("pose %+v, want the joint where it was and no push", *p)
	}
	if !s.says("wrist_roll does not lead") || !s.says("turn it back") {
		t.Errorf("it says %q", s.said)
	}
	at[4] = 4080
	s.hand.Lead(s.now(), at, 1000)
	s.until("leads", func(p *Pose) bool { return p.Held == 0 })
	if !s.says("leads again") || s.Pose().Pushes != pushes {
		t.Errorf("it says %q, pushes %d", s.said, s.Pose().Pushes)
	}
}
