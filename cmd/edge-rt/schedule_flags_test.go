package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge"
)

func TestScheduleFlagsThatSayNothing(t *testing.T) {
	for _, c := range []struct {
		args string
		says []string
	}{
		{"--schedule rtc --s-min 5", []string{"--s-min", "rtc", "drtc"}},
		{"--buffer-time 1s", []string{"--buffer-time", "drtc", "rtc, append, v1"}},
		{"--schedule sync --aggregate-fn-name average", []string{"--aggregate-fn-name", "sync", "async"}},
		{"--schedule append --prefix rows", []string{"--prefix", "append"}},
		{"--schedule v1 --similarity 0", []string{"--similarity", "async"}},
		{"--chunk-size-threshold 0.5", []string{"--chunk-size-threshold", "async"}},
		{"--cooldown off", []string{"--cooldown off", "--compat"}},
		{"--cooldown never", []string{"never", "runway, counts, merge, off"}},
		{"--schedule rtc --cooldown runway", []string{"--cooldown", "rtc", "drtc"}}, // a typed default is refused, too
		{"--compat --cooldown runway", []string{"--cooldown runway", "--compat", "counts, merge, off"}},
		{"--aggregate-fn-name weighted_average", []string{"--aggregate-fn-name", "drtc", "async, v1"}},
		{"--schedule rtc --compat --epsilon 1", []string{"--epsilon", "rtc --compat", "--request-timeout"}},
		{"--schedule guess --cooldown runway", []string{"guess", "drtc, rtc"}},
		{"--estimator-k 2", []string{"--estimator-k", "jk"}},
		{"--estimator fixed --estimator-k 2", []string{"--estimator-k", "jk"}},
		{"--estimator jk --estimator-fixed 1s", []string{"--estimator-fixed", "fixed"}},
		{"--schedule sync --compat --estimator jk", []string{"--estimator", "sync --compat"}},
		{"--estimator ewma", []string{"ewma", "jk", "lerobot"}},
		{"--filter-gain 1.4", []string{"cutoff"}},
		{"--filter-cutoff 3 --filter-gain 2", []string{"--filter-gain is 2", "less than 2"}},
		{"--fps 60 --filter-cutoff 40", []string{"40 Hz", "29.7"}},
		{"--interpolation-multiplier 0", []string{"is 0", "ticks per action"}},
		{"--fps 600 --interpolation-multiplier 2", []string{"1200 ticks per second"}},
		{"--max-velocity -1", []string{"-1"}},
		{"--schedule async --chunk-size-threshold 2", []string{"threshold is 2"}},
		{"--schedule async --aggregate-fn-name median", []string{"median", "conservative"}},
		{"--epsilon=-1", []string{"epsilon is -1"}},
		{"--s-min 0", []string{"--s-min is 0"}},
		{"--schedule rtc --buffer-time 0s", []string{"--buffer-time is 0"}},
		{"--estimator jk --estimator-k 0", []string{"--estimator-k is 0"}},
		{"--estimator fixed --estimator-fixed 0s", []string{"--estimator-fixed is 0"}},
		{"--prefix maybe", []string{"maybe", "spans"}},
		{"--record some", []string{"--record", "ring"}},
		{"--record-size 5GB5", []string{"--record-size", "5GB5", "64MiB"}},
		{"--record-size 63MiB", []string{"--record-size", "63MiB", "at least 64MiB"}},
	} {
		code, _, stderr := edgeRT(t, append([]string{"--quiet", "--bus", "sim", "--connect", unreachable},
			strings.Fields(c.args)...)...)
		if code != 2 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q; want 2 and one line", c.args, code, stderr)
		}
		for _, word := range c.says {
			if !strings.Contains(stderr, word) {
				t.Errorf("%s: the message lacks %q: %s", c.args, word, stderr)
			}
		}
	}
}

// A flag with a meaning for the schedule is accepted, also with its default value or with a
// meaningful zero.
func TestScheduleFlagsThatSaySomething(t *testing.T) {
	zero := 0
	two := 2
	counts := "counts"
	runway := "runway"
	weighted := "weighted_average"
	for _, c := range []struct {
		flags   scheduleFlags
		epsilon int
	}{
		{scheduleFlags{Schedule: "drtc"}, chunk.DefaultEpsilon},
		{scheduleFlags{Schedule: "drtc", Cooldown: &runway, Epsilon: &zero}, 0},
		{scheduleFlags{Schedule: "drtc", Cooldown: &counts, Epsilon: &two, Compat: true}, 2},
		{scheduleFlags{Schedule: "async", AggregateFnName: &weighted, Epsilon: &two}, 2},
		{scheduleFlags{Schedule: "v1", AggregateFnName: &weighted, Compat: true}, chunk.DefaultEpsilon},
	} {
		c.flags.InterpolationMultiplier = 1
		var cfg edge.Config
		if err := errors.Join(c.flags.apply(&cfg), cfg.CheckSchedule()); err != nil ||
			cfg.Schedule.Epsilon != c.epsilon {
			t.Errorf("%+v: %v, epsilon %d, want %d", c.flags, err, cfg.Schedule.Epsilon, c.epsilon)
		}
	}
}
