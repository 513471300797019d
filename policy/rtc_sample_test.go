package policy

import (
	"strings"
	"testing"
)

// The formulas of rtc_test.go give the recorded results of LeRobot's denoise_step and Euler loops,
// of DRTC's guidance, and of the examples worked by hand.

// field2 is a known velocity: a function of the value x, the time and the column.
type field2 func(x, time float64, column int) float64

// toy is a sample whose network is a formula, T rows of A columns.
type toy struct {
	rows, columns int
	steps         int
	noise, prefix []float64 // rows*columns
	held          int       // rows that repeat the prefix, whose time is 0
	weights       []float64 // per row
	most          float64
	velocity      field2
}

// sample runs the Euler steps.
func (y *toy) sample() []float64 {
	x := append([]float64(nil), y.noise...)
	for k := range y.steps {
		t := 1 - float64(k)/float64(y.steps)
		gain := guidanceWeight(t, 1, y.most)
		for i := range x {
			row := i / y.columns
			if row < y.held {
				x[i] = y.prefix[i]
				continue
			}
			v := y.velocity(x[i], t, i%y.columns)
			x[i] -= guided(x[i], v, y.prefix[i], y.weights[row], t, gain) / float64(y.steps)
		}
	}
	return x
}

// padded returns a prefix [rows][columns] as the top left of a larger one of zeros.
func padded(values []float64, rows, columns, toRows, toColumns int) []float64 {
	out := make([]float64, toRows*toColumns)
	for i, v := range values {
		if row := i / columns; row < min(rows, toRows) {
			out[row*toColumns+i%columns] = v
		}
	}
	return out
}

func flat(rows [][]float64) (out []float64) {
	for _, r := range rows {
		out = append(out, r...)
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
	cases := rtcSection[[]golden](t, "lerobot_rtc", "denoise_step")
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

func TestEulerGolden(t *testing.T) {
	type golden struct {
		Steps          int
		Mode           string
		T, A, Tp, Ap   int
		Delay, Horizon int
		Schedule       string
		Max            float64
		Velocity       string
		Noise          []float64
		Prev, Prefix   []float64
		Result         []float64
	}
	cases := rtcSection[[]golden](t, "lerobot_rtc", "euler")
	if len(cases) != 5 {
		t.Fatalf("%d cases, want 5", len(cases))
	}
	for _, c := range cases {
		if !strings.HasPrefix(c.Velocity, "0.6*x - 0.25*t") {
			t.Fatalf("velocity is %q", c.Velocity)
		}
		y := toy{
			rows:     c.T,
			columns:  c.A,
			steps:    c.Steps,
			noise:    c.Noise,
			prefix:   padded(c.Prev, c.Tp, max(c.Ap, 1), c.T, c.A),
			weights:  make([]float64, c.T),
			most:     c.Max,
			velocity: func(x, t float64, _ int) float64 { return 0.6*x - 0.25*t },
		}
		switch c.Mode {
		case "guided":
			y.weights = prefixWeights(strings.ToLower(c.Schedule), c.Delay, min(c.Horizon, c.Tp), c.T)
		case "trained":
			y.prefix, y.held = c.Prefix, c.Delay
		}
		if got := y.sample(); !close64(got, c.Result, 3e-6) {
			t.Errorf("%s, %d steps: %v, want %v", c.Mode, c.Steps, got, c.Result)
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
	cases := rtcSection[[]golden](t, "drtc_rtc", "guidance")
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

// The examples worked by hand: one sample without and with guidance, and three
// samples, each with controls of its own.
func TestWorkedExamples(t *testing.T) {
	type example2 struct {
		H, A, N, D, E int
		K, Beta       float64
		M             []float64
		X0, Y         [][]float64
		Plain, Guided [][]float64
		Trace         []struct {
			G float64
			X [][]float64
		}
	}
	e := rtcSection[example2](t, "rtc", "ex2")
	y := toy{
		rows:    e.H,
		columns: e.A,
		steps:   e.N,
		noise:   flat(e.X0),
		prefix:  flat(e.Y),
		weights: make([]float64, e.H),
		most:    e.Beta,
	}
	y.velocity = func(x, _ float64, column int) float64 { return e.K*x - e.M[column] }
	if got := y.sample(); !close64(got, flat(e.Plain), 1e-9) {
		t.Errorf("plain: %v, want %v", got, e.Plain)
	}
	y.weights = prefixWeights("linear", e.D, e.E, e.H)
	if got := y.sample(); !close64(got, flat(e.Guided), 1e-9) {
		t.Errorf("guided: %v, want %v", got, e.Guided)
	}
	for k, step := range e.Trace {
		if got := guidanceWeight(1-float64(k)/float64(e.N), 1,
			e.Beta); !close64([]float64{got}, []float64{step.G}, 1e-9) {
			t.Errorf("step %d: weight %g, want %g", k, got, step.G)
		}
	}
	type example3 struct {
		X0, Y, Out [][][]float64
		W          [][]float64
		Hard       [][]int `json:"hard_mask"`
		N          int
		K, Beta    float64
		M          []float64
	}
	b := rtcSection[example3](t, "rtc", "ex3")
	for i := range b.Out {
		y := toy{
			rows:    len(b.W[i]),
			columns: len(b.M),
			steps:   b.N,
			noise:   flat(b.X0[i]),
			prefix:  flat(b.Y[i]),
			weights: b.W[i],
			most:    b.Beta,
		}
		for _, held := range b.Hard[i] {
			y.held += held
		}
		y.velocity = func(x, t float64, column int) float64 { return (b.K-0.1*t)*x - b.M[column] }
		if got := y.sample(); !close64(got, flat(b.Out[i]), 1e-9) {
			t.Errorf("sample %d: %v, want %v", i, got, b.Out[i])
		}
	}
}
