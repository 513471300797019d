package chunk

import (
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"pgregory.net/rapid"
)

// Without faults every discipline but sync has an action on every tick. Every action is the action of its step: no step
// is skipped or runs twice.
func TestDisciplinesRunInStep(t *testing.T) {
	for _, name := range Schedules {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{Schedule: name, Buffer: 100 * time.Millisecond}, 3)
			b.run(400)
			gaps := 0
			if name == scheduleSync {
				gaps = b.starved
			}
			if len(b.actions) < 300 || b.starved != gaps {
				t.Errorf("%d actions and %d starved ticks in 400, want no gap", len(b.actions), b.starved)
			}
			for i, r := range b.merged {
				stored := benchHorizon - r.Delay
				if r.Outcome != Joined || r.stored != stored {
					t.Errorf("answer %d: %+v, want it joined with %d rows", i, r, stored)
				}
				replaces := i > 0 && name != scheduleAppend && name != scheduleSync
				if (r.Overlap > 0) != replaces || (r.MeanL2 > 0) != replaces || r.MaxL2 < r.MeanL2 ||
					r.Overlap > stored {
					t.Errorf("answer %d: %+v, want it to meet rows that were left: %v", i, r, replaces)
				}
			}
			if name == scheduleAppend {
				return // append runs rows at other steps than their own
			}
			for i, a := range b.actions {
				if int(a+0.1) != i {
					t.Fatalf("action %d is of step %v", i, a)
				}
			}
		})
	}
}

// One lost answer costs about one round trip in every discipline; with Compat it costs as much as
// in the original.
func TestOneLostAnswer(t *testing.T) {
	type figures struct{ ours, compat int } // longest gap between two requests around the loss, in ticks
	for name, want := range map[string]figures{
		scheduleDRTC:   {5, 5},
		scheduleRTC:    {4, 101},
		scheduleAppend: {4, 101},
		scheduleSync:   {4, 101},
		scheduleV1:     {4, 1},
		scheduleAsync:  {10, 10}, // async sends a request on every tick on which the queue lets it
	} {
		for _, compat := range []bool{false, true} {
			b := newBench(t, Config{
				Schedule: name, Compat: compat, Buffer: 100 * time.Millisecond, RequestTimeout: time.Second,
				Estimator: "fixed", EstimatorFixed: 30 * time.Millisecond,
			}, 3)
			b.run(200)
			lost := b.ask.Key + 1
			b.lost = func(key int64) bool { return key == lost }
			b.run(200)
			var gap int
			for i, key := range b.keys {
				if key == lost {
					gap = b.asked[i+1] - b.asked[i]
				}
			}
			limit := want.ours
			if compat {
				limit = want.compat
			}
			if gap < 1 || gap > limit || compat && limit > 100 && gap < 99 {
				t.Errorf("%s, compat %v: asked again after %d ticks, want %d", name, compat, gap, limit)
			}
		}
	}
}

// After an idle start no row of the first answer is dropped, because no action ran while the answer was under way. With
// Compat, as in LeRobot's engine, ceil(round trip * fps) rows are dropped.
func TestIdleStart(t *testing.T) {
	for _, compat := range []bool{false, true} {
		b := newBench(t, Config{Schedule: scheduleRTC, Compat: compat}, 3)
		b.run(6)
		want := 0
		if compat {
			want = 3
		}
		if got := int(b.actions[0]); got != want || b.merged[0].Delay != want {
			t.Errorf("compat %v: the first action is row %d with %d dropped, want %d", compat, got, b.merged[0].Delay,
				want)
		}
	}
}

