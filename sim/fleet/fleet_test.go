package fleet

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/netfault"
)

// fullEnv is the variable that requests the size of the published runs: 200 worlds in each
// direction, which take a minute per delay on one core.
const fullEnv = "FLEET_FULL"

// demo opens the demo bundle.
func demo(tb testing.TB) *Exported { return bundle(tb, "bundle") }

func bundle(tb testing.TB, name string) *Exported {
	tb.Helper()
	if err := policy.OpenRuntime("", "cpu"); errors.Is(err, policy.ErrNoRuntime) {
		tb.Skipf("needs ONNX Runtime: %v", err)
	} else if err != nil {
		tb.Fatal(err)
	}
	b := rttest.Must(policy.LoadBundle("../../testdata/demo/" + name))(tb)
	m := rttest.Must(b.Open(policy.Options{}))(tb)
	tb.Cleanup(func() { m.Close() })
	return NewExported(m)
}

// delays are the delays of the published table, in ticks.
var delays = []int{3, 8, 16}

// At every delay, nearly all legs reach their targets, 8 legs end in 20 seconds, no tick starves,
// and no action is older than the bound that edge-rt prints.
func TestClosedLoop(t *testing.T) {
	p := demo(t)
	for _, delay := range delays {
		r := mustRun(t, Config{Policy: p, Ticks: 600, Delay: delay}, 3)
		t.Log(r.String())
		checkLoop(t, r, p, 0.97, 7.5) // of 50 legs, one may fail
	}
}

// The policy without a sampler does the same task, but cannot continue a schedule.
func TestClosedLoopWithoutASampler(t *testing.T) {
	p := bundle(t, "plain")
	r := mustRun(t, Config{Policy: p, Ticks: 600, Delay: 3}, 5)
	t.Log(r.String())
	checkLoop(t, r, p, 0.95, 7.5)
	if p.Modes[policy.ModeFree] != r.Inferences {
		t.Errorf("modes %v of %d inferences, want all free", p.Modes, r.Inferences)
	}
}

// A prefix sent as spans gives the same chunks as a prefix sent as rows, as long as the server
// still has the chunks that the spans name. After a restart of the server, Missed counts the
// requests whose chunks the server lacks.
func TestSpansAreTheRowsTheyName(t *testing.T) {
	p := demo(t)
	run := func(prefix, faults string) (Result, int) {
		p.Missed = 0
		r := mustRun(t, Config{
			Policy:   p,
			Ticks:    300,
			Delay:    3,
			Schedule: chunk.Config{Prefix: prefix},
			Faults:   script(t, faults),
		}, 1)
		return r, p.Missed
	}
	rows, _ := run("rows", noFaults)
	spans, missed := run("spans", noFaults)
	if missed != 0 || !reflect.DeepEqual(rows.Seams, spans.Seams) {
		t.Errorf("%d missed; seams %v by rows, %v by spans", missed, rows.Seams, spans.Seams)
	}
	if spans.UpBytes >= rows.UpBytes {
		t.Errorf("spans send %d bytes, rows %d", spans.UpBytes, rows.UpBytes)
	}
	if _, missed := run("spans", "faults: [{kind: restart, at: 1s, for: 100ms}]"); missed < 1 || missed > 2*3 {
		t.Errorf("%d requests missed after a restart of 100 ms, want one or a few in each of two worlds", missed)
	}
}

// The test repeats the published figures: at least 0.99 of the legs on each side reach their
// target, and 8 legs end per 20 s.
func TestClosedLoopFull(t *testing.T) {
	if os.Getenv(fullEnv) == "" {
		t.Skipf("takes minutes; set %s=1", fullEnv)
	}
	p := demo(t)
	for _, delay := range delays {
		r := mustRun(t, Config{Policy: p, Delay: delay}, 200)
		t.Log(r.String())
		checkLoop(t, r, p, 0.99, 8)
		if r.Left.success() < 0.99 || r.Right.success() < 0.99 {
			t.Errorf("delay %d: success per leg %.4f right, %.4f left, want 0.99", delay, r.Right.success(),
				r.Left.success())
		}
	}
	for _, cfg := range []Config{
		{Policy: p, Delay: 8, Quality: 90, Counts: true},
		{Policy: p, Delay: 5, Faults: script(t, badLink), Quality: 90, Counts: true},
	} {
		r := mustRun(t, cfg, 100)
		t.Logf("jpeg %d, encoders %v, faults %v: %s", cfg.Quality, cfg.Counts, cfg.Faults, &r)
		if r.Both().success() < 0.99 {
			t.Errorf("success per leg %.4f, want 0.99", r.Both().success())
		}
	}
}

