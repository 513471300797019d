package policy

import (
	"strings"
	"testing"
)

// The tests check that the formulas of rtc_test.go give the recorded results of LeRobot's
// denoise_step and of DRTC's guidance.

// padded returns a larger matrix of zeros whose top left part is the prefix [rows][columns].
func padded(values []float64, rows, columns, toRows, toColumns int) []float64 {
	out := make([]float64, toRows*toColumns)
	for i, v := range values {
		if row := i / columns; row < min(rows, toRows) {
			out[row*toColumns+i%columns] = v
		}
	}
	return out
}

func TestDenoiseStepGolden(t *testing.T) {
	type golden struct {
		T, A, Tp, Ap   int
		Delay, Horizon int
		Time           float64 `json:"t"`
		Schedule       string
		Max            float64
		X, V, Prev     []float64
		Result         []float64
	}
	cases := rtcSection[golden](t, "lerobot_rtc", "denoise_step")
	if len(cases) != 6 {
		t.Fatalf("%d cases, want 6", len(cases))
	}
	for i, c := range cases {
		weights := prefixWeights(strings.ToLower(c.Schedule), c.Delay, min(c.Horizon, c.Tp), c.T)
		prefix, got := padded(c.Prev, c.Tp, c.Ap, c.T, c.A), make([]float64, len(c.X))
		for j := range got {
			got[j] = guided(c.X[j], c.V[j], prefix[j], weights[j/c.A], c.Time, guidanceWeight(c.Time, 1, c.Max))
		}
		if !close64(got, c.Result, 3e-6) {
			t.Errorf("case %d: %v, want %v", i, got, c.Result)
		}
	}
}

func TestDRTCGuidanceGolden(t *testing.T) {
	type golden struct {
		Name     string
		Sigma    float64  `json:"sigma_d"`
		Max      *float64 `json:"max_guidance_weight"`
		Time     float64
		Steps    *float64  `json:"num_flow_matching_steps"`
		Delay    int       `json:"inference_delay"`
		Overlap  *int      `json:"overlap_end"`
		Horizon  *int      `json:"execution_horizon"`
		X        []float64 `json:"x_t"`
		Prev     []float64
		Velocity string `json:"base_velocity"`
		V        []float64
	}
	cases := rtcSection[golden](t, "drtc_rtc", "guidance")
	if len(cases) != 11 {
		t.Fatalf("%d cases, want 11", len(cases))
	}
	for _, c := range cases {
		most, end := 10.0, min(len(c.Prev), len(c.X)-c.Delay)
		for _, v := range []*float64{c.Steps, c.Max} {
			if v != nil {
				most = *v
			}
		}
		for _, v := range []*int{c.Overlap, c.Horizon} {
			if v != nil {
				end = min(*v, end)
			}
		}
		weights := prefixWeights("linear", c.Delay, end, len(c.X))
		prefix := padded(c.Prev, len(c.Prev), 1, len(c.X), 1)
		got := []float64{}
		for i, x := range c.X {
			got = append(got, guided(x, 0.1*x, prefix[i], weights[i], c.Time, guidanceWeight(c.Time, c.Sigma, most)))
		}
		if c.Velocity != "0.1*x" || !close64(got, c.V, 2e-6) {
			t.Errorf("%s: %v, want %v", c.Name, got, c.V)
		}
	}
}
