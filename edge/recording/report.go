package recording

import (
	"context"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Reporter writes the events of a tick into the log and the record, for every source of the arm's motion. The page
// takes the events from the record. Owner: one thread.
type Reporter struct {
	Log       *slog.Logger
	Recording *Recording
	Follower  hotplug.Parts           // parts whose notes Report logs when they are back
	Leader    hotplug.Parts           // leaders whose notes Report logs; nil: the leader's thread logs its events
	Next      string                  // text: how an arm goes on after it was reopened
	Resume    string                  // text: how the arm goes on after a motor has restarted
	Mode      func(mode int64) string // name of a mode in event.PhaseChanged
	Bundle    string                  // digest of the policy

	robot   robot.Robot
	parts   []robot.Part
	cameras []cameraReport
	joints  []string // names of the joints by bit set, so that Report does not allocate

	opened []*servo.Arm // leaders whose notes are in the log
}

// Names sets the names of the joints. Call it when the notes of the leaders' first opening are in the log.
func (r *Reporter) Names(arm robot.Robot) {
	for _, l := range r.Leader {
		r.opened = append(r.opened, l.Arm())
	}
	r.robot, r.parts = arm, arm.Parts()
	r.joints = make([]string, 1<<min(len(arm.Motors), 8)) // for a larger arm, only some sets have a text
	for set := range r.joints {
		r.joints[set] = arm.Joints(robot.Joints(set))
	}
}

func (r *Reporter) joint(set int64) slog.Attr {
	if set >= 0 && set < int64(len(r.joints)) {
		return slog.String("joint", r.joints[set])
	}
	return slog.String("joint", r.robot.Joints(robot.Joints(set)))
}

// attributes collects the attributes of a log line without allocating.
type attributes struct {
	n  int
	of [5]slog.Attr
}

func (a *attributes) add(attrs ...slog.Attr) { a.n += copy(a.of[a.n:], attrs) }

// joints adds a set of joints, as names and as bits.
func (a *attributes) joints(r *Reporter, set int64) {
	a.add(r.joint(set), slog.Int64("joint_bits", set))
}

// Report logs and records an event without making garbage, since the arm still moves.
func (r *Reporter) Report(ev event.Event) {
	level, a := slog.LevelWarn, attributes{}
	switch ev.Code {
	case event.StateChanged:
		level = slog.LevelInfo
		a.add(slog.String("from", record.RunStates[ev.A]), slog.String("to", record.RunStates[ev.B]))
	case event.PhaseChanged:
		level = slog.LevelInfo
		a.add(slog.String("from", r.Mode(ev.A)), slog.String("to", r.Mode(ev.B)))
	case event.BusLost:
		a.add(slog.Int64("silent_joints", ev.A))
		r.part(ev.B, &a)
	case event.TickOverrun:
		a.add(slog.Duration("took", time.Duration(ev.A)), slog.Duration("host_took", time.Duration(ev.B)))
	case event.BusBack:
		if i := r.part(ev.A>>event.CauseBits, &a); i < len(r.Follower) {
			r.notes(r.Follower[i])
		}
		r.back(ev, &a)
	case event.JointHeld, event.ArmHeld:
		a.joints(r, ev.A)
		a.complaint(ev.B)
	case event.JointFrozen, event.JointOverloaded, event.JointBlind, event.JointLimp, event.JointStalled,
		event.JointMoved, event.WheelSlips, event.JointJumped:
		a.joints(r, ev.A)
		a.way(ev)
	case event.Suspended:
		a.add(slog.Duration("for", time.Duration(ev.A)))
	case event.JointWarned:
		a.joints(r, ev.A)
		a.add(slog.Int64("hottest_celsius", ev.B>>16), slog.Float64("lowest_volts", float64(ev.B&0xFFFF)/10))
	case event.LeaderSilent:
		r.part(ev.A, &a)
		if ev.B != 0 {
			a.add(slog.String("next", "edge-rt ctl resume gives it back to the policy"))
		}
	case event.Empty:
		a.add(slog.Int64("ticks", ev.A), slog.String("why", event.Lack(ev.B).String()))
	case event.LeaderHeld, event.LeaderLeads:
		a.add(r.joint(ev.A))
		if ev.Code == event.LeaderHeld {
			a.add(slog.String("why", leader.Cause(ev.B).String()))
		}
		if r.Leader == nil {
			r.Recording.event(ev, level, a.of[:a.n])
			return
		}
	case event.FirstRun:
		a.add(slog.String("bundle", r.Bundle), slog.String("speed", strconv.FormatInt(ev.B, 10)+" %"),
			slog.Duration("for", time.Duration(ev.A)*time.Millisecond))
	case event.LeaderBack:
		r.part(ev.A, &a)
		for i, arm := range r.Leader { // a leader that was only silent was not opened again
			if now := arm.Arm(); now != r.opened[i] {
				r.opened[i] = now
				r.notes(arm)
			}
		}
		level = slog.LevelInfo
	case event.TorqueOn:
		r.part(ev.A, &a)
		level = slog.LevelInfo
	case event.LeaderPushed, event.FirstRunOver:
		level = slog.LevelInfo
	default:
		return
	}
	r.Recording.event(ev, level, a.of[:a.n])
	r.Log.LogAttrs(context.Background(), level, ev.Code.String(), a.of[:a.n]...)
}

// way adds the two positions of a jump.
func (a *attributes) way(ev event.Event) {
	if ev.Code != event.JointJumped {
		return
	}
	from, to := event.WayOf(ev.B)
	tenths := func(v float32) float64 { return math.Round(float64(v)*10) / 10 }
	a.add(slog.Float64("from", tenths(from)), slog.Float64("to", tenths(to)))
}

// part adds the name of the part with these joints to a, and returns the part's index. The events of
// a robot of one part have no joints: part adds nothing for them, and returns 0.
func (r *Reporter) part(joints int64, a *attributes) (index int) {
	for i, p := range r.parts {
		if joints != 0 && p.Joints() == robot.Joints(joints) {
			a.add(slog.String("part", p.Name))
			return i
		}
	}
	return 0
}

// notes logs the results of opening an arm again.
func (r *Reporter) notes(arm *hotplug.Arm) {
	for _, note := range arm.Arm().Notes() {
		r.Log.Warn(note)
	}
}

// back adds the attributes of a bus that is back.
func (r *Reporter) back(ev event.Event, a *attributes) {
	next := r.Next
	if ev.B&1 != 0 {
		next = r.Resume
	}
	a.add(slog.String("why", hotplug.Cause(ev.A&(1<<event.CauseBits-1)).String()), slog.String("next", next))
	if ev.B>>1 != 0 {
		a.add(r.joint(ev.B >> 1))
	}
}

// complaint adds the complaint b of the motor of a held joint.
func (a *attributes) complaint(b int64) {
	switch of, value := event.ComplaintOf(b); of {
	case event.ComplainsOfSupply:
		a.add(slog.String("complaint", "supply"), slog.Float64("volts", value))
	case event.ComplainsOfHeat:
		a.add(slog.String("complaint", "heat"), slog.Float64("celsius", value))
	}
}

// cameraEvery is the interval of log lines about one camera's changing faults.
const cameraEvery = time.Second

// cameraReport is the newest report of a camera.
type cameraReport struct {
	fault  string // empty: the camera gives pictures
	at     rt.Instant
	spoilt bool // the record has an event for its spoilt pictures
}

// ReportCameras logs and records that a camera gives no usable picture, and that it gives pictures again. It records
// the first spoilt picture of each camera.
func (r *Reporter) ReportCameras(now rt.Instant, cameras []*capture.Camera) {
	if r.cameras == nil {
		r.cameras = make([]cameraReport, len(cameras))
	}
	for i, cam := range cameras {
		last, number := &r.cameras[i], int64(i)
		switch err := cam.Err(); {
		case err != nil:
			if last.fault == "" {
				r.Recording.Note(event.CameraSilent, record.LevelWarning, number, 0,
					"camera "+cam.Name+" gives no usable picture: "+err.Error())
			} else if last.fault == err.Error() || now.Sub(last.at) < cameraEvery {
				break
			}
			r.Log.Warn("waiting for pictures of camera "+cam.Name, "why", err)
			last.fault, last.at = err.Error(), now
		case last.fault != "":
			last.fault = ""
			text := "camera " + cam.Name + " gives pictures again"
			r.Log.Info(text)
			r.Recording.Note(event.CameraBack, record.LevelInfo, number, 0, text)
		}
		if !last.spoilt && cam.Spoilt() {
			last.spoilt = true
			r.Recording.Note(event.CameraSpoilt, record.LevelInfo, number, 0,
				"camera "+cam.Name+": pictures have stray bytes, or parts missing")
		}
	}
}
