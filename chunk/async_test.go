package chunk

import "testing"

// Goal: row 0 of an answer is the step after the one that ran last when its
// observation was captured. With Compat drtc and async begin with the one that
// ran last, as their originals do.
func TestStepOfAnAnswer(t *testing.T) {
	for _, name := range Schedules {
		for _, compat := range []bool{false, true} {
			b := newBench(t, Config{Schedule: name, Epsilon: 1, Compat: compat, Similarity: -1}, 3)
			seen := map[int64]bool{}
			for range 200 {
				asked := len(b.asked)
				b.run(1)
				if len(b.asked) == asked {
					continue
				}
				want := b.View().N + 1
				if compat && (name == ScheduleDRTC || name == ScheduleAsync) {
					want = max(b.View().N, 0)
				}
				if b.ask.Step != want {
					t.Fatalf("%s, compat %v: asks for step %d with step %d run, want %d", name, compat, b.ask.Step, b.View().N, want)
				}
				seen[want] = true
			}
			if len(seen) < 3 {
				t.Errorf("%s, compat %v: asked for %d steps only", name, compat, len(seen))
			}
		}
	}
}

// Goal: an observation says something new when the arm has left where it stood in
// the one that was answered last, however near it is to one that is under way.
// With Compat it is compared with the newest that was sent.
func TestAsyncComparesWithTheAnswered(t *testing.T) {
	for _, compat := range []bool{false, true} {
		b := hand(t, Config{Schedule: ScheduleAsync, Compat: compat, Threshold: 1}, 1)
		b.deliver(1) // seen at 0
		for i, step := range []struct {
			at           float32
			ours, compat bool
			answer       int64 // that comes before it
		}{
			{0.9, false, false, 0},
			{1.1, true, true, 0}, // request 2
			{1.8, true, false, 0},
			{1.9, false, false, 2}, // 0.8 from 1.1, where request 2 was captured
			{2.2, true, true, 0},
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
			if got := b.OnTick(b.now(), b.state, &b.ask); got != want {
				t.Errorf("compat %v, look %d at %v: leaves %v, want %v", compat, i, step.at, got, want)
			}
		}
	}
}