// The prefix of rtc has at most the actions left. With Compat, zeros fill the prefix up to the end of conditioning, and
// the announced delay may exceed the number of actions left.
func TestRTCPrefix(t *testing.T) {
	for _, compat := range []bool{false, true} {
		b := newBench(t, Config{
			Schedule: scheduleRTC, Compat: compat, PrefixEnd: 10, Buffer: 50 * time.Millisecond,
			Estimator: "fixed", EstimatorFixed: 80 * time.Millisecond,
		}, 3)
		if b.run(1); b.ask.Key != 1 || b.ask.Rows != 0 || b.ask.ModelRows != 0 {
			t.Errorf("compat %v: the first request has %d/%d rows, want none", compat, b.ask.Rows, b.ask.ModelRows)
		}
		b.run(100)
		for len(b.asked) == 0 || b.asked[len(b.asked)-1] != b.tick-1 {
			for i := range b.ask.Robot { // content of an earlier request
				b.ask.Robot[i], b.ask.Model[i] = 7, 7
			}
			b.run(1)
		}
		a := &b.ask
		rows, delay := a.Runway, a.Runway
		if compat {
			rows, delay = 10, 8
		}
		if a.Rows != rows || a.ModelRows != rows || a.Delay != delay || a.PrefixEnd != 10 || !a.BothRows {
			t.Errorf("compat %v: prefix %d/%d rows, delay %d, end %d; want %d rows, delay %d, end 10", compat, a.Rows,
				a.ModelRows, a.Delay, a.PrefixEnd, rows, delay)
		}
		for i := range a.Rows {
			if held := i < a.Runway; (a.Robot[i] != 0) != held || a.Model[i] != -a.Robot[i] {
				t.Errorf("compat %v: row %d is %v/%v", compat, i, a.Robot[i], a.Model[i])
			}
		}
	}
}

// If the bundle names no end of conditioning, the prefix of rtc ends with the chunk. A prefix may have a single row.
func TestRTCPrefixEnd(t *testing.T) {
	for bundle, want := range map[int]int{0: benchHorizon, 1: 1, 3: 3, 2 * benchHorizon: benchHorizon} {
		b := newBench(t, Config{
			Schedule:  scheduleRTC,
			PrefixEnd: bundle,
			Buffer:    100 * time.Millisecond,
		}, 3)
		b.run(50)
		if a := &b.ask; a.PrefixEnd != want || a.Rows != min(want, a.Runway) || a.Runway < 3 ||
			a.Delay != min(3, a.Rows) {
			t.Errorf("the bundle ends at %d: prefix end %d with %d rows of %d left, delay %d; want end %d", bundle,
				a.PrefixEnd, a.Rows, a.Runway, a.Delay, want)
		}
	}
}

// A full queue refuses an answer and does not change. No discipline reaches this state: its queue has room for the
// answer to every request.
func TestAppendToAFullQueue(t *testing.T) {
	b := hand(t, Config{Schedule: scheduleAppend}, 1)
	b.Discipline.(*sequential).queue = newActionQueue(benchHorizon-1, 1)
	if r := b.deliver(b.ask.Key); r.Outcome != ahead || r.stored != 0 || b.View().Size != 0 {
		t.Errorf("%+v with %d left, want it refused", r, b.View().Size)
	}
}

// The queue has room for every requested answer, even if chunks are short in comparison with the buffer. The arm has an
// action on every tick on which the round trip allows it. This holds also with Compat, where a refused answer would
// cost the request time-out.
func TestAppendOfShortChunks(t *testing.T) {
	for _, c := range []struct {
		rows, trip int
		fps        float64
		buffer     time.Duration
	}{
		{5, 3, 60, 500 * time.Millisecond}, // a third of the buffer would be 10 rows
		{2, 1, 60, 500 * time.Millisecond},
		{2, 1, 30, maxBuffer},
		{7, 3, 59.94, 333 * time.Millisecond},
		{50, 6, 60, 500 * time.Millisecond},
	} {
		for _, compat := range []bool{false, true} {
			b := newBench(t, Config{
				Schedule: scheduleAppend,
				Horizon:  c.rows,
				FPS:      c.fps,
				Buffer:   c.buffer,
				Compat:   compat,
			}, c.trip)
			b.run(600)
			want := 599 - c.trip // all ticks after the first answer
			n := 0
			for _, r := range b.merged {
				if r.Outcome == ahead {
					n++
				}
			}
			if n > 0 || b.starved > 0 || len(b.actions) != want {
				t.Errorf("%+v, compat %v: of %d answers %d were refused, %d actions, %d ticks starved; want none, "+
					"%d, and none", c, compat, len(b.merged), n, len(b.actions), b.starved, want)
			}
		}
	}
}

