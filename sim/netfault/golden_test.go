package netfault

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The plan agrees with the recorded fault simulators of the DRTC program (testdata/golden/drtc.md).
func TestSimulatorsGolden(t *testing.T) {
	type golden struct {
		Name   string
		Config []struct {
			Start    float64 `json:"start_s"`
			Duration float64 `json:"duration_s"`
			DelayMs  float64 `json:"delay_ms"`
		}
		T      []float64
		Items  []int `json:"items_in"`
		Result json.RawMessage
	}
	cases := rttest.Cases[golden](t, "../../testdata/golden/drtc_faults.json", "fault_simulators")
	rttest.Want(t, len(cases), 10, "number of cases")
	kinds := map[string]Kind{
		"drop_window_half_open": DropChunk, "drop_from_zero_first_call_is_t0": DropChunk, "no_config": DropChunk,
		"dup_window":              DuplicateChunk,
		"reorder_pairs_in_window": ReorderChunk, "reorder_held_dropped_when_window_closes": ReorderChunk,
		"reorder_even":                  ReorderChunk,
		"spike_fires_once_one_per_call": Spike, "spike_at_zero_first_inference": Spike,
		// the server of the DRTC program sleeps until the end of the window; here no message passes
		// until then
		"disconnect_sleeps_to_window_end": Blackout,
	}
	for _, c := range cases {
		kind, known := kinds[c.Name]
		if !known {
			t.Fatalf("%s: an unknown case", c.Name)
		}
		var s Script
		for _, f := range c.Config {
			s.Faults = append(s.Faults, Fault{
				Kind:  kind,
				At:    seconds(f.Start),
				For:   seconds(f.Duration),
				Share: 1,
				Delay: seconds(f.DelayMs / 1000),
			})
		}
		p := s.Plan(1, tick)
		var flags []bool
		var delays []float64
		var passed [][]int
		var l Line[int]
		for i, at := range c.T {
			effect := p.Chunk(seconds(at))
			flags = append(flags, effect.Lost || effect.Duplicated)
			delays = append(delays, stopped(p, c.T, i).Seconds())
			if c.Items != nil {
				out, _ := l.Pass(effect, c.Items[i], []int{})
				passed = append(passed, out)
			}
		}
		switch kind {
		case DropChunk, DuplicateChunk:
			compare(t, c.Name, c.Result, flags)
		case ReorderChunk:
			compare(t, c.Name, c.Result, passed)
		case Spike:
			var want []float64
			rttest.Do(t, json.Unmarshal(c.Result, &want))
			// When two spikes begin at the same instant, the DRTC program applies the second one on
			// its next call. Here the server stops for both at once.
			if got := sum(delays); got != sum(want) || slices.Index(delays, 0) != slices.Index(want, 0) {
				t.Errorf("%s: the server stops for %v, want %v in all", c.Name, delays, want)
			}
		case Blackout:
			var want []float64
			rttest.Do(t, json.Unmarshal(c.Result, &want))
			for i := range want {
				if flags[i] != (want[i] > 0) {
					t.Errorf("%s: at %g s nothing passes: %v, want %v", c.Name, c.T[i], flags[i], want[i] > 0)
				}
			}
		}
	}
}

// stopped returns how long the server stops between call i-1 and call i.
func stopped(p *Plan, at []float64, i int) time.Duration {
	before := time.Duration(-1)
	if i > 0 {
		before = seconds(at[i-1])
	}
	return p.Spikes(before, seconds(at[i]))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

func compare[T any](t *testing.T, name string, recorded json.RawMessage, got T) {
	t.Helper()
	var want T
	if err := json.Unmarshal(recorded, &want); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", name, got, want)
	}
}
