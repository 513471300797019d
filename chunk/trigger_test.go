package chunk

import (
	"testing"
	"time"
)

func trigger(e Estimator) *Trigger {
	return NewTrigger(TriggerConfig{Horizon: 50, SMin: 20, Epsilon: 1, FPS: 60, Estimator: e, PrefixEnd: 24})
}

func TestFirstRequestLeavesAtOnce(t *testing.T) {
	d := trigger(NewJK(20.0/60, DefaultAlpha, DefaultBeta, DefaultK))
	if fire, delay := d.OnTick(0); !fire || delay != 0 {
		t.Errorf("OnTick(0) = %v, %d, want fire with delay 0: nothing can be conditioned", fire, delay)
	}
	if d.Cooldown() != 21 {
		t.Errorf("Cooldown() = %d, want s_min + epsilon = 21 while no latency is known", d.Cooldown())
	}
}

func TestTriggerWaitsForSMin(t *testing.T) {
	d := trigger(Fixed(0.05))
	for _, tt := range []struct {
		size int
		want bool
	}{{50, false}, {31, false}, {30, true}} {
		if fire, _ := d.OnTick(tt.size); fire != tt.want {
			t.Errorf("OnTick(%d) = %v, want %v", tt.size, fire, tt.want)
		}
	}
}

func TestLostChunkIsAskedForAgain(t *testing.T) {
	d := trigger(Fixed(0.1)) // 6 ticks
	var fired []int
	for tick := range 17 {
		if fire, _ := d.OnTick(20 - tick); fire {
			fired = append(fired, tick)
		}
	}
	if len(fired) != 3 || fired[1] != 8 || fired[2] != 16 {
		t.Errorf("requests on ticks %v, want [0 8 16]", fired)
	}
	// Ticks without a valid observation count down but do not fire.
	for range 7 {
		d.OnIdleTick()
	}
	if fire, _ := d.OnTick(0); !fire {
		t.Errorf("OnTick after %d idle ticks does not fire", 7)
	}
	d.Rearm()
	if fire, _ := d.OnTick(0); !fire {
		t.Errorf("OnTick after Rearm does not fire")
	}
}

// After a break the actions left are older than their number says, so the next
// tick asks even with a full schedule, and only that one.
func TestRearmAsksWhateverIsLeft(t *testing.T) {
	for _, compat := range []bool{false, true} {
		d := NewTrigger(TriggerConfig{Horizon: 50, SMin: 20, Epsilon: 1, FPS: 60, Estimator: Fixed(0.05), Compat: compat})
		if fire, _ := d.OnTick(45); fire {
			t.Errorf("compat %v: the first tick fires with 45 of 50 left", compat)
		}
		d.Rearm()
		if fire, delay := d.OnTick(45); fire == compat || fire && delay != 3 {
			t.Errorf("compat %v: OnTick(45) after Rearm = %v, %d", compat, fire, delay)
		}
		if fire, _ := d.OnTick(44); fire {
			t.Errorf("compat %v: fires twice", compat)
		}
	}
}

// Servers are warm before they take a session: the first answer teaches as all do.
func TestTheFirstAnswerTeaches(t *testing.T) {
	d := trigger(NewJK(20.0/60, DefaultAlpha, DefaultBeta, DefaultK))
	if d.Steps() != 20 {
		t.Errorf("Steps() before the first answer = %d, want 20", d.Steps())
	}
	d.OnChunk(100 * time.Millisecond)
	if d.Steps() != 6 {
		t.Errorf("Steps() after 100 ms = %d, want 6", d.Steps())
	}
}

func TestDelayAndPrefixEnd(t *testing.T) {
	d := NewTrigger(TriggerConfig{Horizon: 50, SMin: 20, Epsilon: 1, FPS: 60, Estimator: Fixed(0.3), PrefixEnd: 24})
	if _, delay := d.OnTick(9); delay != 9 {
		t.Errorf("delay with 9 live rows = %d, want 9", delay)
	}
	d.Rearm()
	if _, delay := d.OnTick(30); delay != 18 {
		t.Errorf("delay with 30 live rows = %d, want the estimate, 18", delay)
	}
	for _, tt := range []struct{ bundle, delay, want int }{
		{24, 3, 24}, {24, 27, 23}, {0, 3, 30}, {0, 25, 25}, {40, 20, 30}, {24, 60, 0},
	} {
		d.cfg.PrefixEnd = tt.bundle
		if got := d.PrefixEnd(tt.delay); got != tt.want {
			t.Errorf("PrefixEnd(%d) with the bundle's %d = %d, want %d", tt.delay, tt.bundle, got, tt.want)
		}
	}
}

