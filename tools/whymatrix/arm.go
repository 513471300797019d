package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/safety"
	"github.com/edge-rt/edge-rt/record/why"
)

// How long before and after a fault a finding still belongs to the fault: the effects may last longer than the fault.
const (
	before     = 200 * time.Millisecond
	afterwards = 2 * time.Second
)

// injected returns the row of a fault of bench safety with its expected causes.
func injected(name string, want ...why.Cause) row { return row{name: name, want: want, arm: true} }

// ofBase returns the row of a fault that needs a robot with a base.
func ofBase(name string, want ...why.Cause) row {
	r := injected(name, want...)
	r.base = true
	return r
}

// armFaults are the faults of bench safety, in its order. A fault that is missing here is not played.
var armFaults = []row{
	injected("blip-one", why.Restarted),
	injected("blip-all", why.Restarted),
	injected("blip-tight", why.Restarted),
	injected("blip-loose", why.Restarted),
	injected("power-off", why.Restarted),
	injected("reboot", why.Restarted),
	injected("low-supply", why.Supply),
	injected("wrong-supply", why.Supply, why.HeldJoints),
	injected("unplug", why.Unplugged),
	injected("unplug-power", why.Restarted),
	injected("heat", why.HeatOrSupply),
	injected("encoder", why.Encoder),
	injected("overload", why.Stalled, why.Overload), // the gripper cannot close and becomes overloaded
	injected("limp-unplug", why.Limp, why.Unplugged),
	injected("stuck", why.Stalled),
	injected("outside", why.OutsideRange),
	injected("silent-one", why.MotorSilent),
	injected("silent-two", why.BusSilent),
	injected("silent-all", why.BusSilent),
	injected("lost-1", why.RepliesLost),
	injected("lost-5", why.RepliesLost),
	injected("lost-20", why.RepliesLost),
	injected("spoilt-1", why.RepliesSpoilt),
	injected("spoilt-5", why.RepliesSpoilt),
	injected("spoilt-20", why.RepliesSpoilt),
	injected("noise", why.RepliesSpoilt),
	injected("flood", why.RepliesSpoilt),
	injected("echo", why.RepliesSpoilt),
	{name: "wrong-baud", noRecord: "no record: the run never began", arm: true},
	injected("router-loss", why.LinkLost),
	injected("cut-up", why.LinkSilent),
	injected("cut-down", why.LinkSilent),
	injected("blackout", why.LinkSilent),
	injected("garbage", why.StrangeAnswers),
	injected("nan", why.BadChunk),
	injected("wild", why.PolicyJump),
	{name: "same-id", arm: true, jumps: true},
	injected("same-id-old", why.SameID),
	injected("server-kill", why.ServerGone),
	injected("server-hang", why.LinkSilent),
	injected("other-model", why.ServerRefuses),
	injected("camera-gone", why.CameraSilent),
	injected("bad-jpeg", why.CameraSpoilt),
	injected("pause-early", why.Paused),
	injected("pause", why.Paused),
	injected("pause-power", why.Restarted),
	injected("reset", why.NewEpisode),
	ofBase("rest", why.Between),
	ofBase("correct", why.NewEpisode),
	ofBase("stale", why.ActionTooOld),
	ofBase("zero", why.LinkSilent),
	ofBase("repeat", why.LinkSilent),
	injected("sigterm"),
	injected("sigkill", why.Killed),
	injected("sigstop", why.Killed),
	injected("sigstop-short", why.MachineBusy),
	injected("hung-tick", why.TickHung),
	injected("suspend", why.Suspended),
}

// fromTheStart are faults that begin before the arm is armed.
var fromTheStart = []string{"outside", "bad-jpeg", "pause-early", "blip-tight"}

// busFaults is the name of a row of armFaults. This row and the rows before it are faults of the
// bus or of a device on the bus, except jointFaults.
const busFaults = "wrong-baud"

// jointFaults are the rows up to busFaults that do not affect the bus.
var jointFaults = []string{"low-supply", "heat", "encoder", "overload", "stuck", "outside"}

// allRows returns the faults that the options name.
func allRows(o options) (rows []row) {
	bus := true
	for _, r := range armFaults {
		r.bus = bus && !slices.Contains(jointFaults, r.name)
		bus = bus && r.name != busFaults
		rows = append(rows, r)
	}
	for _, f := range messageFaults {
		rows = append(rows, row{name: f.name, title: f.title, want: f.want})
	}
	return slices.DeleteFunc(rows, func(r row) bool { return len(o.Only) > 0 && !slices.Contains(o.Only, r.name) })
}

// playArm plays the faults of bench safety among the selected rows: faults of a base on a LeKiwi, all other
// faults on an SO-101.
func playArm(ctx context.Context, o options, dir string, rows []row) error {
	var arm, base []string
	for i := range rows {
		switch {
		case !rows[i].arm || !rows[i].again():
		case rows[i].base:
			base = append(base, rows[i].name)
		default:
			arm = append(arm, rows[i].name)
		}
	}
	if err := playRobot(ctx, o, dir, rows, "so101", arm); err != nil {
		return err
	}
	return playRobot(ctx, o, dir, rows, "lekiwi", base)
}

// playRobot plays the named faults on one robot and notes the findings in their rows.
func playRobot(ctx context.Context, o options, dir string, rows []row, robot string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	report, err := safety.Run(ctx, safety.Config{
		Robot:   robot,
		Only:    names,
		Workers: o.Workers,
		Tree:    o.Tree,
		Bin:     o.Bin,
		Records: dir,
		Env:     bench.Env{},
	})
	if err != nil {
		return err
	}
	for _, res := range report.Results {
		r := &rows[slices.IndexFunc(rows, func(r row) bool { return r.arm && r.name == res.Name })]
		r.title = res.Title
		from, over := res.Began.Add(-before), res.Over.Add(afterwards)
		if slices.Contains(fromTheStart, res.Name) {
			from = 0
		}
		all, err := findings(filepath.Join(dir, res.Name))
		switch {
		case res.Failed:
			r.fail("not played: " + res.Note)
		case errors.Is(err, errNoRecord) && r.noRecord != "":
			r.played = true
		case err != nil:
			r.fail(err.Error())
		default:
			r.take(all, from, over)
		}
	}
	return nil
}
