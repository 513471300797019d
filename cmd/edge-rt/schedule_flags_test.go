package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/internal/terminal"
)

func TestScheduleFlagsThatSayNothing(t *testing.T) {
	refuses(t, `
		--schedule rtc --s-min 5 => 2 --s-min|rtc|drtc
		--buffer-time 1s => 2 --buffer-time|drtc|rtc, append, v1
		--schedule sync --aggregate-fn-name average => 2 --aggregate-fn-name|sync|async
		--schedule append --prefix rows => 2 --prefix|append
		--schedule v1 --similarity 0 => 2 --similarity|async
		--chunk-size-threshold 0.5 => 2 --chunk-size-threshold|async
		--cooldown off => 2 --cooldown off|--compat
		--cooldown never => 2 never|runway, counts, merge, off
		// a given flag is refused even if it has its default value
		--schedule rtc --cooldown runway => 2 --cooldown|rtc|drtc
		--compat --cooldown runway => 2 --cooldown runway|--compat|counts, merge, off
		--aggregate-fn-name weighted_average => 2 --aggregate-fn-name|drtc|async, v1
		--reconnect-initial-backoff 5s --reconnect-max-backoff 1s => 2 backoff is 5s|at most --reconnect-max-backoff, 1s
		--schedule rtc --compat --epsilon 1 => 2 --epsilon|rtc --compat|--request-timeout
		--schedule guess --cooldown runway => 2 guess|drtc, rtc
		--estimator-k 2 => 2 --estimator-k|jk
		--estimator fixed --estimator-k 2 => 2 --estimator-k|jk
		--estimator jk --estimator-fixed 1s => 2 --estimator-fixed|fixed
		--schedule sync --compat --estimator jk => 2 --estimator|sync --compat
		--estimator ewma => 2 ewma|jk|lerobot
		--filter-gain 1.4 => 2 cutoff
		--filter-cutoff 3 --filter-gain 2 => 2 --filter-gain is 2|less than 2
		--fps 60 --filter-cutoff 40 => 2 40 Hz|29.7
		--interpolation-multiplier 0 => 2 is 0|ticks per action
		--fps 600 --interpolation-multiplier 2 => 2 1200 ticks per second
		--max-velocity -1 => 2 -1
		--schedule async --chunk-size-threshold 2 => 2 threshold is 2
		--schedule async --aggregate-fn-name median => 2 median|conservative
		--epsilon=-1 => 2 epsilon is -1
		--s-min 0 => 2 --s-min is 0
		--schedule rtc --buffer-time 0s => 2 --buffer-time is |0s|auto
		--schedule rtc --buffer-time= => 2 --buffer-time is |auto
		--schedule rtc --buffer-time 2m => 2 --buffer-time is |2m|up to 1m
		--schedule rtc --compat --buffer-time auto => 2 buffer time|not part of any original
		--buffer-time auto => 2 --buffer-time|drtc|rtc, append, v1
		--profile lte => 2 --profile|lte|wired, wifi or wan
		--estimator jk --estimator-k 0 => 2 --estimator-k is 0
		--estimator fixed --estimator-fixed 0s => 2 --estimator-fixed is 0
		--prefix maybe => 2 maybe|spans
		--record some => 2 --record|ring
		--record-size 5GB5 => 2 --record-size|5GB5|64MiB
		--record-size 63MiB => 2 --record-size|63MiB|at least 64MiB
	`, "--quiet", "--bus", "sim", "--connect", unreachable)
}

// A run accepts a flag that has a meaning for the schedule, even if the flag's value is its default or a
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

// A profile sets the limits that no flag sets. It sets the buffer's size only for a schedule with a
// buffer.
func TestProfile(t *testing.T) {
	for _, tt := range []struct {
		args     string
		timeout  time.Duration // timeout of a request
		degraded time.Duration
		backoff  time.Duration // longest wait between two attempts to connect
		buffer   time.Duration
	}{
		{"", 5 * time.Second, time.Second, 10 * time.Second, 0},
		{"--profile wired", 2 * time.Second, 300 * time.Millisecond, 2 * time.Second, 0},
		{"--profile wan --schedule rtc --request-timeout 7s", 7 * time.Second, 2 * time.Second, 10 * time.Second,
			chunk.AutoBuffer},
		{"--profile wifi --schedule v1", 5 * time.Second, time.Second, 5 * time.Second, 500 * time.Millisecond},
		{"--profile wifi --schedule rtc --buffer-time 1s --reconnect-max-backoff 1m", 5 * time.Second, time.Second,
			time.Minute, time.Second},
		{"--profile wan --schedule rtc --compat", 10 * time.Second, 2 * time.Second, 10 * time.Second, 0},
		{"--reconnect-max-backoff 100ms", 5 * time.Second, time.Second, 100 * time.Millisecond, 0},
		{"--reconnect-initial-backoff 1m", 5 * time.Second, time.Second, time.Minute, 0},
		{"--schedule append --buffer-time auto", 5 * time.Second, time.Second, 10 * time.Second, chunk.AutoBuffer},
	} {
		var c cli
		p := program.Program{
			Name:   "edge-rt",
			Env:    "PROFILE_TEST",
			Stdout: t.Output(),
			Stderr: t.Output(),
			Vars:   ctlHelp(),
		}
		if _, code, _ := p.Parse(&c, strings.Fields("--bus sim --quiet "+tt.args)); code != exit.Clean {
			t.Fatalf("%q: exit code %d", tt.args, code)
		}
		cfg, err := c.config(terminal.New(os.Stderr))
		if err = errors.Join(err, cfg.Check()); err != nil {
			t.Errorf("%q: %v", tt.args, err)
		}
		if cfg.RequestTimeout != tt.timeout || cfg.DegradedAfter != tt.degraded || cfg.Schedule.Buffer != tt.buffer ||
			cfg.ReconnectMaxBackoff != tt.backoff || tt.args == "" && (cfg.MaxOffline != time.Minute ||
			cfg.ReconnectInitialBackoff != 500*time.Millisecond) || cfg.Given.DegradedAfter ||
			cfg.Given.RequestTimeout != strings.Contains(tt.args, "--request-timeout") {
			t.Errorf("%q: %+v, want %+v", tt.args, cfg, tt)
		}
		if cfg.ReconnectInitialBackoff > cfg.ReconnectMaxBackoff {
			t.Errorf("%q: waits from %v to %v", tt.args, cfg.ReconnectInitialBackoff, cfg.ReconnectMaxBackoff)
		}
	}
}
