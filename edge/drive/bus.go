package drive

import (
	"context"
	"log/slog"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
)

const (
	measuredCycles = 100
	measureTries   = 3
	busShare       = 0.6 // share of the period that the slowest cycles may take

	retries    = 3 // repeated measurements of a bus that loses too many replies, or on a busy machine
	retryPause = 500 * time.Millisecond
)

// BusCheck refuses a bus that is too slow for a run, or loses too many replies. A simulated bus is
// slow only on a busy machine, so for it the check only warns.
type BusCheck struct {
	Period    time.Duration
	At        string // rate of the ticks, for messages, such as 30 ticks per second
	Cure      string // advice for a slow bus, after the advice about the adapter's latency timer
	Simulated bool
	Log       *slog.Logger

	// Clock times the pauses between two measurements. nil: the bus is not measured again, and lost replies are
	// tolerated as long as some cycles lose none.
	Clock rt.Clock
}

// MeasureUntil measures an arm's bus until fits accepts the sum of the measurements, at most measureTries times. Other
// programs may slow a measurement down.
func MeasureUntil(arm *servo.Arm, fits func(servo.Measurement) bool) (all servo.Measurement, err error) {
	for range measureTries {
		m, err := arm.Measure(measuredCycles)
		if err != nil {
			return all, exit.With(exit.Absent, err)
		}
		if all.Add(m); fits(all) {
			break
		}
	}
	return all, nil
}

// Measure measures the bus of an arm.
func (c *BusCheck) Measure(ctx context.Context, arm *servo.Arm) error {
	losses := func(m servo.Measurement) error { return c.losses(arm, m) }
	limit := time.Duration(busShare * float64(c.Period))
	all, err := MeasureUntil(arm, func(all servo.Measurement) bool {
		return ctx.Err() != nil || all.Clean > 0 && all.P99 <= limit && losses(all) == nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	busy := func(m servo.Measurement) bool { return m.P99 > limit && m.P50 <= limit }
	for again := 0; again < retries && !c.Simulated && c.Clock != nil && (losses(all) != nil || busy(all)); again++ {
		// During a pause, a motor that was silent for a moment answers again, and a machine finishes booting.
		if err := rt.Rest(ctx, c.Clock, retryPause); err != nil {
			return err
		}
		m, err := arm.Measure(measureTries * measuredCycles)
		if err != nil {
			return exit.With(exit.Absent, err)
		}
		all = m
	}
	unfit, want := losses(all), limit.Round(10*time.Microsecond)
	slow := all.Clean == 0 || all.P99 > limit
	switch {
	case c.Simulated && (slow || unfit != nil):
		c.Log.Warn("the simulated bus is slow: this machine is busy", slowness(all.P99, want, unfit)...)
	case unfit != nil:
		return exit.With(exit.Absent, unfit)
	case busy(all):
		return exit.Errorf(exit.Config,
			"the bus takes %v per cycle (p99), at %s it may take %v; half of its cycles take "+
				"%v: other programs delay this one: end them, see edge-rt doctor, %s",
			all.P99.Round(10*time.Microsecond),
			c.At, want, all.P50.Round(10*time.Microsecond), c.Cure)
	case slow:
		return exit.Errorf(exit.Config, "the bus takes %v per cycle (p99), at %s it may take %v: set the adapter's "+
			"latency timer to 1 ms, %s", all.P99.Round(10*time.Microsecond), c.At, want, c.Cure)
	}
	if motors, cure := arm.LossReport(all); c.Clock != nil && motors != "" && !c.Simulated {
		c.Log.Warn("the bus loses or spoils replies, at a rate that the run tolerates", "replies", motors,
			"damaged", all.Corrupt, "cure", cure)
	}
	return nil
}

// losses returns an error if the bus loses too many replies.
func (c *BusCheck) losses(arm *servo.Arm, m servo.Measurement) error {
	if c.Clock == nil && m.Clean > 0 {
		return nil
	}
	return arm.CheckLosses(m)
}

// slowness returns the log attributes for a simulated bus that exceeds the limits of a real one.
func slowness(took, want time.Duration, unfit error) []any {
	if unfit != nil {
		return []any{"why", unfit}
	}
	return []any{"cycle_p99", took.Round(10 * time.Microsecond), "want", want}
}