func TestNewEstimatorRefusesUnknownNames(t *testing.T) {
	for _, name := range EstimatorNames {
		if _, err := NewEstimator(EstimatorConfig{Name: name, Initial: 0.1}); err != nil {
			t.Errorf("NewEstimator(%q) = %v, want none", name, err)
		}
	}
	for name, want := range map[string]EstimatorConfig{
		"jk": {Name: EstimatorJK}, "max_last_10": {Name: EstimatorMaxLast, Window: 10}, "max_last_n": {Name: EstimatorMaxLast}, "lerobot": {Name: EstimatorLeRobot},
	} {
		if got, err := ParseEstimator(name); got != want || err != nil {
			t.Errorf("ParseEstimator(%q) = %+v, %v, want %+v", name, got, err, want)
		}
	}
	for _, name := range []string{"", "ewma", "max_last_", "max_last_0", "max_last_1001"} {
		if _, err := ParseEstimator(name); err == nil {
			t.Errorf("ParseEstimator(%q) = nil, want an error", name)
		}
	}
	for _, bad := range []EstimatorConfig{
		{Name: "ewma"}, {}, {Name: EstimatorJK, K: -1}, {Name: EstimatorMaxLast, Window: -1},
		{Name: EstimatorMaxLast, Window: MaxWindow + 1}, {Name: EstimatorFixed, Fixed: -1}, {Name: EstimatorJK, Initial: -1},
	} {
		if _, err := NewEstimator(bad); err == nil {
			t.Errorf("NewEstimator(%+v) = nil, want an error", bad)
		}
	}
}

func BenchmarkTick(b *testing.B) {
	s, d := NewSchedule(50, 6), trigger(Fixed(0.05))
	c := &Chunk{Rows: 50, DOF: 6, Robot: make([]float32, 300), Model: make([]float32, 300)}
	b.ReportAllocs()
	for b.Loop() {
		s.Pop(0, 0)
		if fire, _ := d.OnTick(s.Size()); fire {
			c.Key, c.Step = c.Key+1, s.NextStep()
			s.Merge(c)
		}
	}
}

// After a spike the estimate is high for long. A lost answer then costs half of
// the actions left, not most of them; a link that is truly slow is not asked
// twice; and the DRTC program's cooldown is there to compare with.
func TestCooldownIsBoundedByTheRunway(t *testing.T) {
	for _, tt := range []struct {
		name     string
		mode     CooldownMode
		compat   bool
		rtts     []float64 // seconds
		size     int
		cooldown int
	}{
		{"no sample yet: as the estimate says", CooldownRunway, false, nil, 10, 21},
		{"a quiet link", CooldownRunway, false, []float64{0.05, 0.05, 0.05}, 30, 4},
		{"after a spike: half the actions left", CooldownRunway, false, []float64{0.05, 0.05, 0.55}, 30, 16},
		{"after a spike, almost nothing left: a mean round trip", CooldownRunway, false, []float64{0.05, 0.05, 0.55}, 4, 8},
		{"after a spike, as the program", CooldownCounts, false, []float64{0.05, 0.05, 0.55}, 30, 20},
		{"after a spike, compat", CooldownRunway, true, []float64{0.05, 0.05, 0.55}, 30, 20},
		{"a slow link is slow", CooldownRunway, false, []float64{0.3, 0.3, 0.3}, 4, 19},
	} {
		d := NewTrigger(TriggerConfig{
			Horizon: 50, SMin: 20, Epsilon: 1, FPS: 60, Estimator: NewJK(20./60, DefaultAlpha, DefaultBeta, DefaultK), Cooldown: tt.mode, Compat: tt.compat,
		})
		d.cooldown = 0
		for _, rtt := range tt.rtts {
			d.OnChunk(time.Duration(rtt * float64(time.Second)))
		}
		if fire, _ := d.OnTick(tt.size); !fire || d.Cooldown() != tt.cooldown {
			t.Errorf("%s: fire %v, cooldown %d, want %d", tt.name, fire, d.Cooldown(), tt.cooldown)
		}
	}
}

// After a break our own disciplines ask at once; the originals, as Compat has
// them, wait as long as without it.
func TestResume(t *testing.T) {
	const forever = 1000
	waits := func(c Config, resume bool) (ticks int) {
		d, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		ask := NewAsk(c.Horizon, c.DOF)
		asks := func() bool { return d.OnTick(1, []float32{0}, &ask) }
		for first := 0; !asks(); first++ {
			if first == forever {
				t.Fatalf("%s never asks", c.Schedule)
			}
		}
		for range 15 {
			d.OnIdleTick()
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
				Estimator: EstimatorConfig{Name: EstimatorFixed, Fixed: 400 * time.Millisecond}}
			with, without := waits(c, true), waits(c, false)
			if !compat && with != 0 || compat && with != without {
				t.Errorf("%s, compat %v: asks %d ticks after a break, %d without", schedule, compat, with, without)
			}
		}
	}
}

func TestNewTriggerPanics(t *testing.T) {
	for name, change := range map[string]func(*TriggerConfig){
		"a negative s_min": func(c *TriggerConfig) { c.SMin = -1 }, "s_min of the horizon": func(c *TriggerConfig) { c.SMin = c.Horizon },
		"no rate": func(c *TriggerConfig) { c.FPS = 0 }, "a negative epsilon": func(c *TriggerConfig) { c.Epsilon = -1 },
		"no estimator": func(c *TriggerConfig) { c.Estimator = nil },
	} {
		c := TriggerConfig{Horizon: 10, SMin: 4, FPS: 60, Estimator: Fixed(0)}
		NewTrigger(c)
		change(&c)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: NewTrigger takes it", name)
				}
			}()
			NewTrigger(c)
		}()
	}
}