// badLink loses one answer in ten and delays the others by up to 6 ticks.
const badLink = "faults: [{kind: drop_chunk, share: 0.1}, {kind: jitter, delay: 50ms}]"

// noFaults is a script that does nothing.
const noFaults = "faults: []"

func script(t *testing.T, text string) *netfault.Script {
	t.Helper()
	return rttest.Must(netfault.Parse([]byte(text)))(t)
}

func mustRun(t *testing.T, cfg Config, seeds int) Result {
	t.Helper()
	return rttest.Must(Run(cfg, seeds))(t)
}

func checkLoop(t *testing.T, r Result, p Policy, success, legs float64) {
	t.Helper()
	if got := r.Both().success(); got < success {
		t.Errorf("delay %d: success per leg %.4f, want %.2f", r.Delay, got, success)
	}
	if got := r.LegsPer20s(); got < legs {
		t.Errorf("delay %d: %.2f legs per 20 s, want %.1f", r.Delay, got, legs)
	}
	if r.Starved != 0 || r.Outcomes[chunk.Unknown] != 0 {
		t.Errorf("delay %d: %d starved ticks and %d unknown answers, want none", r.Delay, r.Starved,
			r.Outcomes[chunk.Unknown])
	}
	if bound := 2*p.Horizon()/5 + 2*r.MaxEstimate + 3; r.Age(.99) > bound {
		t.Errorf("delay %d: action age p99 is %d ticks, want at most %d", r.Delay, r.Age(.99), bound)
	}
}

// With compressed pictures, encoders, and late and lost answers, the loop still reaches its
// targets, starves only while answers are lost, and gives the same result when repeated.
func TestClosedLoopOverABadLink(t *testing.T) {
	p := demo(t)
	cfg := Config{Policy: p, Ticks: 600, Delay: 5, Faults: script(t, badLink), Quality: 90, Counts: true}
	r := mustRun(t, cfg, 2)
	t.Log(r.String())
	if r.Both().success() < 0.9 || r.LegsPer20s() < 7 {
		t.Errorf("success per leg %.3f with %.1f legs per 20 s, want 0.9 with 7", r.Both().success(), r.LegsPer20s())
	}
	if again := mustRun(t, cfg, 2); !reflect.DeepEqual(r, again) {
		t.Errorf("the same config gives %v and then %v", &r, &again)
	}
}

// A policy that holds still never scores: every leg times out, and the next target is on the same side.
func TestHoldingStillScoresNothing(t *testing.T) {
	r := mustRun(t, Config{Policy: new(still), Delay: 8}, 20)
	if b := r.Both(); b.Reached != 0 || b.Collided != 0 || b.TimedOut != 20*2*3 {
		t.Errorf("holding still reaches %d, collides %d, times out %d, want 0, 0, 120", b.Reached, b.Collided,
			b.TimedOut)
	}
	rttest.Want(t, r.Both().success(), 0, "Success()")
}

// counter is a policy that records the observations. Each value of an answer is the number of its
// request.
type counter struct {
	still
	rows [stillHorizon * sim.DOF]float32
	seen []Observation
}

func (c *counter) Answer(o *Observation) (Answer, error) {
	for i := range c.rows {
		c.rows[i] = float32(o.Seq)
	}
	c.seen = append(c.seen, *o)
	return Answer{Robot: c.rows[:]}, nil
}

// With a delay of D ticks, the first request leaves at once without a prefix, later requests
// announce the delay D, and exactly D rows of the old chunk run before a merge.
func TestLoopTiming(t *testing.T) {
	for _, delay := range []int{1, 3, 20} {
		c := new(counter)
		r := rttest.Must(Open(Config{Policy: c, Delay: delay, Ticks: 200}))(t)
		sum := rttest.Must(r.Play(1, 1))(t)
		if first := c.seen[0]; first.Rows != 0 || first.Delay != 0 {
			t.Errorf("delay %d: the first request carries %d rows and delay %d, want none", delay, first.Rows,
				first.Delay)
		}
		for i, o := range c.seen[1:] {
			if o.Delay != delay || o.Rows < delay {
				t.Errorf("delay %d: request %d announces %d with %d rows, want %d", delay, i+2, o.Delay, o.Rows, delay)
			}
		}
		if got := r.core.Schedule.Last(); int(got.Delay) != delay {
			t.Errorf("delay %d: %d rows ran before the last merge, want %d", delay, got.Delay, delay)
		}
		if want := 200 - delay - 1; sum.Actions != want || sum.Starved != 0 {
			t.Errorf("delay %d: %d actions and %d starved ticks, want %d and 0", delay, sum.Actions, sum.Starved, want)
		}
	}
}

