package safety

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"edgert/internal/exit"
	"edgert/servo/referee"
	"edgert/servo/servosim"
)

// Bounds of a soak.
const (
	soakMax  = 24 * time.Hour
	backIn   = 10 * time.Second // that an arm may take to move again, once an operator agreed
	moments  = 2 * time.Second  // of peace between two faults, at most
	longest  = 1.3              // of a fault's own length
	shortest = 0.2
	soakKept = 400 // results
)

// runSoak plays the faults that may be mixed at random on one arm, one after the
// other, with an operator who agrees and somebody who starts edge-rt again. The same
// seed gives the same faults.
func runSoak(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Soak < time.Second || cfg.Soak > soakMax {
		return nil, exit.Errorf(exit.Usage, "--soak is %v, want 1s to %v", cfg.Soak, soakMax)
	}
	var faults []*Fault
	for i := range Faults {
		if f := &Faults[i]; f.Soak && (len(cfg.Only) == 0 || slices.Contains(cfg.Only, f.Name)) {
			faults = append(faults, f)
		}
	}
	if len(faults) == 0 {
		return nil, exit.Errorf(exit.Usage, "--only: none of %s can be mixed; --list says which can", strings.Join(cfg.Only, ", "))
	}
	dir, err := os.MkdirTemp("", "bench-safety-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s := &soak{run: run{ctx: ctx, bin: cfg.Bin, tree: cfg.Tree, dir: dir, fault: &Fault{}}, cfg: &cfg, dice: rand.New(rand.NewPCG(cfg.Seed, 0))}
	defer s.close()
	cfg.Progress("seed %d\n", cfg.Seed)
	if err := s.open(); err != nil {
		return nil, err
	}
	s.rest()
	if err := s.begin(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(cfg.Soak); time.Now().Before(end) && ctx.Err() == nil; {
		if err := s.once(faults[s.dice.IntN(len(faults))]); err != nil {
			return nil, err
		}
	}
	s.result = Result{Name: "end", Title: "SIGTERM at the end"}
	s.at = now()
	if err := s.end(); err != nil {
		return nil, err
	}
	s.result.Did, s.result.Who = tell(s.arm.history.phases(s.at, s.ended)), whoStarts
	s.note()
	return &Report{Bench: "safety", Version: cfg.Version, Seed: cfg.Seed, Results: s.results}, context.Cause(ctx)
}

// soak is one under way.
type soak struct {
	run
	cfg     *Config
	dice    *rand.Rand
	before  referee.Verdict
	results []Result
}

// begin starts the edge, again where a busy host kept the motors from answering.
func (s *soak) begin() (err error) {
	for range tries {
		s.arm.referee.NewRun(now())
		s.ended = 0
		if err = s.start(); err != nil {
			return err
		}
		if err = s.armed(); err == nil {
			return nil
		}
		if s.edge.Running() {
			s.edge.Kill()
		}
		s.look()
		s.sleep(windDown)
	}
	return fmt.Errorf("%w%s", err, s.words())
}

// once plays one fault, scaled in time, and brings the arm back.
func (s *soak) once(f *Fault) error {
	scaled := *f
	scale := shortest + (longest-shortest)*s.dice.Float64()
	scaled.For = time.Duration(float64(f.For) * scale)
	scaled.Script = slices.Clone(f.Script)
	for i := range scaled.Script {
		l := &scaled.Script[i]
		l.From, l.Until = time.Duration(float64(l.From)*scale), time.Duration(float64(l.Until)*scale)
	}
	s.fault = &scaled
	s.sleep(time.Duration(s.dice.Int64N(int64(moments))))
	s.result, s.at = Result{Name: f.Name, Title: f.Title}, now()
	if len(scaled.Script) > 0 {
		if err := s.arm.bus.Inject(servosim.Script{Seed: s.dice.Uint64(), Faults: scaled.Script}); err != nil {
			return err
		}
	}
	if scaled.Do != nil {
		if err := scaled.Do(&s.run); err != nil && !errors.Is(err, errNotHere) && s.edge.Running() {
			return fmt.Errorf("%s: %w%s", f.Name, err, s.words())
		}
	}
	s.sleep(scaled.For - now().Sub(s.at))
	s.takeBack()
	s.sleep(calm)
	s.shown = now()
	err := s.bringBack()
	s.note()
	return err
}

// bringBack gets an arm to move again that does not by itself.
func (s *soak) bringBack() error {
	s.result.Did = s.did()
	moving := func() bool {
		s.look()
		return s.ended != 0 || s.arm.stiff() == len(s.arm.robot.Motors) && s.arm.history.moves(now().Add(-calm), now())
	}
	if until(backIn/5, "", moving) == nil && s.ended == 0 {
		s.result.Who = whoItself
		return nil
	}
	if s.ended == 0 {
		s.arm.referee.Consent(now())
		s.arm.referee.Paused(now(), false)
		if err := s.edge.ctl("resume"); err != nil && s.edge.Running() {
			return err
		}
		if until(backIn, "", moving) == nil && s.ended == 0 {
			s.result.Who = whoOperator
			return nil
		}
	}
	s.result.Who = whoStarts
	if s.ended == 0 {
		s.result.Who = whoNobody
		if err := s.edge.signal(syscall.SIGTERM); err != nil {
			return err
		}
		if until(exitLimit, "", func() bool { s.look(); return s.ended != 0 }) != nil {
			s.edge.Kill()
			s.look()
		}
	}
	s.sleep(windDown)
	_ = s.edge.Wait(exitLimit) // and for its guard
	return s.begin()
}

// note keeps what the referee has found since the last time.
func (s *soak) note() {
	v := s.arm.referee.Verdict()
	was := s.before
	s.before = v
	found := v
	for rule := range found.Violations {
		found.Violations[rule] -= was.Violations[rule]
	}
	found.Kept = v.Kept[len(was.Kept):]
	r := &s.result
	r.Violations, r.Kept = tally(found, s.at)
	r.StepCounts, r.StepDegrees, r.StepJoint, r.Goals = v.Longest.Counts, round(v.Longest.Degrees, 1), v.Longest.Joint, v.Goals-was.Goals
	r.SafeMS, r.SafeMaxMS = -1, -1
	r.Seconds = now().Sub(s.at).Seconds()
	s.cfg.Progress("%s: %s; %s; violations: %s\n", r.Name, r.Did, r.Who, r.broken())
	for _, k := range r.Kept[:min(len(r.Kept), 3)] {
		s.cfg.Progress("    %s\n", k)
	}
	if len(s.results) < soakKept || r.Broken() > 0 {
		s.results = append(s.results, *r)
	}
}
