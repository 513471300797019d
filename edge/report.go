package edge

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// jointLists returns the text of every bit set of joints, so that the log does not allocate.
func jointLists(r robot.Robot) []string {
	lists := make([]string, 1<<min(len(r.Motors), 8)) // a larger arm has texts for some sets only
	for set := range lists {
		lists[set] = r.Joints(robot.Joints(set))
	}
	return lists
}

func (e *Edge) joint(set int64) slog.Attr {
	if set >= 0 && set < int64(len(e.joints)) {
		return slog.String("joint", e.joints[set])
	}
	return slog.String("joint", e.robot.Joints(robot.Joints(set)))
}

// report logs an event without making garbage, since the arm still moves.
func (e *Edge) report(ev event.Event) {
	level, attrs := slog.LevelInfo, [4]slog.Attr{}
	n := 0
	switch ev.Code {
	case event.StateChanged:
		attrs[0] = slog.String("from", state(ev.A).String())
		attrs[1] = slog.String("to", state(ev.B).String())
		n = 2
	case event.BusLost:
		level = slog.LevelWarn
		attrs[0] = slog.Int64("silent_joints", ev.A)
		n = 1
	case event.TickOverrun:
		level, n = slog.LevelWarn, 2
		attrs[0], attrs[1] = slog.Duration("took", time.Duration(ev.A)), slog.Duration("host_took", time.Duration(ev.B))
	case event.BusBack:
		level = slog.LevelWarn
		n = e.reportBack(ev, &attrs)
	case event.JointHeld, event.ArmHeld:
		level = slog.LevelWarn
		n = e.reportHeld(ev, &attrs)
	case event.JointFrozen, event.JointOverloaded, event.JointBlind, event.JointLimp, event.JointStalled,
		event.JointMoved:
		level, n = slog.LevelWarn, 2
		attrs[0], attrs[1] = e.joint(ev.A), slog.Int64("joint_bits", ev.A)
	case event.Suspended:
		level = slog.LevelWarn
		attrs[0] = slog.Duration("for", time.Duration(ev.A))
		n = 1
	case event.JointWarned:
		level = slog.LevelWarn
		attrs[0] = e.joint(ev.A)
		attrs[1] = slog.Int64("joint_bits", ev.A)
		n = 4
		attrs[2], attrs[3] = slog.Int64("hottest_celsius", ev.B>>16),
			slog.Float64("lowest_volts", float64(ev.B&0xFFFF)/10)
	case event.PhaseChanged:
		attrs[0] = slog.String("from", mode(ev.A).String())
		attrs[1] = slog.String("to", mode(ev.B).String())
		n = 2
	case event.LeaderSilent:
		level = slog.LevelWarn
	case event.LeaderHeld, event.LeaderLeads: // only recorded: the leader's thread logs it, also outside a correction
		attrs[0], n = e.joint(ev.A), 1
		if ev.Code == event.LeaderHeld {
			attrs[1], n = slog.String("why", leader.Cause(ev.B).String()), 2
		}
		e.recording.Event(ev, slog.LevelWarn, attrs[:n])
		return
	case event.FirstRun:
		level, n = slog.LevelWarn, 3
		attrs[0], attrs[1] = slog.String("bundle", e.contract.SHA256),
			slog.String("speed", strconv.FormatInt(ev.B, 10)+" %")
		attrs[2] = slog.Duration("for", time.Duration(ev.A)*time.Millisecond)
	case event.FirstRunOver:
		e.drive.Go(e.noteRun)
	case event.TorqueOn, event.LeaderPushed, event.LeaderBack:
	default:
		return
	}
	e.recording.Event(ev, level, attrs[:n])
	e.log.LogAttrs(context.Background(), level, ev.Code.String(), attrs[:n]...)
}

// reportBack fills in the attributes of a bus that is back, and returns their number.
func (e *Edge) reportBack(ev event.Event, attrs *[4]slog.Attr) (n int) {
	if e.arm != nil {
		for _, note := range e.arm.Arm().Notes() { // results of opening the bus again
			e.log.Warn(note)
		}
	}
	attrs[0] = slog.String("why", hotplug.Cause(ev.A).String())
	attrs[1] = slog.String("next", "the next chunk arms it at its present pose")
	if ev.B&1 != 0 {
		attrs[1] = slog.String("next", e.resume)
	}
	if ev.B>>1 == 0 {
		return 2
	}
	attrs[2] = e.joint(ev.B >> 1)
	return 3
}

// reportHeld fills in the attributes of joints that are held, with their motors' complaint, and
// returns their number.
func (e *Edge) reportHeld(ev event.Event, attrs *[4]slog.Attr) (n int) {
	attrs[0] = e.joint(ev.A)
	attrs[1] = slog.Int64("joint_bits", ev.A)
	switch of, value := event.ComplaintOf(ev.B); of {
	case event.ComplainsOfSupply:
		attrs[2] = slog.String("complaint", "supply")
		attrs[3] = slog.Float64("volts", value)
	case event.ComplainsOfHeat:
		attrs[2] = slog.String("complaint", "heat")
		attrs[3] = slog.Float64("celsius", value)
	default:
		return 2
	}
	return 4
}