// After an answer without actions, LeRobot's client requests again at once. So such an answer costs a round trip, not
// the time-out. If it answers a request other than the awaited one, it changes nothing.
func TestCompatAsksAgainAfterAnAnswerWithoutActions(t *testing.T) {
	for _, name := range []string{scheduleRTC, scheduleAppend, scheduleSync} {
		b := hand(t, Config{Schedule: name, Compat: true, RequestTimeout: time.Second}, 3)
		b.answer = Chunk{DOF: 1}
		if r := b.deliver(b.ask.Key); r.Outcome != BadShape || r.stored != 0 {
			t.Fatalf("%s: %+v, want it refused as bad_shape", name, r)
		}
		b.run(1)
		rttest.Equal(t, b.asked, []int{0, 3}, "%s: requests on ticks", name)
		// the second request is under way
		b = hand(t, Config{Schedule: name, Compat: true, RequestTimeout: 100 * time.Millisecond}, 12)
		b.answer = Chunk{DOF: 1}
		b.deliver(1)
		b.run(5)
		if len(b.asked) != 2 {
			t.Errorf("%s: requests on ticks %v, want no third: the second is awaited", name, b.asked)
		}
	}
}

// append and sync refuse the answer to a repeated request, which would repeat the motion. In rtc that answer replaces
// the queue, aligned by its steps.
func TestSupersededAnswers(t *testing.T) {
	for name, want := range map[string][]Outcome{
		scheduleAppend: {Joined, older, duplicate},
		scheduleSync:   {Joined, older, duplicate},
		scheduleRTC:    {Joined, Joined, duplicate},
	} {
		b := newBench(t, Config{Schedule: name}, 1000)
		b.run(40) // at least two requests then wait for an answer
		if len(b.asked) < 2 {
			t.Fatalf("%s: %d requests", name, len(b.asked))
		}
		var got []Outcome
		for _, key := range []int64{1, 2, 2} {
			b.answer.Key = key
			got = append(got, b.OnChunk(b.now(), &b.answer).Outcome)
		}
		rttest.Equal(t, got, want, "%s", name)
	}
}

// async repeats a request when the queue is empty, so a lost answer does not stop the arm for good. With Compat a lost
// answer does stop it (vectors, "a lost answer with nothing left stops it").
func TestAsyncRecoversWithNothingLeft(t *testing.T) {
	for _, compat := range []bool{false, true} {
		b := newBench(t, Config{Schedule: scheduleAsync, Compat: compat, Similarity: 1e6}, 3)
		b.run(5)
		lost := b.ask.Key + 1
		b.lost = func(key int64) bool { return key == lost }
		b.run(200)
		if stopped := len(b.actions) < 30; stopped != compat {
			t.Errorf("compat %v: %d actions, %d requests", compat, len(b.actions), len(b.asked))
		}
	}
}

// v1 drops as many rows of an answer as actions ran. With Compat it drops as many rows as the round trip has ticks.
// Neither drops rows of the first answer.
func TestV1Trim(t *testing.T) {
	for _, compat := range []bool{false, true} {
		b := newBench(t, Config{Schedule: scheduleV1, Compat: compat, Buffer: time.Millisecond}, 7)
		b.run(60) // the queue is empty then, and the arm stands still
		if first := b.merged[0]; first.Delay != 0 {
			t.Errorf("compat %v: the first answer lost %d rows", compat, first.Delay)
		}
		want := 0
		if compat {
			want = 7
		}
		rttest.Want(t, b.merged[len(b.merged)-1].Delay, want,
			"compat %v: rows that an answer to an idle arm lost", compat)
	}
}

