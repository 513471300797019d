package capacity

import (
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func meta() *policy.Meta {
	return &policy.Meta{FPS: 50, ChunkSize: 50, ActionDim: 6, RTC: "none"}
}

// options returns options of a device on which an inference of 1<<i rows takes ms[i].
func options(ms ...float64) Options {
	o := Options{Meta: meta(), Scheduler: "runway", Threads: 1}
	for i, t := range ms {
		o.Took = append(o.Took, Size{1 << i, t, float64(int(1)<<i) * 1e3 / t})
	}
	return o
}

// Robots request a chunk every 20 steps of 20 ms. So a device feeds 38 of them at 95 % load with inferences of 10 ms,
// and one with inferences of 300 ms. If a larger batch takes no longer, it feeds many more robots.
func TestHowManyRobots(t *testing.T) {
	for _, tt := range []struct {
		name      string
		o         Options
		low, high int
		batch     int
	}{
		{"10 ms", options(10), 34, 38, 1},
		{"300 ms", options(300), 1, 1, 1},
		{"longer than a chunk", options(1100), 0, 0, 1},
		{"batches that pay", options(10, 10, 10), 120, 152, 4},
		{"batches that do not", options(10, 20, 40), 34, 38, 1},
	} {
		r := rttest.Must(New(tt.o))(t)
		if r.Sessions < tt.low || r.Sessions > tt.high || r.MaxBatch != tt.batch || r.Why == "" {
			t.Errorf("%s: %d robots in batches of %d (%s), want %d to %d in batches of %d", tt.name, r.Sessions,
				r.MaxBatch, r.Why, tt.low, tt.high, tt.batch)
		}
		for _, row := range r.Tries {
			if row.OK != (row.Robots <= r.Sessions) || row.OK != (row.StarvedMs == 0 && row.Load <= loadMost) {
				t.Errorf("%s: the plan is %d robots, but: %+v", tt.name, r.Sessions, row)
			}
		}
		var text strings.Builder
		if err := r.Print(&text); err != nil || strings.Contains(text.String(), "max_sessions:") != (r.Sessions > 0) {
			t.Errorf("%s prints %v:\n%s", tt.name, err, text.String())
		}
	}
}

// A policy that can be conditioned for few steps of delay feeds fewer robots than one without
// conditioning, and a longer round trip reduces the number.
func TestDelaysBoundTheFleet(t *testing.T) {
	count := func(change func(*Options)) int {
		o := options(30)
		change(&o)
		r := rttest.Must(New(o))(t)
		return r.Sessions
	}
	trained := func(steps int, away time.Duration) int {
		return count(func(o *Options) {
			o.Meta.RTC = "trained"
			o.Meta.RTCMaxDelay = steps
			o.RoundTrip = []time.Duration{away}
		})
	}
	free := count(func(*Options) {})
	short := trained(2, 0)
	long := trained(3, 0)
	far := trained(3, 20*time.Millisecond)
	farther := trained(3, 60*time.Millisecond)
	if !(free >= long && long > short && short > 0 && long > far && far > 0 && farther == 0) {
		t.Errorf("%d robots freely, %d with delays up to 2 steps, %d up to 3, %d of them 20 ms away, %d of them 60 "+
			"ms away", free, short, long, far, farther)
	}
}

// Robots that request a chunk when few actions are left run out of actions when their requests
// coincide, even before the device is full. Robots that request the next chunk earlier do not.
func TestRobotsThatAskLate(t *testing.T) {
	o := options(30)
	o.Execute = []int{45} // 100 ms are left, enough for three inferences
	late := rttest.Must(New(o))(t)
	o.Execute = []int{20}
	early := rttest.Must(New(o))(t)
	if late.Sessions < 10 || late.Sessions >= 28 || !strings.Contains(late.Why, "without actions for") ||
		early.Sessions != 12 || !strings.Contains(early.Why, "planned for") {
		t.Errorf("%d robots with 100 ms left (%s), %d with 600 ms (%s), want fewer than the 28 that fill the device, "+
			"and the 12 that do", late.Sessions, late.Why, early.Sessions, early.Why)
	}
}

// The actions of a chunk begin at its observation, an arm without actions skips no action, and the
// next chunk is requested once enough actions have run.
func TestGet(t *testing.T) {
	const ms = rt.Instant(time.Millisecond)
	for _, tt := range []struct {
		name                string
		at                  rt.Instant // ms
		starved, steps      int
		seen, arrives, ends rt.Instant // ms
	}{
		{"in time", 100, 0, 5, 400, 410, 1000},
		{"late, but it moves", 600, 0, 30, 600, 610, 1000},
		{"it stood", 900, 200, 35, 900, 910, 1200},
	} {
		r := robot{
			step:      20 * time.Millisecond,
			chunk:     time.Second,
			execute:   400 * time.Millisecond,
			roundTrip: 20 * time.Millisecond,
			ends:      700 * ms,
		}
		starved, steps := r.get(tt.at * ms)
		if starved != time.Duration(tt.starved)*time.Millisecond || steps != tt.steps || r.seen != tt.seen*ms ||
			r.arrives != tt.arrives*ms || r.ends != tt.ends*ms {
			t.Errorf("%s: stood %v, %d steps, then %+v", tt.name, starved, steps, r)
		}
	}
}

func TestFleetCheck(t *testing.T) {
	for _, f := range []Fleet{{FPS: []float64{30, 0}}, {FPS: []float64{30, 1e-10}}, {FPS: []float64{1001}},
		{Execute: []int{50}}, {Execute: []int{0}}, {RoundTrip: []time.Duration{-1}},
		{RoundTrip: []time.Duration{time.Hour}}} {
		o := options(10)
		o.Fleet = f
		rttest.Fails(t, rttest.Err(New(o)), "want")
	}
}
