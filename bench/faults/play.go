// Package faults runs all schedules of chunks through the same faults and compares the results.
//
// A Scenario (scenario.go) is a script of faults (sim/netfault). Seed and tick determine the faults, which
// are therefore the same for all contenders, so that figures can be compared episode by episode. A Contender
// (contender.go) is a discipline of package chunk with its settings. Play (play.go) takes every contender
// through every scenario in virtual time (sim/fleet): loop, discipline, policy, pictures and messages are
// real; clock, bus and network are simulated. Live (live.go) plays episodes on the real edge-rt and
// lean-server, and reads their outputs (outcome.go).
//
// The outcomes become metrics with their intervals (stats.go) and a Report (report.go): a table,
// JSON, one CSV row per tick with the DRTC program's columns (csv.go), and a page (page.go) with
// the figures of episodes (plot.go).
package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/sim/fleet"
)

// job is one episode of one contender in one scenario.
type job struct{ scenario, contender, episode int }

// cell returns the index of a contender's results in a scenario; all contenders of the first scenario come first.
func (c *Config) cell(scenario, contender int) int { return scenario*len(c.Contenders) + contender }

// Play runs the comparison in virtual time.
func Play(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := policy.OpenRuntime(cfg.ORT, "cpu"); err != nil {
		return nil, exit.With(exit.Config, err)
	}
	b := newComparison(&cfg)
	b.player = func(int) (player, error) { return &virtualPlayer{cfg: &cfg, open: map[bool]*fleet.Exported{}}, nil }
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return b.report(), nil
}

// player plays episodes, for one worker.
type player interface {
	play(j job) (fleet.Outcome, []fleet.Tick, error)
	close()
}

// comparison distributes the jobs to its workers and collects the outcomes.
type comparison struct {
	cfg     *Config
	began   time.Time
	player  func(worker int) (player, error)
	results [][]fleet.Outcome // [cell][episode]
	traces  [][]fleet.Tick    // [cell]: the ticks of the first episode

	mu     sync.Mutex
	next   int   // guarded by mu: the next job
	done   int   // guarded by mu: number of episodes played
	rounds []int // guarded by mu, [episode]: number of cells that have played the episode
	logged time.Time
}

func newComparison(cfg *Config) *comparison {
	c := &comparison{cfg: cfg, began: time.Now(), rounds: make([]int, cfg.Episodes)}
	c.results, c.traces = make([][]fleet.Outcome, c.cells()), make([][]fleet.Tick, c.cells())
	for i := range c.results {
		c.results[i] = make([]fleet.Outcome, cfg.Episodes)
	}
	return c
}

// run starts the workers and waits for them. It then sets the number of episodes to the number that
// every cell has played, because an interrupt may have stopped the workers earlier. An interrupt
// before every cell has played two episodes is an error.
func (c *comparison) run(ctx context.Context) error {
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var workers sync.WaitGroup
	for worker := range c.cfg.Workers {
		workers.Go(func() {
			if err := c.work(working, worker); err != nil {
				fail(err)
			}
		})
	}
	workers.Wait()
	interrupted := context.Cause(ctx)
	if failed := context.Cause(working); interrupted == nil && failed != nil {
		return failed
	}
	whole := 0
	for whole < len(c.rounds) && c.rounds[whole] == c.cells() {
		whole++
	}
	c.cfg.Episodes = whole - whole%c.cfg.round()
	if interrupted != nil && c.cfg.Episodes < 2 {
		return fmt.Errorf("interrupted before every cell has played two episodes: nothing to report: %w", interrupted)
	}
	return nil
}

func (c *comparison) cells() int { return len(c.cfg.Scenarios) * len(c.cfg.Contenders) }

