package fleet

import (
	"errors"
	"math"
	"os"
	"reflect"
	"testing"

	"edgert/chunk"
	"edgert/policy"
	"edgert/sim"
)

// fullEnv asks for the published size: 200 worlds in each direction, a minute
// per delay on one core.
const fullEnv = "FLEET_FULL"

// demo opens the demo bundle.
func demo(tb testing.TB) *Exported {
	tb.Helper()
	if err := policy.OpenRuntime(""); errors.Is(err, policy.ErrNoRuntime) {
		tb.Skipf("needs ONNX Runtime: %v", err)
	} else if err != nil {
		tb.Fatal(err)
	}
	b, err := policy.LoadBundle("../../testdata/demo/bundle")
	if err != nil {
		tb.Fatal(err)
	}
	m, err := b.Open(policy.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	return NewExported(m)
}

// delays are those of the published table, in ticks.
var delays = []int{3, 8, 16}

// In every delay nearly every leg reaches its target, 8 in 20 seconds, no tick
// starves, and no action is older than the bound that edge-rt prints.
func TestClosedLoop(t *testing.T) {
	p := demo(t)
	for _, delay := range delays {
		r := mustRun(t, Config{Policy: p, Seeds: 3, Ticks: 600, Delay: delay})
		t.Log(r.String())
		checkLoop(t, r, p, 0.97, 7.5) // 50 legs: one miss is allowed
	}
}

// The published figures: at least 0.99 per leg on both sides, 8 legs per 20 s.
func TestClosedLoopFull(t *testing.T) {
	if os.Getenv(fullEnv) == "" {
		t.Skipf("takes minutes; set %s=1", fullEnv)
	}
	p := demo(t)
	for _, delay := range delays {
		r := mustRun(t, Config{Policy: p, Seeds: 200, Delay: delay})
		t.Log(r.String())
		checkLoop(t, r, p, 0.99, 8)
		if r.Left.Success() < 0.99 || r.Right.Success() < 0.99 {
			t.Errorf("delay %d: success per leg %.4f right, %.4f left, want 0.99", delay, r.Right.Success(), r.Left.Success())
		}
	}
	for _, cfg := range []Config{
		{Policy: p, Seeds: 100, Delay: 8, Quality: 90, Counts: true},
		{Policy: p, Seeds: 100, Delay: 5, Jitter: 6, Loss: 0.1, Quality: 90, Counts: true},
	} {
		r := mustRun(t, cfg)
		t.Logf("jpeg %d, encoders %v, jitter %d, loss %v: %s", cfg.Quality, cfg.Counts, cfg.Jitter, cfg.Loss, &r)
		if r.Both().Success() < 0.99 {
			t.Errorf("success per leg %.4f, want 0.99", r.Both().Success())
		}
	}
}

func mustRun(t *testing.T, cfg Config) Result {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func checkLoop(t *testing.T, r Result, p Policy, success, legs float64) {
	t.Helper()
	if got := r.Both().Success(); got < success {
		t.Errorf("delay %d: success per leg %.4f, want %.2f", r.Delay, got, success)
	}
	if got := r.LegsPer20s(); got < legs {
		t.Errorf("delay %d: %.2f legs per 20 s, want %.1f", r.Delay, got, legs)
	}
	if r.Starved != 0 || r.Unknown != 0 {
		t.Errorf("delay %d: %d starved ticks and %d unknown answers, want none", r.Delay, r.Starved, r.Unknown)
	}
	if bound := chunk.DefaultSMin(p.Horizon()) + 2*r.MaxEstimate + 3; r.Age(.99) > bound {
		t.Errorf("delay %d: action age p99 is %d ticks, want at most %d", r.Delay, r.Age(.99), bound)
	}
}

// The real pictures and encoders, late and lost answers: the loop still reaches
// its targets, starves only while answers are lost, and needs no luck to be
// repeated.
func TestClosedLoopOverABadLink(t *testing.T) {
	p := demo(t)
	cfg := Config{Policy: p, Seeds: 2, Ticks: 600, Delay: 5, Jitter: 6, Loss: 0.1, Quality: 90, Counts: true}
	r := mustRun(t, cfg)
	t.Log(r.String())
	if r.Both().Success() < 0.9 || r.LegsPer20s() < 7 {
		t.Errorf("success per leg %.3f with %.1f legs per 20 s, want 0.9 with 7", r.Both().Success(), r.LegsPer20s())
	}
	if again := mustRun(t, cfg); !reflect.DeepEqual(r, again) {
		t.Errorf("the same config gives %v and then %v", &r, &again)
	}
}

// Holding still never scores: every leg times out, and the new target lies on
// the same side.
func TestHoldingStillScoresNothing(t *testing.T) {
	r := mustRun(t, Config{Policy: new(Still), Seeds: 20, Delay: 8})
	if b := r.Both(); b.Reached != 0 || b.Collided != 0 || b.TimedOut != 20*2*3 {
		t.Errorf("holding still reaches %d, collides %d, times out %d, want 0, 0, 120", b.Reached, b.Collided, b.TimedOut)
	}
	if b := r.Both(); b.Success() != 0 {
		t.Errorf("Success() = %v, want 0", b.Success())
	}
}

// counter answers with its request's number in every row and records what the
// loop told it.
type counter struct {
	Still
	rows [stillHorizon * sim.DOF]float32
	seen []Observation
}

func (c *counter) Answer(o *Observation) ([]float32, error) {
	for i := range c.rows {
		c.rows[i] = float32(o.Seq)
	}
	c.seen = append(c.seen, *o)
	return c.rows[:], nil
}

// With a delay of D ticks exactly D rows run before the merge, the first request
// leaves at once and unconditioned, and later ones announce D.
func TestLoopTiming(t *testing.T) {
	for _, delay := range []int{1, 3, 20} {
		c := new(counter)
		cfg := Config{Policy: c, Delay: delay, Ticks: 200}
		if err := cfg.check(); err != nil {
			t.Fatal(err)
		}
		r, err := newRobot(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		var sum Result
		sum.Outcomes = map[chunk.Outcome]int{}
		if err := r.run(1, 1, &sum); err != nil {
			t.Fatal(err)
		}
		if first := c.seen[0]; first.Rows != 0 || first.Delay != 0 {
			t.Errorf("delay %d: the first request carries %d rows and delay %d, want none", delay, first.Rows, first.Delay)
		}
		for i, o := range c.seen[1:] {
			if o.Delay != delay || o.Rows < delay {
				t.Errorf("delay %d: request %d announces %d with %d rows, want %d", delay, i+2, o.Delay, o.Rows, delay)
			}
		}
		if got := r.plan.Last(); int(got.Delay) != delay {
			t.Errorf("delay %d: %d rows ran before the last merge, want %d", delay, got.Delay, delay)
		}
		if want := cfg.Ticks - delay - 1; sum.Actions != want || sum.Starved != 0 {
			t.Errorf("delay %d: %d actions and %d starved ticks, want %d and 0", delay, sum.Actions, sum.Starved, want)
		}
	}
}

func TestLostAnswersStarveAndRecover(t *testing.T) {
	r := mustRun(t, Config{Policy: new(counter), Delay: 3, Loss: 1, Ticks: 210})
	if r.Actions != 0 || r.Starved != 0 || r.Requests != 2*10 { // every s_min + epsilon + 1 = 22 ticks
		t.Errorf("without answers: %d actions, %d starved, %d requests, want 0, 0, 20", r.Actions, r.Starved, r.Requests)
	}
	r = mustRun(t, Config{Policy: new(counter), Delay: 3, Loss: 0.5, Seeds: 5})
	if r.Starved > r.Actions/100 || r.Outcomes[chunk.Joined] < 100 {
		t.Errorf("half the answers lost: %d of %d ticks starved with %d chunks, want under 1 %%", r.Starved, r.Actions, r.Outcomes[chunk.Joined])
	}
}

func TestRunRefuses(t *testing.T) {
	good := func() Config { return Config{Policy: new(Still)} }
	for name, change := range map[string]func(*Config){
		"no policy":            func(c *Config) { c.Policy = nil },
		"negative seeds":       func(c *Config) { c.Seeds = -1 },
		"negative ticks":       func(c *Config) { c.Ticks = -1 },
		"negative delay":       func(c *Config) { c.Delay = -1 },
		"negative jitter":      func(c *Config) { c.Jitter = -1 },
		"s_min of the horizon": func(c *Config) { c.SMin = 50 },
		"a loss above all":     func(c *Config) { c.Loss = 1.1 },
		"no loss at all":       func(c *Config) { c.Loss = math.NaN() },
		"too good a quality":   func(c *Config) { c.Quality = 101 },
	} {
		cfg := good()
		change(&cfg)
		if _, err := Run(cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: Run() = %v, want %v", name, err, ErrConfig)
		}
	}
	broken := errors.New("broken")
	if _, err := Run(Config{Policy: failing{new(Still), broken}}); !errors.Is(err, broken) {
		t.Errorf("Run() of a failing policy = %v, want %v", err, broken)
	}
}

type failing struct {
	*Still
	err error
}

func (f failing) Answer(*Observation) ([]float32, error) { return nil, f.err }
