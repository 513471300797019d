package main

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/program"
)

// scheduleFlags are the flags that select the discipline (--schedule) and the stages after it. A flag is nil if it was
// not given, so that a run can refuse a given flag that has no meaning for the schedule.
type scheduleFlags struct {
	Schedule string `default:"drtc" help:"When to request a chunk and how to merge it: drtc (requests early, and again after a lost chunk; best under faults), rtc and append (LeRobot's engine with and without RTC), async (SmolVLA's client), v1 (LeRobot's first remote proposal), sync (waits for each chunk). docs/scheduling.md compares them."`
	Compat   bool   `help:"For comparisons: behave like the schedule's original, also where it is worse: a lost chunk costs --request-timeout, an idle start drops actions, prefixes are filled with zeros."`

	SMin      *int           `range:"1..1023;actions of a chunk" name:"s-min" placeholder:"N" help:"drtc: actions to run from each chunk before the next request; default: 0.4 of a chunk. Fewer: fresher actions, more requests."`
	Epsilon   *int           `range:"0..1023;ticks, fewer than a chunk has actions" help:"Ticks to wait for an answer beyond the latency estimate before the request is repeated; default 1." placeholder:"TICKS"`
	Prefix    *string        `help:"drtc: how the server learns which actions run meanwhile, so that the chunk continues them: rows (default; as the arm will run them), spans (references to its own answers, a few bytes), none." placeholder:"KIND"`
	Cooldown  *string        `help:"drtc: when a request without an answer is repeated: runway (default; after the latency estimate, or half of the remaining actions if that is sooner), counts (after the estimate, as in the paper), and with --compat merge (never before an answer) and off (on every tick)." placeholder:"MODE"`
	Estimator *string        `help:"How the round trip is predicted: jk (mean + K deviations), max_last_10 (the longest of ten; any number), fixed, lerobot (the longest ever). Default: the schedule's own." placeholder:"NAME"`
	K         *float64       `range:">0..100;deviations above the mean" name:"estimator-k" help:"jk: deviations above the mean; default 1.5. More: fewer repeated requests on an uneven network, later recovery." placeholder:"K"`
	Fixed     *time.Duration `range:">0s..1m;a round trip, such as 100ms" name:"estimator-fixed" help:"fixed: the round trip; default 100ms." placeholder:"TIME"`

	BufferTime         *string  `help:"rtc, append, v1: request when the remaining actions last no longer than this; default 500ms. It must exceed the round trip; auto follows it (twice the round trip, 100ms to 3s)." placeholder:"TIME"`
	ChunkSizeThreshold *float64 `range:"0..1;the share of a chunk that is left" help:"async: request when at most this share of a chunk is left; default 0.5." placeholder:"SHARE"`
	Similarity         *float64 `range:"0..;a distance in robot units, 0 lets all observations leave" help:"async: do not send an observation whose joints moved less (Euclidean, robot units); default 1, 0: send all." placeholder:"UNITS"`
	AggregateFnName    *string  `aliases:"aggregate" help:"async, v1: the action of a step that two chunks predict: weighted_average (default; 0.3 old + 0.7 new), latest_only, average, conservative, weighted:SHARE (share of the old, 0 to 1), temporal:DECAY (-1 to 10; row i of a chunk has the weight exp(-DECAY*i))." placeholder:"RULE"`
	ActionsPerChunk    *int     `range:"2..1024;actions of a chunk" help:"Use only the first N actions of each chunk; default: all." placeholder:"N"`
	ExecutionHorizon   *int     `range:"1..1024;actions of a chunk" help:"rtc, drtc: row of a chunk at which conditioning on the running actions ends; default: the policy's." placeholder:"N"`
	MaxEmptyCycles     int      `range:"0..100000;ticks, 0 never warns" default:"10" help:"Warn, with the cause, after so many ticks in a row without an action; 0: never." placeholder:"N"`

	FilterCutoff            float64  `range:"0..;Hz, 0 is no filter" placeholder:"HZ" help:"Low-pass filter of each joint, Butterworth, in Hz; 0: none. 3 at 60 actions per second is smooth and lags 0.1 s."`
	FilterOrder             *int     `range:"1..4;without a filter, leave --filter-cutoff out" placeholder:"N" help:"Order of the filter, 1 to 4; default 2."`
	FilterGain              *float64 `range:">0..<2;an arm does not move with a gain of 0, and never settles from 2 on" placeholder:"GAIN" help:"Gain of the filter, above 0 and below 2; default 1. Above 1 reduces the lag."`
	InterpolationMultiplier int      `range:"1..64;ticks per action" default:"1" help:"Ticks per action: the arm moves on a line between two actions; ticks per second are --fps times this."`
	MaxVelocity             float64  `range:"0..;0 is the robot's own limit" placeholder:"V" help:"Velocity limit of each joint, in robot units per second; 0: the robot's own limit."`
	MaxAcceleration         float64  `range:"0..;0 is no limit" placeholder:"A" help:"Acceleration limit of each joint, in robot units per second squared; 0: no limit."`
}

