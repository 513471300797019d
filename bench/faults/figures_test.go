package faults

import (
	"math"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/fleet"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// still is a policy whose actions keep the arm at rest.
type still struct{ rows [50 * sim.DOF]float32 }

func (*still) Horizon() int                 { return 50 }
func (*still) Picture() (width, height int) { return sim.NativeWidth, sim.NativeHeight }
func (*still) DOF() int                     { return sim.DOF }
func (*still) PrefixEnd() int               { return 0 }
func (*still) Forget()                      {}

func (s *still) Answer(*fleet.Observation) (fleet.Answer, error) {
	return fleet.Answer{Robot: s.rows[:]}, nil
}

// aged returns the outcome of an episode in which each answer takes this number of ticks, so that the actions have an
// age.
func aged(t *testing.T, delay int) fleet.Outcome {
	t.Helper()
	robot := rttest.Must(fleet.Open(fleet.Config{Policy: new(still), Ticks: 120, Delay: delay}))(t)
	defer robot.Close()
	return rttest.Must(robot.Play(1, 1))(t)
}

// Goal: each published figure has the value that a reader computes by hand.
func TestFigures(t *testing.T) {
	full := aged(t, 5)
	full.Right, full.Left = fleet.Side{Reached: 3, Collided: 1}, fleet.Side{Reached: 2, TimedOut: 2}
	full.LegTicks = []int{60, 180}
	full.Starved = 4
	full.Waited = 2
	full.Switches = 3
	full.Inferences = 45
	full.Requests = 60
	full.Idles = []int{3, 9}
	full.UpBytes, full.DownBytes = 60_000, 30_000
	full.Recoveries = []time.Duration{100 * time.Millisecond, 300 * time.Millisecond}
	full.Seams = nil
	full.Again = []int{-1, 4, 2}
	full.AgainDue = []int{-1, 1, 2}
	for i := range 100 {
		full.Seams = append(full.Seams, float64(i+1))
	}
	bare := fleet.Outcome{Right: fleet.Side{Reached: 1, Collided: 1}}
	e := entry("drtc", []fleet.Outcome{full, bare}, 30*time.Second)
	if e.Schedule != "drtc" || len(e.Metrics) != len(metrics) {
		t.Fatalf("entry of %q with %d figures, want drtc with %d", e.Schedule, len(e.Metrics), len(metrics))
	}
	none := math.NaN()
	for _, tt := range []struct {
		key        string
		full, bare float64
	}{
		{"success", 62.5, 50},           // 5 of 8 legs, 1 of 2
		{"reached", 10, 2},              // targets in half a minute
		{"leg_seconds", 2, none},        // legs of 1 and 3 s
		{"starved_ticks", 12, 0},        // before the first action, and after it
		{"recovery_ms", 200, none},      // recoveries of 100 and 300 ms
		{"seam_degrees", 95, none},      // the seams are 1 to 100 degrees
		{"mode_switches", 6, 0},         // switches in half a minute
		{"age_ms", 1000 * 25 / 60.0, 0}, // 5 ticks on the way, and up to 20 until the next chunk
		{"inferences", 1.5, 0},          // inferences in 30 s
		{"requests", 2, 0},              // requests in 30 s
		{"actions_per_request", float64(full.Actions) / 60, none},
		{"idle_ms", 100, none},   // idle times of 3 and 9 ticks
		{"kilobytes", 3, 0},      // 90 kB both ways in 30 s
		{"again_ticks", 4, none}, // the longest time counts
		{"again_due_ticks", 2, none},
	} {
		values := e.values[tt.key]
		if len(values) != 2 {
			t.Fatalf("%s: values %v, want two", tt.key, values)
		}
		n, mean := 2, (tt.full+tt.bare)/2
		if math.IsNaN(tt.bare) {
			n, mean = 1, tt.full
		}
		if !same(values[0], tt.full) || !same(values[1], tt.bare) {
			t.Errorf("%s: %v, want %v and %v", tt.key, values, tt.full, tt.bare)
		}
		if got := e.Metrics[tt.key]; got.N != n || !same(got.Mean, mean) {
			t.Errorf("%s: %+v, want the mean %v of %d", tt.key, got, mean, n)
		}
	}
}

func same(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-4
}

// Goal: the best contender has the highest mean success. Every difference is this contender's value
// minus the other contender's in the same episode.
func TestCompare(t *testing.T) {
	of := func(name string, reached ...int) Entry {
		var outcomes []fleet.Outcome
		for _, n := range reached {
			outcomes = append(outcomes, fleet.Outcome{Right: fleet.Side{Reached: n, Collided: 10 - n}})
		}
		return entry(name, outcomes, time.Minute)
	}
	cell := Cell{Rows: []Entry{of("drtc", 5, 1, 3), of("rtc", 8, 4, 6), of("sync", 3, 0, 0), of("async", 8, 4, 6)}}
	cell.compare()
	rttest.Want(t, cell.Best, "rtc", "the best, which is the first of the highest")
	for i, want := range []struct{ best, first float64 }{{-30, 0}, {0, 30}, {-50, -20}, {0, 30}} {
		r := cell.Rows[i]
		if !same(r.SuccessLessBest.Mean, want.best) || !same(r.SuccessLessFirst.Mean, want.first) ||
			r.SuccessLessBest.N != 3 || r.SuccessLessFirst.N != 3 {
			t.Errorf("%s: less the best %+v, less the first %+v, want %v and %v of 3", r.Schedule, r.SuccessLessBest,
				r.SuccessLessFirst, want.best, want.first)
		}
		if i != 2 && (!same(r.SuccessLessFirst.Low, want.first) || !same(r.SuccessLessFirst.High, want.first)) {
			t.Errorf("%s: less the first %+v, want no spread: it is the same in each pair", r.Schedule,
				r.SuccessLessFirst)
		}
	}
}

// Goal: half of the episodes are played from each side; the two episodes of a pair have the same seed.
func TestEpisodes(t *testing.T) {
	cfg := Config{FirstSeed: 7}
	for i, want := range []struct {
		seed      uint64
		direction int
	}{{7, 1}, {7, -1}, {8, 1}, {8, -1}} {
		if seed, direction := cfg.episode(i); seed != want.seed || direction != want.direction {
			t.Errorf("episode %d: seed %d, direction %+d, want %d, %+d", i, seed, direction, want.seed, want.direction)
		}
	}
}

// Goal: an episode is played from its own side and in the requested world. In the narrow world the
// servos follow their goals two ticks late.
func TestWorldsArePlayed(t *testing.T) {
	stagetest.NeedsRuntime(t)
	for world, want := range map[string]int{"demo": 0, "narrow": 2} {
		cfg := config(t)
		cfg.World, cfg.Duration = world, time.Second
		rttest.Do(t, cfg.check())
		p := virtualPlayer{cfg: &cfg, open: map[bool]*fleet.Exported{}}
		defer p.close()
		for episode, direction := range []int{1, -1} {
			o, trace, err := p.play(job{contender: 1, episode: episode}) // drtc+plain moves
			if err != nil || o.Direction != direction || o.Seed != cfg.FirstSeed {
				t.Fatalf("%s: episode %d is %d, %+d, %v, want seed %d, direction %+d", world, episode, o.Seed,
					o.Direction, err, cfg.FirstSeed, direction)
			}
			if episode > 0 {
				continue // only the first episode has a trace
			}
			first := func(of func(*fleet.Tick) float64) int {
				for i := range trace {
					// 0.1 degrees are more than a step of the encoder
					if math.Abs(of(&trace[i])-of(&trace[0])) > 0.1 {
						return i
					}
				}
				return -1
			}
			goal, q := first(func(t *fleet.Tick) float64 {
				return t.Goal[0]
			}), first(func(t *fleet.Tick) float64 { return t.Q[0] })
			if goal < 1 || q-goal != want {
				t.Errorf("%s: the goal moves on tick %d and the arm on %d, want %d later", world, goal, q, want)
			}
		}
	}
}

// Goal: a span of ticks without actions counts as one idle time, with the number of its ticks.
func TestIdles(t *testing.T) {
	robot := rttest.Must(fleet.Open(fleet.Config{Policy: new(still), Ticks: 180, Delay: 5, Schedule: chunk.Config{
		Schedule: "sync",
	}}))(t)
	defer robot.Close()
	for range 2 { // a second call must not add up the worlds
		o, err := robot.Play(1, 1)
		if err != nil || len(o.Idles) != 3 || o.Idles[0] != o.Idles[1] || o.Idles[0] < 5 ||
			o.Idles[0]+o.Idles[1]+o.Idles[2] != o.Starved {
			t.Errorf("idle for %v of %d starved ticks, %v; want two times of 5 ticks or more, and a third", o.Idles,
				o.Starved, err)
		}
	}
}
