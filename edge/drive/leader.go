package drive

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
)

// LeaderOpening opens the leader of one part of a robot.
type LeaderOpening struct {
	Places []device.Place // of all parts of the leader
	Part   int            // index in Places
	Clock  rt.Clock
	Push   bool // as in leader.Config
	Say    func(warn bool, text string)

	// Open opens the arm at its place.
	Open func(*device.Place, *servo.ArmConfig) (*servo.Arm, error)

	// Opened gets the arm as soon as it is open. The caller closes it, also after an error of Leader.
	Opened func(*hotplug.Arm)
}

// Leader opens and measures the leader, which is limp except for its triggers.
func (o *LeaderOpening) Leader(ctx context.Context) (*leader.Leader, error) {
	place := &o.Places[o.Part]
	cfg, err := place.Config(place.Bus, o.Clock)
	if err != nil {
		return nil, place.Named(err)
	}
	arm, err := o.openLimp(place, &cfg)
	if err != nil {
		return nil, device.Swapped(o.Places, o.Part, cfg, err)
	}
	for _, note := range arm.Notes() {
		o.Say(true, "the leader: "+note)
	}
	hot := hotplug.New(arm, cfg, o.Clock)
	o.Opened(hot)
	if err := device.Swapped(o.Places, o.Part, cfg, nil); err != nil {
		return nil, err
	}
	every, err := measureLeader(ctx, arm, o.Clock)
	if err == nil {
		err = exit.With(exit.Absent, arm.HoldTriggers())
	}
	if err != nil {
		return nil, place.Named(err)
	}
	return leader.New(leader.Config{
		Arm:   hot,
		Part:  place.Part,
		Robot: place.Robot,
		Clock: o.Clock,
		Every: every,
		Push:  o.Push,
		Say:   o.Say,
	}), nil
}

// openLimp opens the arm and switches its torque off, because a killed run may have left it on. If motors under torque
// have refused settings, openLimp opens the arm again, and the limp motors accept them.
func (o *LeaderOpening) openLimp(place *device.Place, cfg *servo.ArmConfig) (*servo.Arm, error) {
	for {
		arm, err := o.Open(place, cfg)
		if err != nil {
			return nil, err
		}
		if err := arm.TorqueOff(); err != nil {
			return nil, exit.With(exit.Absent, errors.Join(err, arm.Close()))
		}
		if len(arm.Unconfigured()) == 0 {
			return arm, nil
		}
		arm.Close() // the next opening writes the settings that the motors refused under torque
	}
}

// measureLeader returns the interval at which the leader is read. Like BusCheck it measures again while
// other programs delay this one.
func measureLeader(ctx context.Context, arm *servo.Arm, clock rt.Clock) (every time.Duration, err error) {
	for again := 0; ; again++ {
		all, err := MeasureUntil(arm, func(all servo.Measurement) bool {
			every, err := leader.Interval(all.P99)
			return all.Clean > 0 && err == nil && every == leader.ReadEvery && arm.CheckLosses(all) == nil
		})
		if err != nil {
			return 0, err
		}
		every, err = leader.Interval(all.P99)
		lost := arm.CheckLosses(all)
		_, slow := leader.Interval(all.P50)
		err = cmp.Or(exit.With(exit.Absent, lost), exit.With(exit.Config, err))
		if err == nil || again == retries || lost == nil && slow != nil || ctx.Err() != nil {
			return every, err
		}
		clock.SleepUntil(clock.Now().Add(retryPause))
	}
}