// apply puts the flags into the edge's configuration.
func (f *scheduleFlags) apply(cfg *edge.Config) (err error) {
	s := &cfg.Schedule
	s.Schedule = f.Schedule
	s.Compat = f.Compat
	s.Epsilon = program.ValueOr(f.Epsilon, chunk.DefaultEpsilon)
	s.SMin = program.ValueOr(f.SMin, 0)
	s.Prefix = program.ValueOr(f.Prefix, "")
	if f.BufferTime != nil {
		if s.Buffer, err = chunk.ParseBuffer(*f.BufferTime); err != nil {
			return exit.Errorf(exit.Usage, "--buffer-time %w", err)
		}
	}
	s.Threshold, s.Similarity = program.ValueOr(f.ChunkSizeThreshold, 0), program.ValueOr(f.Similarity, 0)
	if f.Similarity != nil && *f.Similarity == 0 {
		s.Similarity = -1 // every observation leaves
	}
	if f.ChunkSizeThreshold != nil && s.Threshold == 0 {
		s.Threshold = math.SmallestNonzeroFloat64 // the client then sends a request only when no action is left
	}
	if f.Estimator != nil {
		if err := chunk.CheckEstimator(*f.Estimator); err != nil {
			return exit.Errorf(exit.Usage, "--estimator: %w", err)
		}
	}
	s.Estimator = program.ValueOr(f.Estimator, "")
	s.EstimatorK = program.ValueOr(f.K, 0)
	s.EstimatorFixed = program.ValueOr(f.Fixed, 0)
	if f.Cooldown != nil && !slices.Contains(chunk.Cooldowns, *f.Cooldown) {
		return exit.Errorf(exit.Usage, "--cooldown is %q, want %s", *f.Cooldown, strings.Join(chunk.Cooldowns, ", "))
	}
	s.Cooldown = program.ValueOr(f.Cooldown, "")
	s.Aggregate = program.ValueOr(f.AggregateFnName, "")
	if err := chunk.CheckAggregate(s.Aggregate); err != nil {
		return exit.Errorf(exit.Usage, "--aggregate-fn-name: %w", err)
	}
	cfg.ActionsPerChunk = program.ValueOr(f.ActionsPerChunk, 0)
	s.PrefixEnd = program.ValueOr(f.ExecutionHorizon, 0)
	cfg.MaxEmptyCycles = f.MaxEmptyCycles
	if f.Epsilon != nil && f.Compat && f.Schedule != "drtc" && slices.Contains(chunk.Schedules, f.Schedule) {
		return exit.Errorf(exit.Usage, "--epsilon has no meaning for --schedule %s --compat, which waits for "+
			"--request-timeout or not at all", f.Schedule)
	}
	stages := &cfg.Stages
	stages.Cutoff = f.FilterCutoff
	stages.Order = program.ValueOr(f.FilterOrder, 0)
	stages.Gain = program.ValueOr(f.FilterGain, 0)
	stages.Multiplier = f.InterpolationMultiplier
	stages.Velocity = f.MaxVelocity
	stages.Accel = f.MaxAcceleration
	return nil
}
