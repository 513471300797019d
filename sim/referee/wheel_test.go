package referee

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// Goal: the referee judges a wheel's goal velocity by what its servo received.
func TestWheels(t *testing.T) {
	const id = 7
	for _, tt := range []struct {
		name string
		do   func(r *Referee, write func(at int, torque bool, spin int))
		want map[Rule]int
	}{
		{"a pause without a stop", func(r *Referee, write func(int, bool, int)) {
			write(20, true, 500)
			r.Paused(ms(100), true)
			r.CheckAt(ms(121))
			r.CheckAt(ms(500))
		}, map[Rule]int{Wheel: 1}},
		{"a stop within two ticks, and another run", func(r *Referee, write func(int, bool, int)) {
			write(20, true, 500)
			r.Idle(ms(100), true)
			write(119, true, 0)
			r.CheckAt(ms(200))
			r.Idle(ms(200), false)
			write(210, true, 500)
			r.CheckAt(ms(400))
		}, nil},
		{"a goal after the loss", func(r *Referee, write func(int, bool, int)) {
			r.Idle(ms(100), true)
			write(150, true, -3)
			r.Idle(ms(200), false)
			r.Idle(ms(300), true)
			r.CheckAt(ms(400))
		}, map[Rule]int{Wheel: 2}},
		{"a limp wheel", func(r *Referee, write func(int, bool, int)) {
			write(20, false, 500)
			r.Idle(ms(100), true)
			r.CheckAt(ms(400))
		}, nil},
		{"too fast", func(r *Referee, write func(int, bool, int)) { write(20, true, 3002) }, map[Rule]int{Range: 1}},
	} {
		r := New(Config{Period: period, Joints: []Joint{{ID: id, Name: "wheel", Velocity: 3000, Wheel: true}}})
		was := servosim.Snapshot{Answers: true, EncoderOK: true, Boots: 1}
		write := func(at int, torque bool, spin int) {
			is := was
			is.Torque, is.Spin = torque, spin
			e := servosim.Event{At: ms(at), ID: id, Addr: 46, Data: []byte{1, 1}, Before: was, After: is}
			r.Watch(&e)
			was = is
		}
		r.FirstChunk(ms(1))
		write(10, true, 0)
		tt.do(r, write)
		v := r.Verdict()
		for rule, n := range v.Violations {
			if n != tt.want[Rule(rule)] {
				t.Errorf("%s: %d violations of %s, want %d: %v", tt.name, n, Rule(rule), tt.want[Rule(rule)], v.Kept)
			}
		}
	}
	r := New(Config{Period: period, Joints: []Joint{{ID: id, Name: "wheel", Velocity: 3000, Wheel: true}}})
	r.FirstChunk(ms(1))
	r.Watch(&servosim.Event{At: ms(5), ID: id, Addr: torqueAddr, Data: []byte{1},
		After: servosim.Snapshot{Torque: true, Spin: 3000, Answers: true}})
	if v := r.Verdict(); v.Violations[Step] != 1 {
		t.Errorf("torque with a goal velocity: %v", v.Kept)
	}
}

func ms(n int) rt.Instant { return rt.Instant(time.Second).Add(time.Duration(n) * time.Millisecond) }