func TestTooOldActionsNeverRun(t *testing.T) {
	for _, name := range Schedules {
		b := newBench(t, Config{Schedule: name, Buffer: 100 * time.Millisecond}, 3)
		b.run(10)
		b.tick += 1000 // ten seconds without a tick
		n := b.View().N
		if _, age, tooOld := b.Pop(b.now(), time.Second); !tooOld || age < 9*time.Second || b.View().Size != 0 ||
			b.View().N != n {
			t.Errorf("%s: Pop() = too old %v at age %v with %d left, want true and none left", name, tooOld, age,
				b.View().Size)
		}
		if !b.onTick() && b.View().Cooldown == 0 {
			t.Errorf("%s: asks for nothing after its actions were too old", name)
		}
	}
}

// An action of exactly the maximum age runs. An action that is one nanosecond older does not.
func TestOldestActionThatRuns(t *testing.T) {
	for _, name := range Schedules {
		for limit, want := range map[time.Duration]bool{benchPeriod: false, benchPeriod - 1: true, 1: true, 0: false} {
			b := hand(t, Config{Schedule: name}, 1)
			b.deliver(1)
			if action, age, tooOld := b.Pop(b.now(), limit); age != benchPeriod || tooOld != want ||
				(action == nil) != want {
				t.Errorf("%s: at the age of %v with at most %v: %v, too old %v, want %v", name, age, limit, action,
					tooOld, want)
			}
		}
	}
}

func TestResetBeginsAnew(t *testing.T) {
	for name, compat := range ways(Schedules...) {
		b := newBench(t, Config{Schedule: name, Compat: compat, Buffer: 100 * time.Millisecond}, 3)
		b.run(50)
		n := b.View().N
		b.Reset()
		if b.View().Size != 0 || b.Peek() != nil || b.View().N != n {
			t.Errorf("%s, compat %v: after Reset %+v", name, compat, b.View())
		}
		if asks := b.onTick(); !asks && (!compat || name != scheduleDRTC) {
			t.Errorf("%s, compat %v: no request after Reset", name, compat)
		}
	}
}

// Property: with any lost, late, doubled or swapped answers, no discipline goes back, runs an action twice, accepts an
// answer without a request, or stops requesting for good.
func TestDisciplinesSurviveAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(Schedules).Draw(t, "schedule")
		d := rttest.Must(New(Config{
			Schedule: name,
			Horizon:  8,
			DOF:      1,
			FPS:      100,
			Epsilon:  1,
			Buffer:   50 * time.Millisecond,
			Compat:   rapid.Bool().Draw(t, "compat"),
		}))(t)
		b := &bench{Discipline: d, ask: NewAsk(8, 1), state: []float32{0}}
		var asked []int64
		for range rapid.IntRange(1, 150).Draw(t, "ticks") {
			n := d.View().N
			if action, _, _ := d.Pop(b.now(), 0); (action != nil) != (d.View().N > n) {
				t.Fatalf("%s: n went from %d to %d on %v", name, n, d.View().N, action)
			}
			if len(asked) > 0 && rapid.Bool().Draw(t, "arrives") {
				c := rowsFrom(rapid.IntRange(1, 9).Draw(t, "rows"), 1, 0, 0)
				c.Key = rapid.SampledFrom(asked).Draw(t, "answer")
				if r := d.OnChunk(b.now(), c); r.Outcome == Unknown || (r.stored > 0) != (r.Outcome == Joined) {
					t.Fatalf("%s: answer to %d of %v = %+v", name, c.Key, asked, r)
				}
			}
			b.state[0] += rapid.Float32Range(0, 2).Draw(t, "moved")
			if b.onTick() {
				asked = append(asked, b.ask.Key)
			}
			if s := d.View().Size; s < 0 || s > 4*8 {
				t.Fatalf("%s: size %d", name, s)
			}
			b.tick++
		}
		d.Reset()
		if !within(b, 40) {
			t.Fatalf("%s: never asks again", name)
		}
	})
}