// nextJob returns the next job. The jobs of one episode, for all contenders in all scenarios, come before those of the
// next, so that after an interrupt the episodes are still paired.
func (c *comparison) nextJob() (j job, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cells := c.cells()
	if c.next >= cells*c.cfg.Episodes {
		return job{}, false
	}
	late := c.cfg.Limit > 0 && time.Since(c.began) > c.cfg.Limit
	if played := c.next / cells; late && c.next%cells == 0 && played >= 2 && played%c.cfg.round() == 0 {
		return job{}, false
	}
	n := c.next
	c.next++
	return job{n % cells / len(c.cfg.Contenders), n % len(c.cfg.Contenders), n / cells}, true
}

// progress is the interval of lines of progress.
const progress = 5 * time.Second

func (c *comparison) finished(j job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	c.rounds[j.episode]++
	if now := time.Now(); now.Sub(c.logged) > progress {
		c.logged = now
		all := c.cells() * c.cfg.Episodes
		c.cfg.Progress("%d of %d episodes, %.0f s\n", c.done, all, now.Sub(c.began).Seconds())
	}
}

// work plays jobs until no job is left.
func (c *comparison) work(ctx context.Context, worker int) error {
	players, err := c.player(worker)
	if err != nil {
		return err
	}
	defer players.close()
	for ctx.Err() == nil {
		j, ok := c.nextJob()
		if !ok {
			return nil
		}
		outcome, trace, err := players.play(j)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil // the interrupt may have ended the episode early
		}
		cell := c.cfg.cell(j.scenario, j.contender)
		c.results[cell][j.episode] = outcome
		if j.episode == 0 {
			c.traces[cell] = trace
		}
		c.finished(j)
	}
	return nil
}

// virtualPlayer keeps one worker's policies.
type virtualPlayer struct {
	cfg  *Config
	open map[bool]*fleet.Exported // policies by Contender.Plain
}

func (p *virtualPlayer) close() {
	for _, e := range p.open {
		e.Model.Close()
	}
}

func (p *virtualPlayer) policy(plain bool) (*fleet.Exported, error) {
	if e := p.open[plain]; e != nil {
		return e, nil
	}
	dir := p.cfg.Bundle
	if plain {
		dir = p.cfg.Plain
	}
	b, err := policy.LoadBundle(dir)
	if err != nil {
		return nil, exit.With(exit.Config, err)
	}
	m, err := b.Open(policy.Options{})
	if err != nil {
		return nil, exit.With(exit.Config, err)
	}
	p.open[plain] = fleet.NewExported(m)
	return p.open[plain], nil
}

// play runs one episode. It returns the ticks only for the first episode of each cell.
func (p *virtualPlayer) play(j job) (fleet.Outcome, []fleet.Tick, error) {
	contender, cfg := p.cfg.Contenders[j.contender], p.cfg
	exported, err := p.policy(contender.Plain)
	if err != nil {
		return fleet.Outcome{}, nil, err
	}
	quality := contender.quality(cfg.Quality)
	picture, err := bench.PictureBytes(max(cfg.Cameras.W, 1), max(cfg.Cameras.H, 1), quality)
	if err != nil {
		return fleet.Outcome{}, nil, err
	}
	var trace []fleet.Tick
	run := fleet.Config{
		Policy:   exported,
		Ticks:    int((cfg.Duration + fleet.Period/2) / fleet.Period),
		Schedule: contender.Schedule,
		Network:  *cfg.Network,
		Compute:  *cfg.Compute,
		Faults:   cfg.Scenarios[j.scenario].Script,
		Rules:    worlds[cfg.World],
		Quality:  quality,
		Beside:   cfg.Cameras.N * picture,
		Counts:   true,
	}
	if j.episode == 0 {
		run.Trace = func(t *fleet.Tick) { trace = append(trace, *t) }
	}
	robot, err := fleet.Open(run)
	if errors.Is(err, fleet.ErrConfig) { // for example an s_min beyond the policy's horizon
		return fleet.Outcome{}, nil, exit.Errorf(exit.Usage, "--schedule %s: %w", contender.Name, err)
	} else if err != nil {
		return fleet.Outcome{}, nil, fmt.Errorf("%s: %w", contender.Name, err)
	}
	defer robot.Close()
	outcome, err := robot.Play(cfg.episode(j.episode))
	return outcome, trace, err
}
