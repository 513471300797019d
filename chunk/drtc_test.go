package chunk

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: the announced delay is at most the number of rows that condition the answer.
func TestAnnouncedDelayIsConditioned(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change Config
		want   int
	}{
		{"rows", Config{}, 5},
		{"a bundle that takes two", Config{PrefixEnd: 2}, 2},
		{"no prefix", Config{Prefix: prefixNone}, 0},
	} {
		c := tt.change
		c.Schedule = scheduleDRTC
		c.SMin = 8
		c.Epsilon = 1
		b := newBench(t, c, 5)
		b.run(100)
		if len(b.asked) < 5 || b.ask.Delay != tt.want || b.ask.Delay > b.ask.Rows {
			t.Errorf("%s: request %d announces %d steps with %d rows, want %d", tt.name, len(b.asked), b.ask.Delay,
				b.ask.Rows, tt.want)
		}
	}
}

// Goal: an answer that arrives too late to be used does not change the estimate of the round trip.
func TestLateAnswersTeachNothing(t *testing.T) {
	var held int64
	b := newBench(t, Config{Schedule: scheduleDRTC, SMin: 8, Estimator: "max_last_n"}, 3)
	b.lost = func(key int64) bool {
		if key == 4 {
			held = key
		}
		return key == 4
	}
	b.run(120)
	if got := b.View().Estimate; held == 0 || got != 3 {
		t.Fatalf("request %d was held back and the estimate is %d, want 4 and 3", held, got)
	}
	b.answer.Key = held
	if r := b.OnChunk(b.now(), &b.answer); r.Outcome != older || r.RTT < 30*benchPeriod {
		t.Fatalf("the answer that was held back: %+v, want %v after a long time", r, older)
	}
	rttest.Want(t, b.View().Estimate, 3, "after it the estimate")
}

// Goal: a round trip begins at the instant of the observation's state, even if a picture is older. The action's age
// then counts from the picture.
func TestRoundTripBeginsAtTheCapture(t *testing.T) {
	const stale = time.Second
	for _, name := range Schedules {
		b := newBench(t, Config{Schedule: name}, 3)
		if !b.onTick() {
			for b.tick < 50 && !b.onTick() {
				b.tick++
			}
		}
		b.SetSource(b.ask.Key, b.now().Add(-stale))
		b.answer.Key = b.ask.Key
		b.tick += 3
		if r := b.OnChunk(b.now(), &b.answer); r.Outcome != Joined || r.RTT != 3*benchPeriod {
			t.Errorf("%s: %+v, want the round trip to be 30 ms", name, r)
		}
		if action, age, _ := b.Pop(b.now(), 0); action == nil || age != stale+3*benchPeriod {
			t.Errorf("%s: %v at the age of %v, want 1.03 s", name, action, age)
		}
	}
}