// within reports whether the discipline sends a request in one of the next ticks.
func within(b *bench, ticks int) bool {
	for range ticks {
		b.tick++
		if b.onTick() {
			return true
		}
	}
	return false
}

// hand returns a bench that lets the test deliver the answers.
func hand(t *testing.T, c Config, ticks int) *bench {
	t.Helper()
	b := newBench(t, c, 1<<30)
	b.run(ticks)
	return b
}

func (b *bench) deliver(key int64) Result {
	b.answer.Key = key
	return b.OnChunk(b.now(), &b.answer)
}

// A chunk whose rows have all run does not change the queue. With Compat it empties the queue of async and v1, as in
// the originals. It also empties the queue of rtc if its round trip is as long as the chunk.
func TestLateAnswers(t *testing.T) {
	for name, compat := range ways(scheduleAsync, scheduleV1, scheduleRTC) {
		b := hand(t, Config{
			Schedule:       name,
			Compat:         compat,
			Threshold:      1,
			Similarity:     -1,
			Buffer:         time.Second,
			RequestTimeout: 10 * time.Millisecond,
		}, 1)
		b.deliver(1)
		b.run(2) // the discipline requests again when the first rows have run
		overdue := b.ask.Key
		b.delay = 1
		b.run(benchHorizon + 8)
		if b.View().Size == 0 {
			t.Fatalf("%s, compat %v: nothing left to lose", name, compat)
		}
		r, left := b.deliver(overdue), b.View().Size
		if r.Outcome == Joined || !compat && left == 0 {
			t.Errorf("%s, compat %v: %v with %d left", name, compat, r.Outcome, left)
		}
		if wantEmpty := compat && name != scheduleRTC; wantEmpty && (r.Outcome != late || left != 0) {
			t.Errorf("%s, compat %v: %v with %d left, want late and none", name, compat, r.Outcome, left)
		}
	}
}

// A short answer whose rows have all run does not change the queue; the originals empty it.
func TestShortLateAnswer(t *testing.T) {
	for name, compat := range ways(scheduleRTC, scheduleAsync, scheduleV1) {
		b := hand(t, Config{Schedule: name, Compat: compat, Buffer: 100 * time.Millisecond, Similarity: -1}, 1)
		b.deliver(1)
		for b.ask.Key < 2 {
			b.run(1)
		}
		b.run(3)
		left := b.View().Size
		b.answer.Rows = 2
		b.answer.Robot = b.answer.Robot[:2]
		b.answer.Model = b.answer.Model[:2]
		r := b.deliver(2)
		want := left
		if compat {
			want = 0
		}
		if r.Outcome != late || r.stored != 0 || b.View().Size != want || left < 2 {
			t.Errorf("%s, compat %v: %+v with %d of %d left, want late and %d", name, compat, r, b.View().Size,
				left, want)
		}
	}
}

// Every discipline refuses an answer if it has merged the answer to a newer request.
func TestOlderAnswers(t *testing.T) {
	for _, name := range []string{scheduleRTC, scheduleV1, scheduleAsync} {
		b := hand(t, Config{Schedule: name}, 40)
		if b.deliver(2).Outcome != Joined || b.deliver(1).Outcome != older {
			t.Errorf("%s takes an older answer after a newer one", name)
		}
	}
}

// With Compat, rtc, append and sync accept only the answer to the newest request, and only in time.
func TestCompatTakesOnlyWhatItWaitsFor(t *testing.T) {
	for _, name := range []string{scheduleRTC, scheduleAppend, scheduleSync} {
		c := Config{Schedule: name, Compat: true, RequestTimeout: 100 * time.Millisecond}
		b := hand(t, c, 12) // the second request is under way
		rttest.Want(t, b.deliver(1).Outcome, older, "%s: an answer to a request that timed out", name)
		rttest.Want(t, b.deliver(2).Outcome, Joined, "%s: the answer that it waits for", name)
		b = hand(t, c, 1)
		for range 10 { // the request times out, and no new request can be sent
			b.tick++
			b.OnTickWithoutObservation()
		}
		rttest.Want(t, b.deliver(1).Outcome, older, "%s: an answer after the time-out", name)
	}
}

