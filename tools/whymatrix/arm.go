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

const auditFile = safety.AuditFile

// The margins of a fault in time: it acts at once, and its effects may last.
const (
	before     = 200 * time.Millisecond
	afterwards = 2 * time.Second
)

type armFault struct {
	name     string
	want     []why.Cause
	noRecord string
}

// armFaults are the faults of bench safety, in its order, each with its expected causes. A fault
// that is missing here is not played.
var armFaults = []armFault{
	{"blip-one", one(why.Restarted), ""},
	{"blip-all", one(why.Restarted), ""},
	{"blip-tight", one(why.Restarted), ""},
	{"blip-loose", one(why.Restarted), ""},
	{"power-off", one(why.Restarted), ""},
	{"reboot", one(why.Restarted), ""},
	{"low-supply", one(why.Supply), ""},
	{"wrong-supply", []why.Cause{why.Supply, why.HeldJoints}, ""},
	{"unplug", one(why.Unplugged), ""},
	{"unplug-power", one(why.Restarted), ""},
	{"heat", one(why.HeatOrSupply), ""},
	{"encoder", one(why.Encoder), ""},
	{"overload", []why.Cause{why.Stalled, why.Overload}, ""}, // the gripper cannot close and becomes overloaded
	{"limp-unplug", []why.Cause{why.Limp, why.Unplugged}, ""},
	{"stuck", one(why.Stalled), ""},
	{"outside", one(why.OutsideRange), ""},
	{"silent-one", one(why.MotorSilent), ""},
	{"silent-two", one(why.BusSilent), ""},
	{"silent-all", one(why.BusSilent), ""},
	{"lost-1", one(why.RepliesLost), ""},
	{"lost-5", one(why.RepliesLost), ""},
	{"lost-20", one(why.RepliesLost), ""},
	{"spoilt-1", one(why.RepliesSpoilt), ""},
	{"spoilt-5", one(why.RepliesSpoilt), ""},
	{"spoilt-20", one(why.RepliesSpoilt), ""},
	{"noise", one(why.RepliesSpoilt), ""},
	{"flood", one(why.RepliesSpoilt), ""},
	{"echo", one(why.RepliesSpoilt), ""},
	{"wrong-baud", nil, "no record: the run never began"},
	{"router-loss", one(why.LinkLost), ""},
	{"cut-up", one(why.LinkSilent), ""},
	{"cut-down", one(why.LinkSilent), ""},
	{"blackout", one(why.LinkSilent), ""},
	{"garbage", one(why.StrangeAnswers), ""},
	{"nan", one(why.BadChunk), ""},
	{"wild", one(why.PolicyJump), ""},
	{"same-id", nil, ""},
	{"same-id-old", one(why.SameID), ""},
	{"server-kill", one(why.ServerGone), ""},
	{"server-hang", one(why.LinkSilent), ""},
	{"other-model", one(why.ServerRefuses), ""},
	{"camera-gone", one(why.CameraSilent), ""},
	{"bad-jpeg", one(why.CameraSpoilt), ""},
	{"pause-early", one(why.Paused), ""},
	{"pause", one(why.Paused), ""},
	{"pause-power", one(why.Restarted), ""},
	{"reset", one(why.NewEpisode), ""},
	{"sigterm", nil, ""},
	{"sigkill", one(why.Killed), ""},
	{"sigstop", one(why.Killed), ""},
	{"sigstop-short", one(why.MachineBusy), ""},
	{"hung-tick", one(why.TickHung), ""},
	{"suspend", one(why.Suspended), ""},
}

// fromTheStart are faults that begin before the arm is armed.
var fromTheStart = []string{"outside", "bad-jpeg", "pause-early", "blip-tight"}

func one(c why.Cause) []why.Cause { return []why.Cause{c} }

// busFaults is the last of armFaults that is a fault of the bus, or of a device on it.
const busFaults = "wrong-baud"

// jointFaults are those of them that do not affect the bus.
var jointFaults = []string{"low-supply", "heat", "encoder", "overload", "stuck", "outside"}

// allRows returns the faults that o names.
func allRows(o options) (rows []row) {
	bus := true
	for _, f := range armFaults {
		rows = append(rows, row{
			name:     f.name,
			want:     f.want,
			noRecord: f.noRecord,
			bus:      bus && !slices.Contains(jointFaults, f.name),
			arm:      true,
		})
		bus = bus && f.name != busFaults
	}
	for _, f := range messageFaults {
		rows = append(rows, row{name: f.name, title: f.title, want: f.want})
	}
	return slices.DeleteFunc(rows, func(r row) bool { return len(o.only) > 0 && !slices.Contains(o.only, r.name) })
}

// playArm plays the faults of bench safety among the selected rows.
func playArm(ctx context.Context, o options, dir string, rows []row) error {
	var names []string
	for i := range rows {
		if rows[i].arm && rows[i].again() {
			names = append(names, rows[i].name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	report, err := safety.Run(ctx, safety.Config{
		Only:    names,
		Workers: o.workers,
		Tree:    o.tree,
		Bin:     o.bin,
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
