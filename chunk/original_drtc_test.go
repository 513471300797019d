package chunk

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
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
	Ticks [][]*float64 // columns: t, n*, size, steps, cooldown, fired, received, overlap
}

// lost is the delay of a reply that never arrives.
const lost = -1

// deliveries has, by the name of a recorded run, a function that returns the delay of reply k (from 0) in ticks. It
// repeats the run's params.delivery as code.
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

	"merge_reset_never_starts":               func(int) int { return 6 },
	"merge_reset_started_with_zero_cooldown": func(int) int { return 6 },
	"cooldown_disabled_triggers_every_tick":  func(int) int { return 6 },
}

// cooldownOf returns the cooldown of a recorded run.
func cooldownOf(c controlCase) string {
	switch {
	case !c.Params.Cooldown:
		return cooldownOff
	case c.Params.Mode == "merge_reset":
		return cooldownMerge
	}
	return cooldownCounts
}

// The port runs the program's control loop row by row: execute, trigger, merge at most one reply.
func TestControlLoopGolden(t *testing.T) {
	for _, c := range section[controlCase](t, "control_loop") {
		t.Run(c.Name, func(t *testing.T) {
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
	made := rttest.Must(New(Config{
		Schedule: scheduleDRTC, Horizon: p.H, DOF: 1, FPS: p.FPS, SMin: p.SMin, Epsilon: p.Epsilon,
		Estimator: p.Estimator, EstimatorK: p.K, Cooldown: cooldownOf(c), Compat: true,
	}))(t)
	d := made.(*originalDRTC)
	if c.Name == "merge_reset_started_with_zero_cooldown" { // no sequence of ticks leads to this state
		d.cooldown = 0
	}
	ask := NewAsk(p.H, 1)
	register := watermark(-1)
	fired := 0
	at := func(tick int) rt.Instant { return rt.Instant(math.Round(float64(tick) / p.FPS * 1e9)) }
	type reply struct {
		due, ticks int
		key        int64
	}
	var flying []reply
	for tick := range p.Ticks {
		d.Pop(at(tick), 0)
		size, steps := d.View().Size, d.View().Estimate
		fire := d.OnTick(at(tick), nil, &ask)
		if fire {
			if fired == len(c.Triggers) {
				t.Fatalf("tick %d: fires a request too many", tick)
			}
			want := c.Triggers[fired]
			if tick != want.Tick || ask.Step != want.Start || d.View().N != want.NStar || size != want.Size ||
				steps != want.Steps {
				t.Fatalf("request %d: tick %d start %d n %d size %d steps %d, want %+v", fired, tick, ask.Step,
					d.View().N, size, steps, want)
			}
			// The recording identifies a chunk by the tick of its request; our code identifies it by the request's
			// number.
			if m := want.Meta; m != nil {
				var spans [][3]int64
				end := d.c.prefixEnd(steps)
				for _, sp := range d.appendSpans(nil, end) {
					spans = append(spans, [3]int64{int64(c.Triggers[sp.Key-1].Tick), int64(sp.Start), int64(sp.End)})
				}
				if end != m.End || !reflect.DeepEqual(spans, m.Spans) {
					t.Errorf("request %d: prefix end %d spans %v, want %d, %v", fired, end, spans, m.End, m.Spans)
				}
			}
			if n := delay(fired); n != lost {
				flying = append(flying, reply{tick + n, n, ask.Key})
			}
			fired++
		}
		var newest *reply
		for i := range flying {
			if flying[i].due == tick && register.accept(flying[i].key) {
				newest = &flying[i]
			}
		}
		row := []float64{float64(tick), float64(d.View().N), 0, 0, float64(d.View().Cooldown), number(fire),
			number(newest != nil)}
		var overlap *float64
		if newest != nil {
			// took is the longest round trip that takes no more ticks than in the recording.
			took := time.Duration(math.Floor(float64(newest.ticks) / p.FPS * 1e9))
			captured := d.requests[uint64(newest.key)%requestSlots].captured
			o := float64(d.OnChunk(captured.Add(took), ramp(newest.key, 0, p.H, 0)).Overlap)
			overlap = &o
			if d.c.Cooldown == cooldownMerge {
				row[4] = float64(d.View().Cooldown)
			}
		}
		row[2], row[3] = float64(d.View().Size), float64(d.View().Estimate)
		compareRow(t, c.Ticks[tick], row, overlap)
	}
	rttest.Want(t, fired, len(c.Triggers), "requests")
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