func TestLostAnswersStarveAndRecover(t *testing.T) {
	r := mustRun(t, Config{
		Policy: new(counter),
		Delay:  3,
		Faults: script(t, "faults: [{kind: drop_chunk}]"),
		Ticks:  210,
	}, 1)
	// one request in every s_min + epsilon + 1 = 22 ticks
	if r.Actions != 0 || r.Starved != 0 || r.Requests != 2*10 {
		t.Errorf("without answers: %d actions, %d starved, %d requests, want 0, 0, 20", r.Actions, r.Starved,
			r.Requests)
	}
	r = mustRun(t, Config{
		Policy: new(counter),
		Delay:  3,
		Faults: script(t, "faults: [{kind: drop_chunk, share: 0.5}]"),
	}, 5)
	if r.Starved > r.Actions/100 || r.Outcomes[chunk.Joined] < 100 {
		t.Errorf("half the answers lost: %d of %d ticks starved with %d chunks, want under 1 %%", r.Starved, r.Actions,
			r.Outcomes[chunk.Joined])
	}
}

func TestRunRefuses(t *testing.T) {
	good := func() Config { return Config{Policy: new(still)} }
	for name, change := range map[string]func(*Config){
		"no policy":            func(c *Config) { c.Policy = nil },
		"negative ticks":       func(c *Config) { c.Ticks = -1 },
		"negative delay":       func(c *Config) { c.Delay = -1 },
		"s_min of the horizon": func(c *Config) { c.Schedule.SMin = 50 },
		"no such schedule":     func(c *Config) { c.Schedule.Schedule = "none" },
		"two delays":           func(c *Config) { c.Delay, c.Network = 3, Period },
		"a network of an hour": func(c *Config) { c.Network = time.Hour },
		"too good a quality":   func(c *Config) { c.Quality = 101 },
		"no picture":           func(c *Config) { c.Policy = &seeing{width: 0, height: 60} },
		"too large a picture":  func(c *Config) { c.Policy = &seeing{width: 80, height: sim.MaxSide + 1} },
	} {
		cfg := good()
		change(&cfg)
		if _, err := Run(cfg, 1); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: Run() = %v, want %v", name, err, ErrConfig)
		}
	}
	broken := errors.New("broken")
	rttest.FailsAs(t, rttest.Err(Run(Config{Policy: failing{new(still), broken}}, 1)), broken)
}

type failing struct {
	*still
	err error
}

func (f failing) Answer(*Observation) (Answer, error) { return Answer{}, f.err }

// Duplicated messages, in both directions, change nothing except the number of bytes sent.
func TestDuplicatesChangeNothing(t *testing.T) {
	run := func(text string) Result {
		r := mustRun(t, Config{Policy: new(counter), Delay: 5, Ticks: 600, Faults: script(t, text)}, 3)
		r.UpBytes, r.DownBytes = 0, 0
		return r
	}
	plain, doubled := run(noFaults), run("faults: [{kind: duplicate_observation}, {kind: duplicate_chunk}]")
	if !reflect.DeepEqual(plain, doubled) {
		t.Errorf("without: %v\nwith: %v", &plain, &doubled)
	}
}

