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

// attributes are the attributes of a log line, without garbage.
type attributes struct {
	n  int
	of [4]slog.Attr
}

func (a *attributes) add(attrs ...slog.Attr) { a.n += copy(a.of[a.n:], attrs) }

// joints adds a set of joints, as names and as bits.
func (a *attributes) joints(e *Edge, set int64) {
	a.add(e.joint(set), slog.Int64("joint_bits", set))
}

// report logs an event without making garbage, since the arm still moves.
func (e *Edge) report(ev event.Event) {
	level, a := slog.LevelWarn, attributes{}
	switch ev.Code {
	case event.StateChanged:
		level = slog.LevelInfo
		a.add(slog.String("from", state(ev.A).String()), slog.String("to", state(ev.B).String()))
	case event.PhaseChanged:
		level = slog.LevelInfo
		a.add(slog.String("from", mode(ev.A).String()), slog.String("to", mode(ev.B).String()))
	case event.BusLost:
		a.add(slog.Int64("silent_joints", ev.A))
	case event.TickOverrun:
		a.add(slog.Duration("took", time.Duration(ev.A)), slog.Duration("host_took", time.Duration(ev.B)))
	case event.BusBack:
		e.reportBack(ev, &a)
	case event.JointHeld, event.ArmHeld:
		a.joints(e, ev.A)
		a.complaint(ev.B)
	case event.JointFrozen, event.JointOverloaded, event.JointBlind, event.JointLimp, event.JointStalled,
		event.JointMoved:
		a.joints(e, ev.A)
	case event.Suspended:
		a.add(slog.Duration("for", time.Duration(ev.A)))
	case event.JointWarned:
		a.joints(e, ev.A)
		a.add(slog.Int64("hottest_celsius", ev.B>>16), slog.Float64("lowest_volts", float64(ev.B&0xFFFF)/10))
	case event.LeaderSilent:
	case event.LeaderHeld, event.LeaderLeads: // only recorded: the leader's thread logs it, also outside a correction
		a.add(e.joint(ev.A))
		if ev.Code == event.LeaderHeld {
			a.add(slog.String("why", leader.Cause(ev.B).String()))
		}
		e.recording.Event(ev, level, a.of[:a.n])
		return
	case event.FirstRun:
		a.add(slog.String("bundle", e.contract.SHA256), slog.String("speed", strconv.FormatInt(ev.B, 10)+" %"),
			slog.Duration("for", time.Duration(ev.A)*time.Millisecond))
	case event.FirstRunOver:
		level = slog.LevelInfo
		e.drive.Go(e.noteRun)
	case event.TorqueOn, event.LeaderPushed, event.LeaderBack:
		level = slog.LevelInfo
	default:
		return
	}
	e.recording.Event(ev, level, a.of[:a.n])
	e.log.LogAttrs(context.Background(), level, ev.Code.String(), a.of[:a.n]...)
}

// reportBack adds the attributes of a bus that is back.
func (e *Edge) reportBack(ev event.Event, a *attributes) {
	if e.arm != nil {
		for _, note := range e.arm.Arm().Notes() { // results of opening the bus again
			e.log.Warn(note)
		}
	}
	next := "the next chunk arms it at its present pose"
	if ev.B&1 != 0 {
		next = e.resume
	}
	a.add(slog.String("why", hotplug.Cause(ev.A).String()), slog.String("next", next))
	if ev.B>>1 != 0 {
		a.add(e.joint(ev.B >> 1))
	}
}

// complaint adds the complaint of the motors of joints that are held.
func (a *attributes) complaint(b int64) {
	switch of, value := event.ComplaintOf(b); of {
	case event.ComplainsOfSupply:
		a.add(slog.String("complaint", "supply"), slog.Float64("volts", value))
	case event.ComplainsOfHeat:
		a.add(slog.String("complaint", "heat"), slog.Float64("celsius", value))
	}
}
