package chunk

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

var triggerConfig = Config{
	Schedule:  scheduleDRTC,
	Horizon:   50,
	DOF:       1,
	SMin:      20,
	Epsilon:   1,
	FPS:       60,
	PrefixEnd: 24,
	Cooldown:  cooldownRunway,
}

func newTrigger(e estimator) *trigger { return &trigger{c: triggerConfig, latency: e} }

// unseeded is a Jacobson-Karels estimator without a sample.
func unseeded() *jacobsonKarels {
	return &jacobsonKarels{initial: 20.0 / 60, alpha: defaultAlpha, beta: defaultBeta, k: defaultK}
}

// After a break the actions left are older than usual. So the next tick, and only that tick, sends a request even if
// the schedule is full. The original sends none.
func TestAskNowAsksWhateverIsLeft(t *testing.T) {
	d := newTrigger(fixed(0.05))
	if fire, _ := d.onTick(45); fire {
		t.Error("the first tick fires with 45 of 50 left")
	}
	d.askNow()
	if fire, delay := d.onTick(45); !fire || delay != 3 {
		t.Errorf("onTick(45) after askNow = %v, %d", fire, delay)
	}
	if fire, _ := d.onTick(44); fire {
		t.Error("fires twice")
	}
	c := triggerConfig
	o, ask := newOriginalDRTC(c, fixed(0.05)), NewAsk(c.Horizon, 1)
	merge(o.schedule, ramp(1, 0, 45, 0))
	o.RequestNow()
	if o.cooldown != 21 || o.OnTick(0, nil, &ask) {
		t.Errorf("the original asks with 45 of 50 left, cooldown %d", o.cooldown)
	}
}

func TestDelayAndPrefixEnd(t *testing.T) {
	d := newTrigger(fixed(0.3))
	if _, delay := d.onTick(9); delay != 9 {
		t.Errorf("delay with 9 live rows = %d, want 9", delay)
	}
	d.askNow()
	if _, delay := d.onTick(30); delay != 18 {
		t.Errorf("delay with 30 live rows = %d, want the estimate, 18", delay)
	}
	for _, tt := range []struct{ bundle, delay, want int }{
		{24, 3, 24}, {24, 27, 23}, {0, 3, 30}, {0, 25, 25}, {40, 20, 30}, {24, 60, 0},
	} {
		c := triggerConfig
		c.PrefixEnd = tt.bundle
		rttest.Want(t, c.prefixEnd(tt.delay), tt.want, "prefixEnd(%d) with the bundle's %d", tt.delay, tt.bundle)
	}
}

func TestCheckEstimator(t *testing.T) {
	for _, name := range append([]string{"max_last_10", "max_last_1", "max_last_1000"}, Estimators...) {
		if err := CheckEstimator(name); err != nil {
			t.Errorf("CheckEstimator(%q) = %v, want none", name, err)
		}
	}
	for _, name := range []string{"", "ewma", "max_last_", "max_last_0", "max_last_1001"} {
		if err := CheckEstimator(name); err == nil {
			t.Errorf("CheckEstimator(%q) = nil, want an error", name)
		}
	}
	for name, window := range map[string]int{"max_last_n": 10, "max_last_7": 7} {
		if e, err := newEstimator(name, 0, 0, 0); err != nil || len(e.(*maxLast).window) != window {
			t.Errorf("newEstimator(%q) = %+v, %v, want a window of %d", name, e, err, window)
		}
	}
	for _, c := range []Config{{EstimatorK: -1}, {EstimatorK: maxK + 1}, {EstimatorFixed: -1},
		{EstimatorFixed: maxFixed + 1}} {
		if _, err := newEstimator("jk", 0, c.EstimatorK, c.EstimatorFixed); err == nil {
			t.Errorf("newEstimator of %v, %v = nil, want an error", c.EstimatorK, c.EstimatorFixed)
		}
	}
}

func BenchmarkTick(b *testing.B) {
	s, d := newSchedule(50, 6), newTrigger(fixed(0.05))
	c := &Chunk{Rows: 50, DOF: 6, Robot: make([]float32, 300), Model: make([]float32, 300)}
	b.ReportAllocs()
	for b.Loop() {
		pop(s)
		if fire, _ := d.onTick(s.size()); fire {
			c.Key, c.step = c.Key+1, s.n+1
			merge(s, c)
		}
	}
}

