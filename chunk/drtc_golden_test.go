package chunk

import (
	"encoding/json"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// goldens is the file with recorded runs of the DRTC program, not of ours. Its _about names their source.
const goldens = "../testdata/golden/drtc.json"

// section decodes one section of the goldens.
func section[T any](t *testing.T, name string) []T { return rttest.Cases[T](t, goldens, name) }

// The copies in testdata equal the recordings, if the recordings are present.
func TestGoldensEqualRecording(t *testing.T) {
	for _, c := range []struct {
		recording, file string
		sections        []string
	}{
		{"drtc_goldens.json", goldens, []string{"lww", "estimators", "initial_steps_fps_smin", "schedule",
			"control_loop", "filter", "butter_sos"}},
		{"lerobot_goldens.json", lerobotGoldens, []string{"interpolator", "latency_tracker_maxlen5"}},
	} {
		raw, err := os.ReadFile("../../shared/vectors/" + c.recording)
		if err != nil {
			t.Skipf("the recording is not beside this checkout: %v", err)
		}
		var want map[string]any
		rttest.Do(t, json.Unmarshal(raw, &want))
		for _, name := range c.sections {
			if got := rttest.Cases[any](t, c.file, name); !reflect.DeepEqual(any(got), want[name]) {
				t.Errorf("section %s of %s differs from %s", name, c.file, c.recording)
			}
		}
	}
}

type lwwCase struct {
	Name    string
	Initial int64
	Trace   []struct {
		Op        string
		K         int64
		V         any
		Accepted  bool
		IsNew     bool `json:"is_new"`
		Watermark int64
		State     [2]any
	}
}

// The recorded register has a value and two watermarks. The writer's watermark refuses a key that is not newer. The
// reader's watermark shows whether the reader has read the newest value.
func TestWatermarkGolden(t *testing.T) {
	for _, c := range section[lwwCase](t, "lww") {
		t.Run(c.Name, func(t *testing.T) {
			writer, reader := watermark(c.Initial), watermark(c.Initial)
			var value any
			for i, op := range c.Trace {
				switch op.Op {
				case "update":
					accepted := writer.accept(op.K)
					rttest.Want(t, accepted, op.Accepted, "op %d: accept(%d)", i, op.K)
					if accepted {
						value = op.V
					}
				case "read_if_newer":
					if isNew := reader.accept(int64(writer)); isNew != op.IsNew || int64(reader) != op.Watermark {
						t.Errorf("op %d: reader sees %v at %d, want %v at %d", i, isNew, int64(reader), op.IsNew,
							op.Watermark)
					}
				default:
					t.Fatalf("op %d: unknown op %q", i, op.Op)
				}
				if float64(writer) != op.State[0].(float64) || value != op.State[1] {
					t.Errorf("op %d: state (%d, %v), want %v", i, int64(writer), value, op.State)
				}
			}
		})
	}
}

type estimatorCase struct {
	Name, Kind string
	Params     struct {
		FPS         float64
		Alpha, Beta *float64
		K           float64
		Horizon     int      `json:"action_chunk_size"`
		SMin        float64  `json:"s_min"`
		Fixed       *float64 `json:"fixed_latency_s"`
	}
	Trace []struct {
		RTT       *float64
		Seconds   float64
		Steps     int
		Mean, Dev *float64
	}
}

func (c estimatorCase) estimator(t *testing.T) estimator {
	p := c.Params
	alpha := defaultAlpha
	beta := defaultBeta
	constant := defaultFixed.Seconds()
	if p.Alpha != nil {
		alpha, beta = *p.Alpha, *p.Beta
	}
	if p.Fixed != nil {
		constant = *p.Fixed
	}
	switch c.Kind {
	case "jk":
		return &jacobsonKarels{initial: p.SMin / p.FPS, alpha: alpha, beta: beta, k: p.K}
	case "max_last_10":
		return newMaxLast(p.SMin/p.FPS, 10)
	case "fixed":
		return fixed(constant)
	}
	t.Fatalf("unknown kind %q", c.Kind)
	return nil
}

func TestEstimatorGolden(t *testing.T) {
	for _, c := range section[estimatorCase](t, "estimators") {
		t.Run(c.Name, func(t *testing.T) {
			e := c.estimator(t)
			for i, op := range c.Trace {
				if op.RTT != nil {
					e.observe(*op.RTT)
				}
				seconds := e.seconds()
				rttest.Want(t, seconds, op.Seconds, "sample %d: seconds()", i)
				rttest.Want(t, steps(seconds, c.Params.FPS, c.Params.Horizon), op.Steps,
					"sample %d: steps(%v)", i, seconds)
				if jk, ok := e.(*jacobsonKarels); ok && op.Mean != nil && (jk.mean != *op.Mean || jk.dev != *op.Dev) {
					t.Errorf("sample %d: mean, dev = %v, %v, want %v, %v", i, jk.mean, jk.dev, *op.Mean, *op.Dev)
				}
			}
		})
	}
}

// ceil((s_min/fps)*fps) exceeds s_min for some pairs, so the order of operations must be that of the DRTC program.
func TestInitialStepsGolden(t *testing.T) {
	type row struct {
		FPS   float64
		SMin  float64 `json:"s_min"`
		Steps int
	}
	for _, c := range section[row](t, "initial_steps_fps_smin") {
		rttest.Want(t, steps((&jacobsonKarels{initial: c.SMin / c.FPS}).seconds(), c.FPS, 0), c.Steps,
			"initial Steps at %v fps, s_min %v", c.FPS, c.SMin)
	}
}

type scheduleCase struct {
	Name  string
	Trace []struct {
		Op       string
		Src      *int64
		Start    *int64 `json:"chunk_start"`
		N        int
		Value0   float32
		NStar    int64   `json:"n_star"`
		Overlap  int     `json:"overlap_count"`
		MeanL2   float64 `json:"mean_l2"`
		MaxL2    float64 `json:"max_l2"`
		Schedule [][4]float64
		MaxLen   int `json:"max_len"`
		Spans    [][3]int64
		Step     *int64
		Value    *float32
	}
}

func TestScheduleGolden(t *testing.T) {
	for _, c := range section[scheduleCase](t, "schedule") {
		t.Run(c.Name, func(t *testing.T) {
			d := newOriginalDRTC(Config{Horizon: 20, DOF: 1}, fixed(0))
			s := d.schedule
			for i, op := range c.Trace {
				switch op.Op {
				case "merge":
					jump(s, op.NStar)
					r := d.merge(ramp(*op.Src, *op.Start, op.N, op.Value0), Result{})
					if r.Overlap != op.Overlap || !near(r.MeanL2, op.MeanL2) || !near(r.MaxL2, op.MaxL2) {
						t.Errorf("op %d: merge = overlap %d, L2 mean %v max %v, want %d, %v, %v",
							i, r.Overlap, r.MeanL2, r.MaxL2, op.Overlap, op.MeanL2, op.MaxL2)
					}
					want := slices.DeleteFunc(op.Schedule, func(row [4]float64) bool {
						return int64(row[0]) <= op.NStar
					})
					if got := content(s); !reflect.DeepEqual(got, want) {
						t.Errorf("op %d: schedule %v, want %v", i, got, want)
					}
					rttest.Want(t, d.View().Size, len(want), "op %d: size", i)
				case "spans":
					jump(s, op.NStar)
					var got [][3]int64
					for _, sp := range d.appendSpans(nil, op.MaxLen) {
						got = append(got, [3]int64{sp.Key, int64(sp.Start), int64(sp.End)})
					}
					if !reflect.DeepEqual(got, op.Spans) {
						t.Errorf("op %d: appendSpans(%d) = %v, want %v", i, op.MaxLen, got, op.Spans)
					}
				case "pop":
					action, _, _ := d.Pop(0, 0)
					if (action != nil) != (op.Step != nil) {
						t.Fatalf("op %d: Pop() = %v, want step %v", i, action, op.Step)
					}
					if action != nil && (s.n != *op.Step || action[0] != *op.Value || s.last.Seq != uint64(*op.Src)) {
						t.Errorf("op %d: Pop() ran step %d value %v of %d, want %d, %v of %d",
							i, s.n, action[0], s.last.Seq, *op.Step, *op.Value, *op.Src)
					}
				default:
					t.Fatalf("op %d: unknown op %q", i, op.Op)
				}
			}
		})
	}
}

// jump moves n as if the steps up to it had run. The DRTC program's schedule has no n: it keeps actions that were never
// popped, and each recorded call has its own n*. Our schedule drops such actions by their index.
func jump(s *schedule, n int64) {
	for s.n < n {
		if s.holds(s.n + 1) {
			s.live--
		}
		s.n++
	}
	s.extend()
}

// ramp returns a chunk of one joint whose row i has the value value0 + i.
func ramp(key, step int64, rows int, value0 float32) *Chunk {
	c := &Chunk{Key: key, step: step, Rows: rows, DOF: 1, Prov: Provenance{Seq: uint64(key)}}
	for i := range rows {
		c.Robot = append(c.Robot, value0+float32(i))
	}
	return c
}

// merge merges a chunk into the schedule by drtc's rule that only the newest request may join.
func merge(s *schedule, c *Chunk) Result { return s.merge(c, Result{}) }

// pop takes the next action, of any age.
func pop(s *schedule) []float32 {
	action, _, _ := s.pop(s.n+1, 0, 0)
	return action
}

// content returns the actions that have not run, each as its step, request, chunk start and value.
func content(s *schedule) [][4]float64 {
	rows := [][4]float64{}
	for step := s.n + 1; step <= s.n+int64(len(s.slots)); step++ {
		if s.holds(step) {
			c := s.slots[step&s.mask]
			rows = append(rows, [4]float64{float64(step), float64(c.key), float64(c.start),
				float64(s.robot[step&s.mask])})
		}
	}
	return rows
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
