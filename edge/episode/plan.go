package episode

import (
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
)

// LeRobot's rollout strategies.
const (
	Base      = "base"      // a person begins each episode, or --episodes schedules them
	Sentry    = "sentry"    // everything is on record, in consecutive episodes
	Highlight = "highlight" // the newest messages are in a ring in memory, which a person saves
	DAgger    = "dagger"    // a person corrects the policy with a leader arm
	Episodic  = "episodic"  // a number of episodes; between them the arm returns to the position in which it was armed
)

// Default times of scheduled episodes (--episodes and --strategy sentry).
const (
	usualTime  = 30 * time.Second
	usualReset = 10 * time.Second
)

// Plan holds the flags about episodes.
type Plan struct {
	Strategy string         // empty: Base
	Count    int            // --episodes; 0: a person begins each episode; for Sentry, no limit
	Time     *time.Duration // --episode-time; 0: a person ends each episode; nil: not given
	Reset    *time.Duration // --reset-time; nil: not given
	Leader   bool           // the robot has a leader arm for takeovers
}

// scheduled reports whether episodes begin without a person.
func (p *Plan) scheduled() bool { return p.Count > 0 && p.Strategy != DAgger || p.Strategy == Sentry }

// rolling reports whether the next episode begins at the end of the previous one.
func (p *Plan) rolling() bool { return p.Strategy == Sentry }

// times returns the plan's times with defaults; 0: no limit.
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

// Check refuses an impossible plan, and returns the record mode that the plan requires. An export
// reads episodes from a complete record (record.All). given reports that the user has set --record.
func (p *Plan) Check(mode record.Mode, given bool) (record.Mode, error) {
	usage := func(format string, args ...any) error { return exit.Errorf(exit.Usage, format, args...) }
	switch {
	case p.Strategy == DAgger && !p.Leader:
		return mode, usage("--strategy dagger wants a leader arm beside the policy, to correct it with: give its " +
			"port as --leader")
	case p.Strategy == DAgger && (p.Time != nil || p.Reset != nil):
		return mode, usage("--episode-time and --reset-time have no meaning for --strategy dagger, whose episodes " +
			"are the corrections: leave them out")
	case p.Strategy == Highlight && mode != record.Ring:
		return mode, usage("--strategy highlight saves what --record ring has in memory, and --record is %s: leave "+
			"--record out", mode)
	case p.Strategy == Highlight && (p.Count > 0 || p.Time != nil || p.Reset != nil):
		return mode, usage("--strategy highlight has no episodes: leave --episodes, --episode-time and --reset-time " +
			"out, or choose --strategy episodic")
	case p.Strategy == Episodic && p.Count == 0:
		return mode, usage("--strategy episodic wants --episodes N: how many")
	case p.rolling() && p.Time != nil && *p.Time == 0:
		return mode, usage("--strategy sentry wants an --episode-time above 0: where one episode ends, the next begins")
	case p.rolling() && p.Reset != nil:
		return mode, usage("--reset-time has no meaning for --strategy sentry, whose episodes follow each other at " +
			"once: leave it out")
	case p.Reset != nil && !p.scheduled():
		return mode, usage("--reset-time is between --episodes N: add that, or begin each episode with edge-rt ctl " +
			"start")
	case !p.scheduled() && p.Strategy != DAgger:
		return mode, nil
	case given && mode != record.All:
		return mode, usage("--record is %s, and episodes want all: what lies in memory is no data set. Leave "+
			"--record out", mode)
	}
	return record.All, nil
}
