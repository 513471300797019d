package chunk

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: row 0 of an answer is the step after the last step that had run when the observation was captured. With Compat,
// row 0 of drtc and async is that last step itself, as in the original programs.
func TestStepOfAnAnswer(t *testing.T) {
	for name, compat := range ways(Schedules...) {
		b := newBench(t, Config{Schedule: name, Compat: compat, Similarity: -1}, 3)
		seen := map[int64]bool{}
		for range 200 {
			asked := len(b.asked)
			b.run(1)
			if len(b.asked) == asked {
				continue
			}
			want := b.View().N + 1
			if compat && (name == scheduleDRTC || name == scheduleAsync) {
				want = max(b.View().N, 0)
			}
			if b.ask.Step != want {
				t.Fatalf("%s, compat %v: asks for step %d with step %d run, want %d", name, compat, b.ask.Step,
					b.View().N, want)
			}
			seen[want] = true
		}
		if len(seen) < 3 {
			t.Errorf("%s, compat %v: asked for %d steps only", name, compat, len(seen))
		}
	}
}

// Goal: async sends an observation if the arm has moved away from its position in the observation that was answered
// last, even if the arm is near its position in a later observation without an answer. With Compat, async compares with
// the newest observation sent.
func TestAsyncComparesWithTheAnswered(t *testing.T) {
	for _, compat := range []bool{false, true} {
		b := hand(t, Config{Schedule: scheduleAsync, Compat: compat, Threshold: 1}, 1)
		b.deliver(1) // captured at 0
		for i, step := range []struct {
			at           float32
			ours, compat bool
			answer       int64 // request whose answer arrives before this state; 0: none
		}{
			{0.75, false, false, 0},
			{1.25, true, true, 0}, // request 2
			{1.75, true, false, 0},
			{2, false, false, 2},  // differs by 0.75 from the state of request 2
			{2.25, true, true, 0}, // a difference of exactly 1 counts as a move
		} {
			b.tick++
			b.Pop(b.now(), 0)
			if step.answer != 0 {
				b.deliver(step.answer)
			}
			b.state[0] = step.at
			want := step.ours
			if compat {
				want = step.compat
			}
			rttest.Want(t, b.onTick(), want, "compat %v, look %d at %v: leaves", compat, i,
				step.at)
		}
	}
}

// Goal: after a lost session, or when an episode begins, every discipline and its original request the same step again
// on the next tick.
func TestAsksAfterRequestNowAndReset(t *testing.T) {
	for name, compat := range ways(Schedules...) {
		if compat && name == scheduleDRTC {
			continue // drtc with Compat waits for s_min + epsilon ticks, like the original program
		}
		for what, begin := range map[string]func(Discipline){"Rearm": Discipline.RequestNow,
			"Reset": Discipline.Reset} {
			b := hand(t, Config{Schedule: name, Compat: compat}, 3) // the first request gets no answer
			asked, step := len(b.asked), b.ask.Step
			if asked == 0 || asked > 1 && (name != scheduleV1 || !compat) { // every tick asks
				t.Fatalf("%s, compat %v: %d requests in 3 ticks, want 1", name, compat, asked)
			}
			begin(b)
			if b.run(1); len(b.asked) != asked+1 || b.ask.Step != step {
				t.Errorf("%s, compat %v: %d requests after %s, the last for step %d; want one more for step %d",
					name, compat, len(b.asked)-asked, what, b.ask.Step, step)
			}
		}
	}
}

// Goal: after a lost session, async sends an observation again, even while actions are left and the arm is held on the
// same step. The answer to the last observation is lost, too.
func TestAsyncAsksAfterRearmOnTheSameStep(t *testing.T) {
	b := hand(t, Config{Schedule: scheduleAsync, Threshold: 1, Similarity: -1}, 1)
	b.deliver(1)
	held := func() bool { // a tick without Pop
		b.tick++
		return b.onTick()
	}
	if !held() || held() || b.View().Size == 0 {
		t.Fatal("want one look for a step, and actions left")
	}
	if b.RequestNow(); !held() {
		t.Error("the look whose answer cannot come is not repeated")
	}
}
