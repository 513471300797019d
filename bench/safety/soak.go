package safety

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/stage"
)

// Bounds of a soak.
const (
	backLimit = 10 * time.Second // longest time until an arm moves again after an operator's permission
	pauseMax  = 2 * time.Second  // longest time between two faults
	scaleMin  = 0.2              // a fault lasts from scaleMin to scaleMax times its own duration
	scaleMax  = 1.3
	soakKept  = 400 // from this number of results on, only those with violations are kept
)

// soak is a soak under way.
type soak struct {
	run
	random  *rand.Rand
	before  []referee.Verdict // verdict on each bus before the present fault
	results []Result
}

// playSoak plays random faults one after the other on one robot. After each fault it acts as the
// operator, or starts edge-rt again, if necessary. Equal seeds give equal faults.
func playSoak(ctx context.Context, cfg *Config, dir string) ([]Result, error) {
	mixed := slices.DeleteFunc(cfg.selected(), func(f fault) bool { return !f.Soak })
	if len(mixed) == 0 {
		return nil, exit.Errorf(exit.Usage, "--only: %s cannot be mixed; --list shows the faults that can",
			strings.Join(cfg.Only, ", "))
	}
	s := &soak{run: run{
		ctx:   ctx,
		cfg:   cfg,
		dir:   dir,
		robot: cfg.robot,
		fault: &fault{},
	}, random: rand.New(rand.NewPCG(cfg.Seed, 0))}
	defer s.close()
	cfg.Progress("seed %d\n", cfg.Seed)
	if err := s.open(); err != nil {
		return nil, err
	}
	s.settle()
	if err := s.startArmed(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(cfg.Soak); time.Now().Before(end) && ctx.Err() == nil; {
		if err := s.playOne(mixed[s.random.IntN(len(mixed))]); err != nil {
			return nil, err
		}
	}
	s.result, s.at = Result{Name: "end", Title: "SIGTERM at the end"}, now()
	if err := s.stopEdge(); err != nil {
		return nil, err
	}
	s.sleep(torqueTime)
	_ = s.edge.Wait(exitLimit) // the edge has ended, but its watchdog process may still run
	s.until = s.ended
	s.result.Did, s.result.Who = s.did(), whoStarts
	s.keep()
	return s.results, context.Cause(ctx)
}

// startArmed starts the edge, and starts it again if the arm was not armed in time, because on a
// busy host the simulated motors may answer too late.
func (s *soak) startArmed() (err error) {
	for range tries {
		s.judges(func(j *referee.Referee) { j.NewRun(now()) })
		s.ended, s.idle = 0, false
		if err = s.start(); err != nil {
			return err
		}
		if err = s.waitArmed(); err == nil {
			return nil
		}
		if s.edge.Running() {
			s.edge.Kill()
		}
		s.sleep(torqueTime)
	}
	return fmt.Errorf("%w%s", err, s.lastLines())
}

// playOne plays one fault, scaled in time, and makes the arm move again.
func (s *soak) playOne(f fault) error {
	scale := scaleMin + (scaleMax-scaleMin)*s.random.Float64()
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) * scale) }
	f.For, f.Script = scaled(f.For), slices.Clone(f.Script)
	for i := range f.Script {
		l := &f.Script[i]
		l.From, l.Until = scaled(l.From), scaled(l.Until)
	}
	f.Pause = max(f.Pause, scaled(f.Pause))
	s.sleep(time.Duration(s.random.Int64N(int64(pauseMax))))
	s.fault = &f
	s.result = Result{Name: f.Name, Title: f.Title}
	s.at = now()
	s.over = 0
	seed := uint64(1)
	if len(f.Script) > 0 {
		seed = s.random.Uint64()
	}
	if err := s.begin(seed); err != nil && !errors.Is(err, errNotHere) && s.edge.Running() {
		return fmt.Errorf("%s: %w%s", f.Name, err, s.lastLines())
	}
	s.sleep(f.For - now().Sub(s.at))
	s.over = now()
	s.revert()
	s.sleep(stillTime)
	s.until = now()
	s.result.Did = s.did()
	err := s.bringBack()
	s.keep()
	return err
}

// bringBack makes an arm move: by itself, by the operator's command, or by a new start.
func (s *soak) bringBack() error {
	moves := func(limit time.Duration) bool {
		came := stage.Until(limit, func() bool {
			s.observe()
			return s.ended != 0 || s.movesSince(now().Add(-stillTime))
		})
		return came && s.ended == 0
	}
	if moves(backLimit / 5) {
		s.result.Who = whoItself
		return nil
	}
	if s.ended == 0 {
		if err := s.resume(); err != nil {
			return err
		}
		if moves(backLimit) {
			s.result.Who = whoOperator
			return nil
		}
	}
	s.result.Who = whoStarts
	if s.ended == 0 {
		s.result.Who = whoNobody
		if err := s.stopEdge(); err != nil {
			return err
		}
	}
	s.sleep(torqueTime)
	_ = s.edge.Wait(exitLimit) // also waits for its watchdog process
	return s.startArmed()
}

func (s *soak) keep() {
	after := s.verdicts()
	all := slices.Clone(after)
	for bus, was := range s.before {
		v := &all[bus]
		for rule := range v.Violations {
			v.Violations[rule] -= was.Violations[rule]
		}
		v.Kept, v.Goals = v.Kept[len(was.Kept):], v.Goals-was.Goals
	}
	s.before = after
	s.result.judged(combined(all), s.at)
	s.result.Seconds = now().Sub(s.at).Seconds()
	s.cfg.Progress("%s", s.result.progress())
	if len(s.results) < soakKept || s.result.violated() > 0 {
		s.results = append(s.results, s.result)
	}
}
