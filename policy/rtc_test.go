package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Real-Time Chunking is computed inside the exported graph. The tests below compare two computations of it: formulas in
// float64, which reproduce all recordings of LeRobot and DRTC and the examples computed by hand, and the demo policy,
// whose intermediate values must equal those of the formulas.

// The recordings, each with its source.
var rtcGoldens = map[string]string{
	"../testdata/golden/rtc.json":         "../../shared/vectors/rtc_golden.json",
	"../testdata/golden/lerobot_rtc.json": "../../shared/vectors/lerobot_goldens.json",
	"../testdata/golden/drtc_rtc.json":    "../../shared/vectors/drtc_goldens.json",
	"../testdata/golden/drtc_faults.json": "../../shared/vectors/drtc_goldens.json",
}

func readSections(t *testing.T, name string) (s map[string]json.RawMessage) {
	t.Helper()
	rttest.ReadJSON(t, name, &s)
	return s
}

// rtcSection decodes one section of a recording.
func rtcSection[T any](t *testing.T, name, section string) []T {
	t.Helper()
	return rttest.Cases[T](t, "../testdata/golden/"+name+".json", section)
}

// The recordings here are copies. The test compares them with the originals if those exist on this
// machine.
func TestRTCGoldensAreTheSharedOnes(t *testing.T) {
	for ours, shared := range rtcGoldens {
		if _, err := os.Stat(shared); err != nil {
			t.Skipf("no shared vectors here: %v", err)
		}
		original := readSections(t, shared)
		for section, text := range readSections(t, ours) {
			var got, want any
			rttest.Do(t, json.Unmarshal(text, &got))
			if err := json.Unmarshal(original[section], &want); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("section %s of %s differs from %s, %v: copy it again", section, ours, shared, err)
			}
		}
	}
}

// prefixWeights returns the guidance weight of each row: 1 up to the delay, then a decline to 0 at the end.
func prefixWeights(schedule string, delay, end, rows int) []float64 {
	w := make([]float64, rows)
	end = min(end, rows)
	start := min(delay, end)
	for i := range w {
		linear := min(max(float64(end-i)/float64(end-start+1), 0), 1)
		switch schedule {
		case "linear":
			w[i] = linear
		case "exp":
			w[i] = linear * math.Expm1(linear) / (math.E - 1)
		case "zeros":
			w[i] = boolFloat(i < start)
		case "ones":
			w[i] = boolFloat(i < end)
		}
	}
	return w
}

func boolFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// guidanceWeight returns the strength of the pull in a step at time t, for actions with a prior
// deviation sigma. The strength is 0 at the end.
func guidanceWeight(t, sigma, most float64) float64 {
	tau := 1 - t
	if t == 0 {
		return 0
	}
	return min(most, (t*t+sigma*sigma*tau*tau)/(sigma*sigma*tau*t))
}

// guided returns the velocity v at x with the pull towards the prefix.
func guided(x, v, prefix, weight, time, gain float64) float64 {
	return v - gain*weight*(prefix-(x-time*v))
}

type weightCase struct {
	Schedule string
	D, Delay int
	E        int
	Horizon  int
	Overlap  int `json:"overlap_end"`
	W        []float64
	Weights  []float64
}

// weightCases returns all recorded prefix weights.
func weightCases(t *testing.T) (all []weightCase) {
	all = append(all, rtcSection[weightCase](t, "rtc", "weights")...)
	all = append(all, rtcSection[weightCase](t, "lerobot_rtc", "prefix_weights")...)
	all = append(all, rtcSection[weightCase](t, "drtc_rtc", "prefix_weights")...)
	for i := range all {
		c := &all[i]
		c.Schedule, c.Weights = strings.ToLower(c.Schedule), append(c.Weights, c.W...)
		c.Delay, c.E = c.D+c.Delay, c.E+c.Horizon+c.Overlap // the three recordings name these fields differently
	}
	if len(all) != 452 {
		t.Fatalf("%d cases, want all 452", len(all))
	}
	return all
}

func TestPrefixWeightsGolden(t *testing.T) {
	for _, c := range weightCases(t) {
		if got := prefixWeights(c.Schedule, c.Delay, c.E, len(c.Weights)); !close64(got, c.Weights, 2e-7) {
			t.Errorf("%s, delay %d, end %d: %v, want %v", c.Schedule, c.Delay, c.E, got, c.Weights)
		}
	}
}

// The demo policy gives the rows of a prefix the same guidance weights as the recordings.
func TestDemoPolicyWeightsGolden(t *testing.T) {
	p := openProbe(t, demoDir)
	cases, samples := weightCases(t), []sample(nil)
	for _, c := range cases {
		samples = append(samples, sample{Controls: Controls{
			PrefixLen: len(c.Weights), Delay: c.Delay, PrefixEnd: c.E, Mode: ModeGuided, Beta: 1, SigmaD: 1,
			Schedule: Schedule(slices.Index(ScheduleNames, c.Schedule)),
		}})
	}
	weights := p.run(t, samples, p.weight)[p.weight]
	for i, c := range cases {
		row := wide(weights[i*p.meta.ChunkSize : (i+1)*p.meta.ChunkSize])
		want := append(slices.Clone(c.Weights), make([]float64, p.meta.ChunkSize-len(c.Weights))...)
		if !close64(row, want, 1e-6) {
			t.Errorf("%s, delay %d, end %d: %v, want %v", c.Schedule, c.Delay, c.E, row, want)
		}
	}
}

type gainCase struct {
	name               string
	t, sigma, most, at float64
}

