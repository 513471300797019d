package episode

import (
	"time"

	"edgert/internal/exit"
	"edgert/record"
)

// LeRobot's rollout strategies.
const (
	Base      = "base"      // episodes where a person begins them, or --episodes says so
	Sentry    = "sentry"    // everything is on record, one episode behind the other
	Highlight = "highlight" // what is in memory is saved when a person says so
	DAgger    = "dagger"    // a person corrects, at a leader arm
	Episodic  = "episodic"  // so many episodes, and back to where the arm was armed between them
)

// MaxCount is the most --episodes.
const MaxCount = 100_000

// The times that --episodes and --strategy sentry have where none is given.
const (
	usualTime  = 30 * time.Second
	usualReset = 10 * time.Second
)

// Plan is what the flags say of episodes.
type Plan struct {
	Strategy string         // empty: Base
	Count    int            // --episodes; 0: a person begins each, or, for Sentry, there is no end
	Time     *time.Duration // --episode-time; 0: an episode ends when somebody says so; nil: not given
	Reset    *time.Duration // --reset-time; nil: not given
	Leader   bool           // a person can take the arm over
}

// scheduled reports whether episodes begin by themselves.
func (p *Plan) scheduled() bool { return p.Count > 0 && p.Strategy != DAgger || p.Strategy == Sentry }

// rolling reports whether one episode begins where another ends.
func (p *Plan) rolling() bool { return p.Strategy == Sentry }

// times are the plan's, with what was not given; 0: no end.
func (p *Plan) times() (episode, reset time.Duration) {
	if p.scheduled() {
		episode, reset = usualTime, usualReset
	}
	if p.Time != nil {
		episode = *p.Time
	}
	if p.Reset != nil {
		reset = *p.Reset
	}
	return episode, reset
}

// Check refuses a plan that cannot be carried out, and returns the record that it wants:
// episodes are read from what is written all the time. given: --record was.
func (p *Plan) Check(mode record.Mode, given bool) (record.Mode, error) {
	usage := func(format string, args ...any) error { return exit.Errorf(exit.Usage, format, args...) }
	switch {
	case p.Strategy == DAgger && !p.Leader:
		return mode, usage("--strategy dagger wants a leader arm beside the policy, to correct it with: give its port as --leader")
	case p.Strategy == DAgger && (p.Time != nil || p.Reset != nil):
		return mode, usage("--episode-time and --reset-time say nothing to --strategy dagger, whose episodes are the corrections: leave them out")
	case p.Strategy == Highlight && mode != record.Ring:
		return mode, usage("--strategy highlight saves what --record ring has in memory, and --record is %s: leave --record out", mode)
	case p.Strategy == Highlight && (p.Count > 0 || p.Time != nil || p.Reset != nil):
		return mode, usage("--strategy highlight has no episodes: leave --episodes, --episode-time and --reset-time out, or choose --strategy episodic")
	case p.Strategy == Episodic && p.Count == 0:
		return mode, usage("--strategy episodic wants --episodes N: how many")
	case p.rolling() && p.Time != nil && *p.Time == 0:
		return mode, usage("--strategy sentry wants an --episode-time above 0: where one episode ends, the next begins")
	case p.rolling() && p.Reset != nil:
		return mode, usage("--reset-time says nothing to --strategy sentry, whose episodes follow each other at once: leave it out")
	case p.Reset != nil && !p.scheduled():
		return mode, usage("--reset-time is between --episodes N: add that, or begin each episode with edge-rt ctl start")
	case !p.scheduled() && p.Strategy != DAgger:
		return mode, nil
	case given && mode != record.All:
		return mode, usage("--record is %s, and episodes want all: what lies in memory is no data set. Leave --record out", mode)
	}
	return record.All, nil
}
