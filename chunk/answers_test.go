package chunk

import (
	"math"
	"testing"
	"time"
)

// Goal: every discipline, ours and the originals, refuses a chunk that no arm may run, with the right outcome. The
// refused chunk does not change the discipline's state.
func TestEveryScheduleRefusesWhatNobodyMayRun(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for name, compat := range ways(Schedules...) {
		for what, spoil := range map[string]struct {
			change func(c *Chunk)
			want   Outcome
		}{
			"NaN in a row":             {func(c *Chunk) { c.Robot[7] = nan }, NotFinite},
			"infinity in the last row": {func(c *Chunk) { c.Robot[benchHorizon-1] = inf }, NotFinite},
			"NaN in the model's rows":  {func(c *Chunk) { c.Model[0] = nan }, NotFinite},
			"a row more than a chunk": {func(c *Chunk) {
				c.Rows++
				c.Robot = append(c.Robot, 0)
				c.Model = nil
			}, BadShape},
			"no row":                    {func(c *Chunk) { c.Rows, c.Robot, c.Model = 0, nil, nil }, BadShape},
			"a joint more":              {func(c *Chunk) { c.DOF++ }, BadShape},
			"a row less than it says":   {func(c *Chunk) { c.Robot = c.Robot[1:] }, BadShape},
			"another number of model's": {func(c *Chunk) { c.Model = c.Model[1:] }, BadShape},
		} {
			b := hand(t, Config{Schedule: name, Compat: compat}, 30) // drtc with Compat sends its first request late
			if len(b.asked) == 0 {
				t.Fatalf("%s, compat %v: no request in 30 ticks", name, compat)
			}
			b.answer.Robot, b.answer.Model = make([]float32, benchHorizon), make([]float32, benchHorizon)
			spoil.change(&b.answer)
			before := b.View()
			if _, engine := b.Discipline.(*originalEngine); engine && what == "no row" {
				before.Cooldown = 0 // after an empty answer LeRobot's engine requests again at once
			}
			if r := b.deliver(b.ask.Key); r.Outcome != spoil.want || r.stored != 0 || b.Peek() != nil ||
				b.View() != before {
				t.Errorf("%s, compat %v, %s: %+v with %+v, want %v and %+v", name, compat, what, r, b.View(),
					spoil.want, before)
			}
		}
	}
}

// Goal: the provenance of the last action names its request, session, episode and row. It also has the number of rows
// that had run when the chunk was merged, and the number that the request had announced.
func TestEveryScheduleKnowsWhatRan(t *testing.T) {
	for _, name := range Schedules {
		b := newBench(t, Config{Schedule: name, Buffer: 100 * time.Millisecond}, 3)
		b.answer.Prov.Epoch, b.answer.Prov.Episode = 2, 5
		announced := map[uint64]int32{}
		for range 200 {
			b.answer.Prov.Seq = 0
			for tick, a := range b.flying {
				if tick == b.tick {
					b.answer.Prov.Seq = uint64(a.Key)
					announced[uint64(a.Key)] = int32(a.Delay)
				}
			}
			n := len(b.actions)
			if b.run(1); len(b.actions) == n {
				continue
			}
			p, action := b.Last(), float64(b.actions[n])
			key := uint64(math.Round((action - math.Floor(action)) * 1000))
			blends := name == scheduleAsync || name == scheduleV1 // these schedules blend the rows of two requests
			if p.Epoch != 2 || p.Episode != 5 || !blends && p.Seq != key || p.Asked != announced[p.Seq] ||
				p.Index < p.Delay || p.Index >= benchHorizon {
				t.Fatalf("%s: action %v is of %+v, announced %d", name, action, p, announced[p.Seq])
			}
			if r := b.merged[p.Seq-1]; int(p.Delay) != r.Delay {
				t.Fatalf("%s: %+v, but %d rows had run at the merge", name, p, r.Delay)
			}
		}
		if len(b.merged) < 4 {
			t.Errorf("%s: %d answers: nothing was tried", name, len(b.merged))
		}
	}
}