// gainCases returns all recorded guidance weights, each with its time.
func gainCases(t *testing.T) (all []gainCase) {
	for _, c := range rtcSection[struct {
		N, K             int
		G10, G5, Soare02 float64
	}](t, "rtc", "guidance") {
		time := 1 - float64(c.K)/float64(c.N)
		all = append(all,
			gainCase{"at most 10", time, 1, 10, c.G10}, gainCase{"at most 5", time, 1, 5, c.G5},
			gainCase{"sigma 0.2", time, 0.2, float64(c.N), c.Soare02})
	}
	for _, c := range rtcSection[struct {
		Max, T, G float64
		Steps     int
	}](t, "lerobot_rtc", "guidance_weight") {
		all = append(all, gainCase{fmt.Sprintf("%d steps, at most %g", c.Steps, c.Max), c.T, 1, c.Max, c.G})
	}
	return all
}

func TestGuidanceWeightGolden(t *testing.T) {
	cases := gainCases(t)
	rttest.Want(t, len(cases), 3*10+156, "cases")
	for _, c := range cases {
		if got := guidanceWeight(c.t, c.sigma, c.most); math.Abs(got-c.at) > 1e-5*max(1, c.at) {
			t.Errorf("%s, time %g: %g, want %g", c.name, c.t, got, c.at)
		}
	}
}

// At the times of its steps the demo policy pulls as hard as the recordings, but never with a weight above its number
// of steps, because a larger weight would overshoot.
func TestDemoPolicyGuidanceGolden(t *testing.T) {
	p := openProbe(t, demoDir)
	cases := gainCases(t)
	samples := []sample(nil)
	outputs := []string(nil)
	for _, c := range cases {
		samples = append(samples, sample{Controls: Controls{Beta: float32(c.most), SigmaD: float32(c.sigma)}})
	}
	for _, s := range p.steps {
		outputs = append(outputs, s.beta)
	}
	values := p.run(t, samples, outputs...)
	steps := float64(p.meta.NumSteps)
	compared := 0
	for i, c := range cases {
		k := (1 - c.t) * steps
		if math.Abs(k-math.Round(k)) > 1e-9 || c.t == 0 {
			continue // the policy has no step at this time
		}
		got := float64(values[outputs[int(math.Round(k))]][i])
		if want := min(c.at, steps); math.Abs(got-want) > 1e-5*want {
			t.Errorf("%s, time %g: %g, want %g", c.name, c.t, got, want)
		}
		compared++
	}
	if compared < 3*10+4*10 {
		t.Errorf("%d weights compared, want those of this policy's ten times at least", compared)
	}
}

// Every Euler step of the demo policy equals the step that the formulas compute from the network's velocity, for all
// modes and schedules. In the modes with a trained prefix the rows of the prefix are held.
func TestDemoPolicyStepsAreTheFormulas(t *testing.T) {
	p := openProbe(t, demoDir)
	r := rand.New(rand.NewPCG(1, 2))
	rows, dof := p.meta.ChunkSize, p.meta.ActionDim
	var samples []sample
	for mode := ModeFree; mode <= ModeTrainedGuided; mode++ {
		for s := range ScheduleNames {
			c := sample{Controls: Controls{
				PrefixLen: 1 + r.IntN(rows),
				Delay:     r.IntN(20),
				PrefixEnd: r.IntN(rows),
				Mode:      mode,
				Schedule:  Schedule(s),
				Beta:      1 + 9*r.Float32(),
				SigmaD:    0.1 + 0.9*r.Float32(),
			}}
			for range rows * dof {
				c.noise, c.prefix = append(c.noise, float32(r.NormFloat64())),
					append(c.prefix, float32(30*r.NormFloat64()))
			}
			samples = append(samples, c)
		}
	}
	outputs := []string{p.prefix, p.steps[0].x}
	for _, s := range p.steps {
		outputs = append(outputs, s.v, s.next)
	}
	values := p.run(t, samples, outputs...)
	for b, c := range samples {
		at := func(name string, i int) float64 { return float64(values[name][b*rows*dof+i]) }
		weights := prefixWeights(c.Schedule.String(), min(c.Delay, c.PrefixLen), min(c.PrefixEnd, c.PrefixLen), rows)
		if c.Mode != ModeGuided && c.Mode != ModeTrainedGuided {
			weights = make([]float64, rows)
		}
		for k, s := range p.steps {
			time := 1 - float64(k)/float64(len(p.steps))
			gain := guidanceWeight(time, float64(c.SigmaD), min(float64(c.Beta), float64(len(p.steps))))
			for i := range rows * dof {
				row := i / dof
				held := c.Mode >= ModeTrained && row < min(c.Delay, c.PrefixLen)
				begin := c.noise[i]
				want := at(s.x, i) - guided(at(s.x, i), at(s.v, i), at(p.prefix, i), weights[row], time,
					gain)/float64(len(p.steps))
				if held {
					begin, want = values[p.prefix][b*rows*dof+i], at(p.prefix, i)
				}
				if k == 0 && values[s.x][b*rows*dof+i] != begin {
					t.Fatalf("%v, %v: row %d begins at %g, want %g", c.Mode, c.Schedule, row, at(s.x, i), begin)
				}
				if got := at(s.next, i); math.Abs(got-want) > 2e-5*max(1, math.Abs(want)) {
					t.Fatalf("%v, %v, step %d, row %d: %g, want %g", c.Mode, c.Schedule, k, row, got, want)
				}
			}
		}
	}
}

func wide(values []float32) (out []float64) {
	for _, v := range values {
		out = append(out, float64(v))
	}
	return out
}

func close64(a, b []float64, tolerance float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= tolerance*max(1, math.Abs(y)) })
}
