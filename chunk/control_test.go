package chunk

import (
	"encoding/json"
	"reflect"
	"testing"
)

type controlCase struct {
	Name   string
	Params struct {
		Ticks, H, Epsilon int
		SMin              int `json:"s_min"`
		FPS               float64
		Cooldown          bool   `json:"cooldown_enabled"`
		Mode              string `json:"inference_reset_mode"`
		RTC               bool   `json:"rtc_enabled"`
		Estimator         string
		K                 float64
	}
	Triggers []struct {
		Tick  int
		Start int64 `json:"chunk_start_step"`
		Meta  *struct {
			Steps int        `json:"latency_steps"`
			Spans [][3]int64 `json:"action_schedule_spans"`
			End   int        `json:"overlap_end"`
		} `json:"rtc_meta"`
		NStar int64 `json:"n_star"`
		Size  int   `json:"schedule_size"`
		Steps int   `json:"latency_steps"`
	}
	Ticks [][]*float64 // t, n*, size, steps, cooldown, fired, received, overlap
}

// lost is a delivery that never comes.
const lost = -1

// deliveries says after how many ticks the k-th reply (from 0) of a recorded run
// arrives: its params.delivery, as code.
var deliveries = map[string]func(k int) int{
	"no_replies_cooldown_recovers":        func(int) int { return lost },
	"steady_latency_6_ticks":              func(int) int { return 6 },
	"steady_latency_6_ticks_60fps_smin20": func(int) int { return 6 },
	"drop_second_reply":                   func(k int) int { return []int{6, lost, 6}[min(k, 2)] },
	"spike_reply_40_ticks":                func(k int) int { return []int{6, 6, 6, 40, 6}[min(k, 4)] },
	"epsilon0":                            func(int) int { return 3 },
	"smin_equals_H_minus_1":               func(int) int { return 2 },
	"rtc_disabled":                        func(int) int { return 4 },
	"max_last_10":                         func(k int) int { return []int{20, 4}[min(k, 1)] },
	"latency_longer_than_chunk":           func(int) int { return 30 },
}

// notOurs are runs of modes that this package does not have.
var notOurs = map[string]string{
	"merge_reset_never_starts":               "merge_reset counts no cooldown and never sends a request",
	"merge_reset_started_with_zero_cooldown": "merge_reset, in a state its program cannot reach",
	"cooldown_disabled_triggers_every_tick":  "without a cooldown every tick sends a request",
}

// The program's control loop, rebuilt from the trigger, the schedule and the
// register: execute, trigger, merge at most one reply; row by row.
func TestControlLoopGolden(t *testing.T) {
	for _, c := range section[controlCase](t, "control_loop") {
		t.Run(c.Name, func(t *testing.T) {
			if why, ok := notOurs[c.Name]; ok {
				t.Skip(why)
			}
			delay, ok := deliveries[c.Name]
			if !ok {
				t.Fatal("no delivery for this run")
			}
			replayControl(t, c, delay)
		})
	}
}

func replayControl(t *testing.T, c controlCase, delay func(int) int) {
	p := c.Params
	e, err := NewEstimator(p.Estimator, float64(p.SMin)/p.FPS)
	if err != nil {
		t.Fatal(err)
	}
	d := NewTrigger(TriggerConfig{Horizon: p.H, SMin: p.SMin, Epsilon: p.Epsilon, FPS: p.FPS, Estimator: e, Compat: true})
	s := NewCompatSchedule(p.H, 1)
	register, fired := NewWatermark(-1), 0
	type reply struct{ due, ticks, key, start int }
	var flying []reply
	for tick := range p.Ticks {
		s.Pop(0, 0)
		size, start := s.Size(), s.NextStep()
		fire, _ := d.OnTick(size)
		if fire {
			if fired == len(c.Triggers) {
				t.Fatalf("tick %d: fires a request too many", tick)
			}
			want := c.Triggers[fired]
			if tick != want.Tick || start != want.Start || s.N() != want.NStar || size != want.Size || d.Steps() != want.Steps {
				t.Fatalf("request %d: tick %d start %d n %d size %d steps %d, want %+v", fired, tick, start, s.N(), size, d.Steps(), want)
			}
			if m := want.Meta; m != nil {
				var spans [][3]int64
				for _, sp := range s.AppendSpans(nil, d.PrefixEnd(d.Steps())) {
					spans = append(spans, [3]int64{sp.Key, int64(sp.Start), int64(sp.End)})
				}
				if d.PrefixEnd(d.Steps()) != m.End || !reflect.DeepEqual(spans, m.Spans) {
					t.Errorf("request %d: prefix end %d spans %v, want %d, %v", fired, d.PrefixEnd(d.Steps()), spans, m.End, m.Spans)
				}
			}
			if n := delay(fired); n != lost {
				flying = append(flying, reply{tick + n, n, tick, int(start)})
			}
			fired++
		}
		var newest *reply
		for i := range flying {
			if flying[i].due == tick && register.Accept(int64(flying[i].key)) {
				newest = &flying[i]
			}
		}
		row := []float64{float64(tick), float64(s.N()), 0, 0, float64(d.Cooldown()), number(fire), number(newest != nil)}
		var overlap *float64
		if newest != nil {
			e.Observe(float64(newest.ticks) / p.FPS)
			o := float64(s.Merge(ramp(int64(newest.key), int64(newest.start), p.H, 0)).Overlap)
			overlap = &o
		}
		row[2], row[3] = float64(s.Size()), float64(d.Steps())
		compareRow(t, c.Ticks[tick], row, overlap)
	}
	if fired != len(c.Triggers) {
		t.Errorf("%d requests, want %d", fired, len(c.Triggers))
	}
}

func compareRow(t *testing.T, want []*float64, got []float64, overlap *float64) {
	t.Helper()
	for i, v := range got {
		if want[i] == nil || v != *want[i] {
			w, _ := json.Marshal(want)
			t.Fatalf("row %v, want %s", got, w)
		}
	}
	if !reflect.DeepEqual(overlap, want[len(got)]) {
		t.Errorf("tick %v: overlap %v, want %v", got[0], overlap, want[len(got)])
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
