package follow

import (
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/rt"
)

const (
	horizon = 20
	period  = 10 * time.Millisecond
)

// arm is one joint, always at its goal, ticked in virtual time.
type arm struct {
	Core
	now         rt.Instant
	state, goal []float32
	ask         chunk.Ask
	asked       []int // ticks on which an observation left
	ticks       int
	slope       float32 // slope of the answers' rows
}

func newArm(t *testing.T, stages smoothing.Config) *arm {
	t.Helper()
	schedule, err := chunk.New(chunk.Config{
		Schedule: "drtc", Horizon: horizon, DOF: 1, FPS: 100, PrefixEnd: 10, SMin: 8, Epsilon: 1,
		Estimator: "fixed", EstimatorFixed: 30 * time.Millisecond,
	})
	must(t, err)
	chain, err := smoothing.NewChain(stages, 100, 1)
	must(t, err)
	gate := &Gate{Min: []float32{-90}, Max: []float32{90}, Step: []float32{0.5}}
	return &arm{
		Core: Core{Schedule: schedule, Stages: chain, Gate: gate, MaxAge: time.Second}, ask: chunk.NewAsk(horizon, 1),
		state: []float32{0}, goal: []float32{0}, asked: make([]int, 0, 1024),
	}
}

// tick runs one period; answer is the first row of a chunk that arrives in it.
func (a *arm) tick(able bool, answer *float32) Action {
	action := a.Next(a.now)
	if action.Row != nil {
		a.goal[0] = a.Gate.Pass(0, a.goal[0], action.Row[0], a.state[0])
	}
	copy(a.state, a.goal)
	if answer != nil {
		rows := make([]float32, horizon)
		for i := range rows {
			rows[i] = *answer + a.slope*float32(i)
		}
		a.Schedule.OnChunk(a.now, &chunk.Chunk{Key: a.ask.Key, Rows: horizon, DOF: 1, Robot: rows, Model: rows})
	}
	if a.Ask(a.now, able, a.state, a.goal, &a.ask) {
		a.asked = append(a.asked, a.ticks)
	}
	a.ticks++
	a.now = a.now.Add(period)
	return action
}

func TestWhatWasPreviewedRuns(t *testing.T) {
	for _, tt := range []struct {
		slope   float32 // slope of the policy's rows; the gate limits it to 0.5
		clipped bool
	}{{0.3, false}, {1, true}} {
		a, first := newArm(t, smoothing.Config{Cutoff: 5}), float32(0)
		a.slope = tt.slope
		a.tick(true, nil)
		a.tick(true, &first)
		for len(a.asked) < 2 {
			a.tick(true, nil)
		}
		want := slices.Clone(a.ask.Robot[:3])
		for i, goal := range want {
			if a.tick(true, nil); a.goal[0] != goal {
				t.Errorf("slope %v, tick %d after the request: goal %v, want the %v that conditions the answer",
					tt.slope, i, a.goal[0], goal)
			}
		}
		if (a.Gate.StepClips > 0) != tt.clipped {
			t.Errorf("slope %v: %d clipped, want some %v", tt.slope, a.Gate.StepClips, tt.clipped)
		}
	}
}

// Goal: with two ticks per action the discipline sees every other tick.
func TestActionsLastForTheirTicks(t *testing.T) {
	var gaps [2]int // between an unanswered request and the next one
	for i, multiplier := range []int{1, 2} {
		a, first := newArm(t, smoothing.Config{Multiplier: multiplier}), float32(0)
		for len(a.asked) < 2 {
			a.tick(true, nil)
		}
		gaps[i] = a.asked[1] - a.asked[0]
		a.tick(true, &first)
		a.tick(true, nil) // the first action has no previous one to interpolate from, and lasts one tick
		taken := 0
		for range 10 {
			if action := a.tick(false, nil); action.Policy != nil {
				taken++
			}
		}
		if taken != 10/multiplier {
			t.Errorf("%d actions in 10 ticks, want %d", taken, 10/multiplier)
		}
	}
	if gaps[1] != 2*gaps[0] {
		t.Errorf("asks again after %v ticks with one and two for each action, want twice as many", gaps)
	}
}

// Goal: the first tick after a break on which an observation can leave sends a request, however
// many actions are left.
func TestAsksAfterABreak(t *testing.T) {
	a, first := newArm(t, smoothing.Config{}), float32(0)
	a.tick(true, nil)
	a.tick(true, &first)
	a.tick(false, nil)
	if asked := len(a.asked); asked != 1 {
		t.Fatalf("%d requests, want 1: none can leave during the break", asked)
	}
	a.tick(true, nil)
	if len(a.asked) != 2 {
		t.Error("nothing was asked after the break")
	}
}

func TestOldActionsNeverRun(t *testing.T) {
	a, first := newArm(t, smoothing.Config{}), float32(0)
	a.MaxAge = 3 * period
	a.tick(true, nil)
	a.tick(true, &first)
	a.now = a.now.Add(5 * period)
	if action := a.tick(true, nil); !action.TooOld || action.Policy != nil || action.Row != nil {
		t.Errorf("after 5 ticks with a maximum of 3: %+v, want too old and nothing to run", action)
	}
}

func TestResetForgetsTheSchedule(t *testing.T) {
	a, first := newArm(t, smoothing.Config{}), float32(0)
	a.tick(true, nil)
	a.tick(true, &first)
	a.Reset(a.goal)
	if action := a.tick(true, nil); action.Row != nil {
		t.Errorf("an action of the last episode runs: %v", action.Row)
	}
}

func TestCoreNoAlloc(t *testing.T) {
	a, first := newArm(t, smoothing.Config{Cutoff: 10, Multiplier: 2, Velocity: 100}), float32(0)
	a.tick(true, nil)
	a.tick(true, &first)
	if n := testing.AllocsPerRun(200, func() { a.tick(true, nil) }); n != 0 {
		t.Errorf("a tick allocates %v times, want 0", n)
	}
}