// After a spike the estimate stays high for long. With the default cooldown a lost answer then costs half of the
// actions left, not most of them. Over a link that is truly slow, drtc does not ask twice. The test compares this with
// the DRTC program's cooldown.
func TestCooldownIsBoundedByTheRunway(t *testing.T) {
	for _, tt := range []struct {
		name     string
		mode     string
		rtts     []float64 // seconds
		size     int
		cooldown int
	}{
		{"no sample yet: as the estimate says", cooldownRunway, nil, 10, 21},
		{"a quiet link", cooldownRunway, []float64{0.05, 0.05, 0.05}, 30, 4},
		{"after a spike: half the actions left", cooldownRunway, []float64{0.05, 0.05, 0.55}, 30, 16},
		{"after a spike, almost nothing left: a mean round trip", cooldownRunway, []float64{0.05, 0.05, 0.55}, 4, 8},
		{"after a spike, as the program", cooldownCounts, []float64{0.05, 0.05, 0.55}, 30, 20},
		{"a slow link is slow", cooldownRunway, []float64{0.3, 0.3, 0.3}, 4, 19},
	} {
		d := newTrigger(unseeded())
		d.c.Cooldown = tt.mode
		for _, rtt := range tt.rtts {
			d.latency.observe(rtt)
		}
		if fire, _ := d.onTick(tt.size); !fire || d.cooldown != tt.cooldown {
			t.Errorf("%s: fire %v, cooldown %d, want %d", tt.name, fire, d.cooldown, tt.cooldown)
		}
	}
	original := newOriginalDRTC(triggerConfig, unseeded())
	original.cooldown = 0
	for _, rtt := range []float64{0.05, 0.05, 0.55} {
		original.latency.observe(rtt)
	}
	ask := NewAsk(50, 1)
	if !original.OnTick(0, nil, &ask) || original.cooldown != 20 {
		t.Errorf("the original after a spike: cooldown %d, want 20", original.cooldown)
	}
}

// After a break our own disciplines request at once. The originals (Compat) wait as long as without the break.
func TestResume(t *testing.T) {
	const forever = 1000
	waits := func(c Config, resume bool) (ticks int) {
		d := rttest.Must(New(c))(t)
		ask := NewAsk(c.Horizon, c.DOF)
		asks := func() bool { return d.OnTick(1, []float32{0}, &ask) }
		for first := 0; !asks(); first++ {
			if first == forever {
				t.Fatalf("%s never asks", c.Schedule)
			}
		}
		for range 15 {
			d.OnTickWithoutObservation()
		}
		if resume {
			d.Resume()
		}
		for ; ticks < forever && !asks(); ticks++ {
		}
		return ticks
	}
	for _, schedule := range Schedules {
		for _, compat := range []bool{false, true} {
			c := Config{Schedule: schedule, Horizon: 50, DOF: 1, FPS: 60, SMin: 20, Epsilon: 1, Compat: compat,
				Estimator: "fixed", EstimatorFixed: 400 * time.Millisecond}
			with, without := waits(c, true), waits(c, false)
			if !compat && with != 0 || compat && with != without {
				t.Errorf("%s, compat %v: asks %d ticks after a break, %d without", schedule, compat, with, without)
			}
		}
	}
}

// Goal: when the policy takes minutes for an answer, the discipline still knows the request, because it repeats
// requests less and less often. This holds with short chunks, too.
func TestASlowAnswerIsToAKnownRequest(t *testing.T) {
	for _, name := range Schedules {
		for _, horizon := range []int{2, 16, 50} {
			d := rttest.Must(New(Config{Schedule: name, Horizon: horizon, DOF: 1, FPS: 60, Epsilon: 1, SMin: 1}))(t)
			a := NewAsk(horizon, 1)
			var first int64
			asked := 0
			const ticks = 5 * 60 * 60 // five minutes
			for i := range ticks {
				if d.OnTick(rt.Instant(i)*rt.Instant(time.Second)/60, []float32{float32(i)}, &a) {
					if asked++; first == 0 {
						first = a.Key
					}
				}
			}
			r := d.OnChunk(rt.Instant(ticks)*rt.Instant(time.Second)/60, &Chunk{
				Key:   first,
				Rows:  horizon,
				DOF:   1,
				Robot: make([]float32, horizon),
				Model: make([]float32, horizon),
			})
			if r.Outcome != Joined || asked > requestSlots {
				t.Errorf("%s, %d rows: %d requests in five minutes, and the answer to the first is %v, want at most "+
					"%d and joined", name, horizon, asked, r.Outcome, requestSlots)
			}
			if asked < 5 {
				t.Errorf("%s: asked %d times in five minutes, want a lost answer asked for again", name, asked)
			}
		}
	}
}