// While async waits for an answer, it does not request the same step again.
func TestAsyncAsksOncePerStep(t *testing.T) {
	b := hand(t, Config{
		Schedule:       scheduleAsync,
		Similarity:     -1,
		Estimator:      "fixed",
		EstimatorFixed: 80 * time.Millisecond,
	}, 19)
	if want := []int{0, 9, 18}; !slices.Equal(b.asked, want) {
		t.Errorf("requests on ticks %v, want %v: estimate 8 + epsilon 1", b.asked, want)
	}
}

// The original client never requests a step again, wherever the arm is.
func TestOriginalAsyncAsksOncePerStep(t *testing.T) {
	b := hand(t, Config{Schedule: scheduleAsync, Compat: true, Threshold: 1, Similarity: -1}, 1)
	b.deliver(1)
	b.Pop(b.now(), 0)
	b.Pop(b.now(), 0)
	asked := 0
	for range 20 { // the arm stays at this step
		b.tick++
		b.state[0]++
		if b.onTick() {
			asked++
		}
	}
	rttest.Want(t, asked, 1, "requests for one step")
}

// When append has appended the answer to an older request, it gives up the newer request and may send the next one.
func TestAppendAsksAnewAfterAnOlderAnswer(t *testing.T) {
	b := hand(t, Config{Schedule: scheduleAppend, Buffer: time.Second}, 10)
	b.deliver(1)
	if b.View().Cooldown != 0 || !b.onTick() {
		t.Errorf("waits %d ticks for an answer that it would refuse", b.View().Cooldown)
	}
}

// A request is sent when the actions left last exactly Buffer. A request is repeated at the latest when no action is
// left, even if the estimate is longer.
func TestBufferAndRunway(t *testing.T) {
	b := hand(t, Config{
		Schedule: scheduleRTC, SMin: 2, Buffer: 120 * time.Millisecond,
		Estimator: "fixed", EstimatorFixed: time.Second,
	}, 1)
	b.deliver(1)
	b.run(30)
	if want := []int{0, 8, 21}; len(b.asked) < 3 || !slices.Equal(b.asked[:3], want) {
		t.Errorf("requests on ticks %v, want %v: with 12 actions left, and 12 + epsilon later", b.asked, want)
	}
}

// append drops the actions at the head of the queue that are too old, and keeps the younger actions after them.
func TestAppendDropsTheOldHeadOnly(t *testing.T) {
	b := hand(t, Config{Schedule: scheduleAppend, Buffer: time.Second}, 1)
	b.deliver(1)
	b.tick += 50
	b.onTick()
	b.deliver(b.ask.Key)
	if _, _, tooOld := b.Pop(b.now(), 400*time.Millisecond); !tooOld || b.View().Size != benchHorizon {
		t.Errorf("Pop() = too old %v with %d left, want true with the young chunk left", tooOld, b.View().Size)
	}
	if action, _, _ := b.Pop(b.now(), 400*time.Millisecond); action == nil {
		t.Errorf("the next Pop() = nil, want an action")
	}
}

// A discipline that blends drops the whole queue when its head is too old. If it dropped only the head, the arm would
// run the other actions too early.
func TestBlendedQueueIsDroppedWhole(t *testing.T) {
	b := hand(t, Config{Schedule: scheduleAsync, Threshold: 1, Similarity: -1}, 1)
	b.deliver(1)
	b.tick += 50
	b.run(5)
	b.deliver(b.ask.Key) // the last five rows are later than the first chunk
	if _, _, tooOld := b.Pop(b.now(), 400*time.Millisecond); !tooOld || b.View().Size != 0 {
		t.Errorf("Pop() = too old %v with %d left, want true and none", tooOld, b.View().Size)
	}
}

