package follow

import (
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// plan is a schedule that notes its calls, and requests a chunk on each OnTick.
type plan struct {
	chunk.Discipline
	calls []string
	row   []float32 // nil: no action is due
}

func (p *plan) note(call string) { p.calls = append(p.calls, call) }

func (p *plan) Pop(rt.Instant, time.Duration) ([]float32, time.Duration, bool) {
	p.note("pop")
	return p.row, time.Millisecond, p.row == nil
}

func (p *plan) OnTick(rt.Instant, []float32, *chunk.Ask) bool {
	p.note("ask")
	return true
}
func (p *plan) OnTickWithoutObservation() { p.note("blind") }
func (p *plan) Resume()                   { p.note("resume") }
func (p *plan) Reset()                    { p.note("reset") }

// newCore returns the core of one joint at 100 Hz, and its schedule.
func newCore(t *testing.T, stages smoothing.Config) (*Core, *plan) {
	t.Helper()
	chain := rttest.Must(smoothing.NewChain(stages, 100, 1))(t)
	p := &plan{row: []float32{10}}
	return &Core{Schedule: p, Stages: chain}, p
}

// The core calls OnTick of the schedule once per action, and Resume after a break without observations.
func TestAskOncePerAction(t *testing.T) {
	c, p := newCore(t, smoothing.Config{Multiplier: 3})
	asked, first := 0, 0
	for tick := range 12 {
		if c.Ask(0, tick < 3 || tick >= 9, []float32{0}, nil, &chunk.Ask{}) {
			asked++
		}
		if c.AtAction() {
			first++
		}
	}
	if want := "ask blind blind resume ask"; strings.Join(p.calls, " ") != want || asked != 2 || first != 4 {
		t.Errorf("calls %q, %d observations, %d first ticks; want %q, 2 and 4", p.calls, asked, first, want)
	}
}

// A rate limit slows to a stop while the arm is held, and begins at the goal after a reset.
func TestStagesRestAndReset(t *testing.T) {
	c, p := newCore(t, smoothing.Config{Velocity: 100, Accel: 1000})
	c.Reset([]float32{0})
	rttest.Equal(t, p.calls, []string{"reset"}, "calls (a reset of the schedule)")
	next := func() float32 { return c.Next(0).Row[0] }
	one, two := next(), next()
	if second := two - one; !(second > one) {
		t.Fatalf("steps %v and %v, want a growing speed", one, second)
	}
	c.Hold()
	if step := next() - two; step > one*1.01 {
		t.Errorf("step %v after a hold, want at most the first one's %v: the speed is lost", step, one)
	}
	c.Reset([]float32{5})
	if got := next(); got < 5 || got > 5+one*1.01 {
		t.Errorf("goal %v after a reset at 5, want one step of %v from there", got, one)
	}
}

// If the schedule's actions are all too old, the core returns no action and reports this.
func TestTooOldActions(t *testing.T) {
	c, p := newCore(t, smoothing.Config{})
	if a := c.Next(0); a.Row == nil || a.Policy == nil || a.Age != time.Millisecond || a.TooOld {
		t.Errorf("action %+v, want the policy's row of 1 ms", a)
	}
	p.row = nil
	if a := c.Next(0); a.Policy != nil || !a.TooOld {
		t.Errorf("action %+v, want none, too old", a)
	}
}
