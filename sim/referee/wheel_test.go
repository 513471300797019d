package referee

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

const wheelID = 7

// spun is a referee that judges one wheel, and the wheel's state.
type spun struct {
	*Referee
	is servosim.Snapshot
}

func (s *spun) event(at, addr int, change func(*servosim.Snapshot), data ...byte) {
	e := servosim.Event{
		At:     ms(at),
		ID:     wheelID,
		Addr:   addr,
		Data:   data,
		Before: s.is,
	}
	change(&s.is)
	e.After = s.is
	s.Watch(&e)
}

func (s *spun) write(at int, torque bool, spin int) {
	s.event(at, spinAddr, func(is *servosim.Snapshot) { is.Torque, is.Spin = torque, spin }, 1, 1)
}

// speedUp raises the wheel's goal velocity in three ticks, from 20 ms on, to the value spin.
func (s *spun) speedUp(spin int) {
	for i := range 3 {
		s.write(20+10*i, true, spin*(i+1)/3)
	}
}

func (s *spun) answers(at int, on bool) {
	s.event(at, 0, func(is *servosim.Snapshot) { is.Answers = on })
}

// falls makes the wheel lose its torque, as a restart does.
func (s *spun) falls(at int) {
	s.event(at, 0, func(is *servosim.Snapshot) { is.Torque, is.Spin = false, 0; is.Boots++ })
}

// Goal: the referee judges a wheel's goal velocity by the writes that its servo has received.
func TestWheels(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*spun)
		want map[Rule]int
	}{
		{"a pause without a stop", func(r *spun) {
			r.write(20, true, 500)
			r.Paused(ms(100), true)
			r.CheckAt(ms(121))
			r.CheckAt(ms(500))
		}, map[Rule]int{wheelRule: 1}},
		{"a stop within two ticks, and another run", func(r *spun) {
			r.write(20, true, 500)
			r.Idle(ms(100), true)
			r.write(119, true, 0)
			r.CheckAt(ms(200))
			r.Idle(ms(200), false)
			r.write(210, true, 500)
			r.CheckAt(ms(400))
		}, nil},
		{"a goal after the loss", func(r *spun) {
			r.Idle(ms(100), true)
			r.write(150, true, -3)
			r.Idle(ms(200), false)
			r.Idle(ms(300), true)
			r.CheckAt(ms(400))
		}, map[Rule]int{wheelRule: 2}},
		{"a limp wheel", func(r *spun) {
			r.write(20, false, 500)
			r.Idle(ms(100), true)
			r.CheckAt(ms(400))
		}, nil},
		{"a wheel that does not answer, and one that goes on once it does", func(r *spun) {
			r.write(20, true, 500)
			r.answers(25, false)
			r.Idle(ms(100), true)
			r.CheckAt(ms(400))
			r.answers(400, true)
			r.write(400, true, 500)
			r.CheckAt(ms(421))
		}, map[Rule]int{wheelRule: 1}},
		{"a restart, then a goal", func(r *spun) {
			r.write(20, true, 500)
			r.falls(30)
			r.write(200, true, 0)
			r.write(210, true, 500)
		}, map[Rule]int{restartRule: 1}},
		{"a goal after the end", func(r *spun) {
			r.Ended(ms(100))
			r.write(110, false, 0)
			r.write(120, false, 5)
		}, map[Rule]int{endRule: 1}},
		{"too fast", func(r *spun) {
			r.speedUp(1800)
			r.write(60, true, 2400)
			r.write(70, true, 3000)
			r.write(80, true, 3002)
		}, map[Rule]int{rangeRule: 1}},
		{"a slow start, a stop at once, and back", func(r *spun) {
			r.speedUp(1800)
			r.write(60, true, 0)
			r.write(70, true, -600)
		}, nil},
		{"a jump", func(r *spun) { r.write(20, true, 700) }, map[Rule]int{stepRule: 1}},
		{"the other way at once", func(r *spun) { r.write(20, true, 500); r.write(30, true, -500) },
			map[Rule]int{stepRule: 1}},
		{"two goals in a tick", func(r *spun) {
			for i := range 18 {
				r.write(20+5*i, true, 300-550*(i%2))
			}
		}, map[Rule]int{stepRule: 1}},
		{"more than the limit at the largest velocity", func(r *spun) {
			r.speedUp(1800)
			r.write(60, true, 2400)
			r.write(70, true, 3000)
			r.write(80, true, 2300)
		}, map[Rule]int{stepRule: 1}},
		{"a goal after two that the wheel missed", func(r *spun) {
			r.answers(20, false)
			r.answers(40, true)
			r.write(40, true, 1700)
		}, nil},
	} {
		r := &spun{Referee: New(Config{Period: period, Joints: []Joint{{
			ID:           wheelID,
			Name:         "wheel",
			Velocity:     3000,
			Wheel:        true,
			Acceleration: 600 / period.Seconds(),
		}}})}
		r.is = servosim.Snapshot{Answers: true, EncoderOK: true, Boots: 1}
		r.FirstChunk(ms(1))
		r.event(10, torqueAddr, func(is *servosim.Snapshot) { is.Torque = true }, 1)
		tt.do(r)
		v := r.Verdict()
		for rule, n := range v.Violations {
			if n != tt.want[Rule(rule)] {
				t.Errorf("%s: %d violations of %s, want %d: %v", tt.name, n, Rule(rule), tt.want[Rule(rule)], v.Kept)
			}
		}
	}
	r := New(Config{Period: period, Joints: []Joint{{ID: wheelID, Name: "wheel", Velocity: 3000, Wheel: true}}})
	r.FirstChunk(ms(1))
	r.Watch(&servosim.Event{At: ms(5), ID: wheelID, Addr: torqueAddr, Data: []byte{1},
		After: servosim.Snapshot{Torque: true, Spin: 3000, Answers: true}})
	rttest.Want(t, r.Verdict().Violations[stepRule], 1, "torque with a goal velocity")
}

func ms(n int) rt.Instant { return rt.Instant(time.Second).Add(time.Duration(n) * time.Millisecond) }