// One robot meets one fault of each kind, and the results equal figures that were computed by hand.
func TestFaultsInTheLoop(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		check      func(r *Result) (ok bool)
	}{
		{"a blackout shorter than the schedule starves nobody", "faults: [{kind: blackout, at: 2s, for: 300ms}]",
			func(r *Result) bool { return r.Starved == 0 && r.Lost > 0 && len(r.Recoveries) == 2 }},
		{"a blackout of 2 s starves for what the schedule does not cover",
			"faults: [{kind: blackout, at: 2s, for: 2s}]",
			func(r *Result) bool { return r.Starved > 2*60 && r.Starved < 2*120 && len(r.Recoveries) == 2 }},
		{"a restart empties the server and is taken up again", "faults: [{kind: restart, at: 2s, for: 2s}]",
			func(r *Result) bool {
				return r.Starved > 2*60 && r.Starved < 2*(120+20) && r.Outcomes[chunk.Joined] > 2*20
			}},
		{"a spike delays every request behind it", "faults: [{kind: spike, at: 2s, delay: 1s}]",
			func(r *Result) bool { return r.Starved > 0 && r.Lost == 0 && r.Superseded > 0 && r.MaxEstimate > 5 }},
		{"latency is learned", "faults: [{kind: latency, delay: 99ms}]",
			func(r *Result) bool { return r.Starved == 0 && r.MaxEstimate == 11 }},
		{"reordering loses the older", "faults: [{kind: reorder_chunk, at: 2s, for: 2s}]",
			func(r *Result) bool { return r.Starved == 0 && answers(r, "older") == 0 }},
		{"a line of 100 kB/s takes half a second for a raw picture",
			"faults: [{kind: bandwidth, bytes_per_second: 100000}]",
			func(r *Result) bool { return r.MaxEstimate == 25 && r.Outcomes[chunk.Joined] > 0 }},
	} {
		r := mustRun(t, Config{Policy: new(counter), Delay: 5, Ticks: 600, Faults: script(t, tt.text)}, 1)
		if !tt.check(&r) {
			t.Errorf("%s: %d starved, %d lost, %d recoveries, %d superseded, estimate %d, outcomes %v",
				tt.name, r.Starved, r.Lost, len(r.Recoveries), r.Superseded, r.MaxEstimate, r.Outcomes)
		}
	}
}

// The edge repeats a lost request within its latency estimate plus two ticks. The test does not count ticks on which
// the schedule is full because a spike has released an answer.
func TestLostRequestsAreRepeatedInTime(t *testing.T) {
	for _, text := range []string{
		"faults: [{kind: drop_chunk, share: 0.2}, {kind: drop_observation, share: 0.2}]",
		"faults: [{kind: drop_chunk, share: 0.2}, {kind: jitter, delay: 60ms}, {kind: spike, at: 1s, delay: 200ms, " +
			"every: 2s}]",
	} {
		r := mustRun(t, Config{Policy: new(counter), Delay: 5, Faults: script(t, text)}, 10)
		if r.Lost < 50 || Quantile(r.Again, 1) > 2 || !slices.Equal(r.Again, r.AgainDue) {
			t.Errorf("%s: %d lost, repeated up to %d ticks after the estimate, want 2", text, r.Lost,
				Quantile(r.Again, 1))
		}
	}
	r := mustRun(t, Config{
		Policy: new(counter),
		Delay:  5,
		Faults: script(t, "faults: [{kind: drop_observation, share: 0.2}, {kind: drop_chunk, share: 0.2}, {kind: "+
			"spike, at: 1500ms, delay: 500ms, every: 3s}]"),
	}, 30)
	if r.Lost < 150 || Quantile(r.AgainDue, 1) > 2 || Quantile(r.Again, 1) <= 2 {
		t.Errorf("%d lost, repeated up to %d ticks after the estimate, %d of them due, want more than 2, and 2", r.Lost,
			Quantile(r.Again, 1), Quantile(r.AgainDue, 1))
	}
}

func TestSeams(t *testing.T) {
	var s seams
	at := func(pan, elbow float64) (g [sim.DOF]float64) { g[0], g[2] = pan, elbow; return g }
	for i, step := range []struct {
		goal [sim.DOF]float64
		seq  uint64
		jump float64
		seam bool
	}{
		{at(0, 0), 1, 0, false}, {at(1, 0), 1, 1, false}, {at(2, 0), 1, 0, false},
		{at(3, 0), 2, 0, true}, // the loop continues as before
		{at(9, 0), 3, 5, true}, {at(15, 1), 3, 1, false},
	} {
		jump, seam := s.step(step.goal, step.seq)
		if seam != step.seam || i > 0 && jump != step.jump {
			t.Errorf("step %d: %v, %v, want %v, %v", i, jump, seam, step.jump, step.seam)
		}
	}
	s.hold(at(15, 1))
	if jump, seam := s.step(at(15, 1), 4); jump != 0 || !seam {
		t.Errorf("from a standstill: %v, %v, want 0, true", jump, seam)
	}
}

// answers returns the number of answers with the named outcome.
func answers(r *Result, name string) (n int) {
	for outcome, count := range r.Outcomes {
		if outcome.String() == name {
			n += count
		}
	}
	return n
}