// Spans stop at a gap, so that row i of the prefix is step n+1+i. In the DRTC program, spans pass over a gap.
func TestSpansAndGaps(t *testing.T) {
	d := newOriginalDRTC(Config{Horizon: 4, DOF: 1}, fixed(0))
	merge(d.schedule, ramp(1, 0, 2, 0))
	merge(d.schedule, ramp(2, 3, 3, 0))
	if got, want := d.schedule.appendSpans(nil, 8), []Span{{Key: 1, Start: 0, End: 2}}; !slices.Equal(got, want) {
		t.Errorf("spans %v, want %v", got, want)
	}
	ask := NewAsk(4, 1)
	d.c.SMin = 1
	d.c.FPS = 60
	d.cooldown = 0
	if d.OnTick(0, nil, &ask) || d.View().Size != 5 {
		t.Errorf("the original asks with %d actions left on both sides of a gap", d.View().Size)
	}
	if got, want := d.appendSpans(nil, 8),
		[]Span{{Key: 1, Start: 0, End: 2}, {Key: 2, Start: 0, End: 3}}; !slices.Equal(got, want) {
		t.Errorf("the original's spans %v, want %v", got, want)
	}
}

// drtc's requests have the expected rows and spans with each kind of prefix.
func TestDRTCPrefixes(t *testing.T) {
	for prefix, want := range map[string][2]int{prefixRows: {10, 0}, prefixSpans: {10, 1}, prefixNone: {0, 0}} {
		b := newBench(t, Config{Schedule: scheduleDRTC, SMin: 8, PrefixEnd: 10, Prefix: prefix}, 3)
		b.run(100)
		rttest.Want(t, [2]int{b.ask.Rows, len(b.ask.Spans)}, want, "prefix %s: rows and spans", prefix)
		if want[1] > 0 && b.ask.Spans[0].End-b.ask.Spans[0].Start != 10 {
			t.Errorf("prefix %s: spans %v, want 10 rows", prefix, b.ask.Spans)
		}
		if c := (Config{Schedule: scheduleDRTC, Prefix: prefix}); c.Conditioned() != (prefix != prefixNone) {
			t.Errorf("prefix %s: conditioned = %v", prefix, c.Conditioned())
		}
	}
}

// With AutoBuffer the buffer follows the round trip, within its bounds. It lasts until the answer to a repeated request
// arrives.
func TestAutoBuffer(t *testing.T) {
	for _, schedule := range []string{scheduleRTC, scheduleAppend, scheduleV1} {
		for _, tt := range []struct {
			delay  int // ticks of 10 ms
			lowest time.Duration
		}{{2, bufferLeast}, {20, 400 * time.Millisecond}, {400, bufferMost}} {
			b := newBench(t, Config{Schedule: schedule, Horizon: 600, Buffer: AutoBuffer}, tt.delay)
			rttest.Want(t, b.View().Buffer, defaultBuffer, "%s: before the first answer", schedule)
			b.run(4000)
			if got := b.View().Buffer; got < tt.lowest || got > tt.lowest*5/4 {
				t.Errorf("%s, an answer after %d ticks: a buffer of %v, want %v", schedule, tt.delay, got, tt.lowest)
			}
			if b.starved > 0 && tt.lowest < bufferMost {
				t.Errorf("%s, an answer after %d ticks: %d ticks without an action", schedule, tt.delay, b.starved)
			}
		}
		lost := newBench(t, Config{Schedule: schedule, Horizon: 100, Buffer: AutoBuffer}, 20)
		lost.lost = func(key int64) bool { return key == 5 }
		if lost.run(1000); lost.starved > 0 {
			t.Errorf("%s: one lost answer left %d ticks without an action", schedule, lost.starved)
		}
	}
}
