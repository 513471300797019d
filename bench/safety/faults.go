package safety

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/sim/motor"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/wire"
)

// safeState is the condition under which an arm counts as safe after a fault.
type safeState uint8

const (
	safeOn   safeState = iota // the arm may continue
	safeHeld                  // within two ticks no goal drives the joints of the fault
	safeOff                   // all joints are limp 300 ms after the program's end
)

// fault is one row of the table: the fault and its effects. A new fault is a new row; Do is for
// faults that the other fields cannot express.
type fault struct {
	Name  string // name for --only
	Title string // name in the table
	Safe  safeState
	For   time.Duration // the fault's duration; after it the fault is undone
	Soak  bool          // the fault may also occur in a soak

	Ctl    string                  // command of edge-rt ctl; with pause the fault begins once the edge has answered
	Script []servosim.Fault        // faults of the bus, with times counted from the fault's beginning
	Cable  netfault.Cable          // effect on the cable between edge and server
	Chunks func(*wire.ActionChunk) // changes each chunk of the server
	Signal syscall.Signal          // signal to the edge; with SIGSTOP the edge is stopped for the whole fault
	Do     func(*run) error        // other actions; run.onRevert undoes them

	Lean    bool                            // lean-server with the demo policy is the server
	Args    []string                        // edge-rt's flags; DIR is the run's folder, RECORDS that of its records
	Safety  string                          // a line of the robot's safety block
	Bus     func(*servosim.Config, []uint8) // changes a bus; the fault concerns the servos with these ids
	Before  func(*run) error                // called before the edge starts
	Grip    func(time.Duration) float64     // the policy's goal of the gripper, in percent
	Unarmed bool                            // the fault begins before the arm is armed

	// Fields for a robot of several parts.
	Arm   bool // the fault hits arms only
	Whole bool // the fault hits every motor of a bus
	// from this time after the fault's beginning until its end, no joint of a part that the fault
	// hits can be driven
	Away    time.Duration
	Pause   time.Duration // from this time on the robot waits for an operator, since a motor has restarted
	Starves bool          // no chunk arrives during the fault
	Base    bool          // the fault is only for a robot with a base
	Idle    time.Duration // from this time after the fault's beginning until its end, the base may not drive

	set int // bit set of the parts that the fault hits; 0: the whole robot
}

// joints returns the ids of the motors that the script affects, given as the ids of an arm's
// motors; nil means all motors.
func (f *fault) joints() (ids []uint8) {
	for _, l := range f.Script {
		if l.IDs == nil {
			return nil
		}
		ids = append(ids, l.IDs...)
	}
	return ids
}

const (
	gripper = 6
	s       = time.Second
	ms      = time.Millisecond
)

var elbow, wrist = []uint8{3}, []uint8{4}

// faults is the table.
var faults = slices.Concat(supply, motors, line, network, servers, people, program)

// onBus is a fault of the servos, their supply or their bus that may occur in a soak.
func onBus(name, title string, safe safeState, length time.Duration, script ...servosim.Fault) fault {
	return fault{
		Name:   name,
		Title:  title,
		Safe:   safe,
		For:    length,
		Soak:   true,
		Script: script,
	}
}

// booting returns the fault blip-all for motors that boot in another way: change() sets this way, and the text how
// names it.
func booting(name, how string, change func(*servosim.Config, []uint8)) fault {
	f := onBus(name, "the same, with motors "+how, safeHeld, 2*s, allOff).away(300*ms, restarted)
	f.Soak, f.Bus = false, change
	return f
}

// restarted is the time from a loss of supply for 0.3 s, or from a reboot, until edge-rt notices the restart.
const restarted = 1600 * ms

// away sets Away and Pause.
func (f fault) away(from, pause time.Duration) fault {
	f.Away, f.Pause = from, pause
	return f
}

// arms sets Arm.
func (f fault) arms() fault {
	f.Arm = true
	return f
}

// whole sets Whole.
func (f fault) whole() fault {
	f.Whole = true
	return f
}

var allOff = servosim.Fault{Kind: "power", Until: 300 * ms}

var supply = []fault{
	onBus("blip-one", "supply of one motor away for 0.3 s", safeHeld, 2*s,
		servosim.Fault{Kind: "power", IDs: elbow, Until: 300 * ms}).away(0, restarted),
	onBus("blip-all", "supply of all motors away for 0.3 s", safeHeld, 2*s, allOff).away(300*ms, restarted),
	booting("blip-tight", "that boot with torque on", func(c *servosim.Config, ids []uint8) {
		c.BootTorque = ids
	}).arms(),
	booting("blip-loose", "whose torque only its own register switches", func(c *servosim.Config, _ []uint8) {
		c.GoalLeavesTorque = true
	}),
	onBus("power-off", "supply of all motors away for 3 s: the arm slumps", safeHeld, 4500*ms,
		servosim.Fault{Kind: "power", Until: 3 * s}).away(300*ms, 4300*ms),
	onBus("reboot", "one motor reboots", safeHeld, 2*s, servosim.Fault{Kind: "reboot", IDs: wrist}).away(0, restarted),
	onBus("low-supply", "supply of one motor at 4.2 V for 2 s", safeOn, 2*s,
		servosim.Fault{
			Kind:  "voltage",
			IDs:   elbow,
			Volts: 4.2,
			Until: 2 * s,
		}),
	onBus("wrong-supply", "supply of all motors at 12.4 V for 3 s", safeHeld, 3*s,
		servosim.Fault{Kind: "voltage", Volts: 12.4, Until: 3 * s}).away(500*ms, 0),
	onBus("unplug", "adapter unplugged for 2 s", safeHeld, 2*s, servosim.Fault{Kind: "unplug", Until: 2 * s}).
		away(300*ms, 0).whole(),
	onBus("unplug-power", "adapter and supply unplugged for 2 s", safeHeld, 4*s,
		servosim.Fault{Kind: "unplug", Until: 2 * s}, servosim.Fault{Kind: "power", From: 500 * ms, Until: 1500 * ms}).
		away(300*ms, 3500*ms).whole(),
}

// The position at which the gripper meets a hard object, and when the policy closes and opens the
// gripper, counted from its first chunk.
const (
	object = 1600 // counts: 30 percent
	closes = 5 * s
	opens  = 11 * s
)

var hardObject = servosim.Fault{Kind: "block", IDs: []uint8{gripper}, At: new(object)}

var motors = []fault{
	{Name: "heat", Title: "one motor too hot", Safe: safeOff, For: 3 * s,
		Script: []servosim.Fault{{Kind: "heat", IDs: elbow, Degrees: 60}}},
	onBus("encoder", "encoder of one motor is 300 counts off, with its error bit", safeHeld, 2*s,
		servosim.Fault{
			Kind:   "encoder",
			IDs:    elbow,
			Offset: 300,
			Until:  2 * s,
		}),
	{
		Name:   "overload",
		Title:  "gripper closes on something hard, is overloaded, then asked to open",
		For:    10 * s,
		Arm:    true,
		Script: []servosim.Fault{hardObject},
		Grip:   squeeze,
	},
	{
		Name:   "limp-unplug",
		Title:  "gripper overloaded where that makes it limp (`overload: limp`), then the adapter unplugged for 1 s",
		For:    10 * s,
		Arm:    true,
		Safety: "overload: limp",
		Grip:   squeeze,
		Script: []servosim.Fault{hardObject, {Kind: "unplug", From: 7 * s, Until: 8 * s}},
	},
	onBus("stuck", "one joint is held fast for 4 s", safeOn, 4*s,
		servosim.Fault{Kind: "block", IDs: elbow, Until: 4 * s}),
	{
		Name:    "outside",
		Title:   "the arm hangs 100 counts outside its range when it is to be armed",
		Unarmed: true,
		For:     4 * s,
		Arm:     true,
		Bus:     low,
	},
	onBus("silent-one", "one motor silent for 1 s", safeHeld, s, servosim.Fault{Kind: "mute", IDs: elbow, Until: s}),
	onBus("silent-two", "two motors silent for 1 s", safeHeld, s,
		servosim.Fault{Kind: "mute", IDs: slices.Concat(elbow, wrist), Until: s}).away(400*ms, 0),
	onBus("silent-all", "all motors silent for 1 s", safeHeld, s, servosim.Fault{Kind: "mute", Until: s}).away(400*ms,
		0),
}

// squeeze returns the goal of a gripper that closes and opens again, in percent.
func squeeze(t time.Duration) float64 {
	switch {
	case t < closes:
		return 50
	case t < opens:
		return 10
	}
	return 80
}

// low puts the shoulder below its calibrated range.
func low(c *servosim.Config, _ []uint8) {
	c.Loads = slices.Clone(c.Loads)
	c.Loads[1] = motor.Load{
		Backlash: 8,
		Gravity:  0.9,
		Level:    1700,
		StopMin:  600,
		StopMax:  3100,
	}
}

// spoilt is a fault in which a share of the replies is lost or damaged for 4 s.
func spoilt(name, title, kind string, share float64) fault {
	return onBus(name, title, safeOn, 4*s, servosim.Fault{Kind: kind, Probability: &share, Until: 4 * s})
}

var line = []fault{
	spoilt("lost-1", "1 % of the replies lost", "drop", 0.01),
	spoilt("lost-5", "5 % of the replies lost", "drop", 0.05),
	spoilt("lost-20", "20 % of the replies lost", "drop", 0.2),
	spoilt("spoilt-1", "1 % of the replies spoilt", "corrupt", 0.01),
	spoilt("spoilt-5", "5 % of the replies spoilt", "corrupt", 0.05),
	spoilt("spoilt-20", "20 % of the replies spoilt", "corrupt", 0.2),
	onBus("noise", "64 bytes of noise before every reply for 2 s", safeOn, 2*s,
		servosim.Fault{Kind: "noise", Bytes: 64, Until: 2 * s}),
	onBus("flood", "the adapter floods the line with garbage for 2 s", safeOn, 2*s,
		servosim.Fault{Kind: "flood", Until: 2 * s}).whole(),
	onBus("echo", "the adapter echoes for 2 s", safeOn, 2*s, servosim.Fault{Kind: "echo", Until: 2 * s}).whole(),
	{
		Name:    "wrong-baud",
		Title:   "the motors run at another speed than the adapter",
		Unarmed: true,
		For:     6 * s,
		Whole:   true,
		Args:    []string{"--max-offline", "3s"},
		Bus:     func(c *servosim.Config, _ []uint8) { c.Baud = 500_000 },
	},
}

// severed is a fault of the cable between edge and server.
func severed(name, title string, length time.Duration, cable netfault.Cable) fault {
	return fault{
		Name:    name,
		Title:   title,
		For:     length,
		Soak:    true,
		Cable:   cable,
		Starves: true,
	}
}

var network = []fault{
	severed("router-loss", "the router is gone for 3 s", 3*s, netfault.Unplugged),
	severed("cut-up", "nothing gets from the robot to the server for 3 s", 3*s, netfault.CutUp),
	severed("cut-down", "nothing gets from the server to the robot for 3 s", 3*s, netfault.CutDown),
	severed("blackout", "nothing gets through for 5 s", 5*s, netfault.CutUp|netfault.CutDown),
}

var servers = []fault{
	{Name: "garbage", Title: "garbage is published as chunks for 2 s", For: 2 * s, Soak: true, Do: garbage},
	{
		Name:    "nan",
		Title:   "chunks of NaN and infinities for 2 s",
		For:     2 * s,
		Soak:    true,
		Chunks:  notNumbers,
		Starves: true,
	},
	{
		Name:   "wild",
		Title:  "chunks that jump from one end of the range to the other for 2 s",
		For:    2 * s,
		Soak:   true,
		Chunks: jumps,
	},
	{Name: "same-id", Title: "a second robot with the same id", Lean: true, For: 5 * s, Do: secondRobot},
	{Name: "same-id-old", Title: "the same, at a server that admits both", For: 5 * s, Do: secondRobot},
	{
		Name:  "server-kill",
		Title: "server killed (SIGKILL), back after 2 s",
		Lean:  true,
		For:   4 * s,
		Do: func(r *run) error {
			r.lean.Kill()
			r.sleep(2 * s)
			return r.lean.serve(r.ctx, r.cfg.bundle())
		},
	},
	{Name: "server-hang", Title: "server stopped (SIGSTOP) for 3 s", Lean: true, For: 3 * s, Do: func(r *run) error {
		r.onRevert(func() { _ = r.lean.Resume() })
		return r.lean.Pause()
	}},
	{Name: "other-model", Title: "server back with another model", Lean: true, For: 5 * s, Do: func(r *run) error {
		r.lean.Kill()
		return r.lean.serve(r.ctx, r.cfg.Tree+"/still")
	}},
	{
		Name:   "camera-gone",
		Title:  "camera gone for 2 s",
		For:    2 * s,
		Args:   []string{"--camera", "top=DIR/pictures:320x240@10"},
		Before: pictures,
		Do: func(r *run) error {
			at := filepath.Join(r.dir, "pictures")
			r.onRevert(func() { _ = os.Rename(at+".away", at) })
			return os.Rename(at, at+".away")
		},
	},
	{Name: "bad-jpeg", Title: "pictures with sixteen stray bytes before their end", For: 3 * s, Unarmed: true,
		Args: []string{"--camera", "top=DIR/bad.jpg:320x240@10,rotate=180"}, Before: strayBytes},
}

var people = []fault{
	{Name: "pause-early", Title: "paused before the first chunk", Unarmed: true, For: 5 * s, Ctl: "pause",
		Before: func(r *run) error { r.sine.SetAnswer(func(wire.Sample) {}); return nil },
		Do:     func(r *run) error { r.sine.SetAnswer(r.sine.observe); return nil }},
	{Name: "pause", Title: "paused", Safe: safeHeld, For: 2 * s, Soak: true, Ctl: "pause"},
	{Name: "pause-power", Title: "paused, and the supply of all motors away for 1 s", Safe: safeHeld, For: 3500 * ms,
		Ctl: "pause", Pause: 200 * ms, Script: []servosim.Fault{{Kind: "power", Until: s}}},
	{Name: "reset", Title: "new episode (`ctl reset`)", For: s, Soak: true, Ctl: "reset"},
	ofBase("rest", "at rest between two episodes", ms, 0, "--record", "all", "--record-dir", "RECORDS").does(rest),
	ofBase("correct", "taken over without keys for the base", ms, 0, "--leader", "jog").does(correct),
	ofBase("stale", "no chunk, and `--max-action-age 300ms`", 300*ms, netfault.CutUp, "--max-action-age", "300ms"),
	ofBase("zero", "no chunk, and `--fallback zero`", starveAfter, netfault.CutUp, "--fallback", "zero"),
	ofBase("repeat", "no chunk, and `--fallback repeat_last` for 1.5 s", 1500*ms, netfault.CutUp,
		"--fallback", "repeat_last", "--max-action-age", "1.5s"),
}

// ofBase is a fault in which a base loses its permission to drive. idle is the time from the
// fault's beginning until then.
func ofBase(name, title string, idle time.Duration, cable netfault.Cable, args ...string) fault {
	return fault{
		Name:  name,
		Title: title,
		For:   3 * s,
		Base:  true,
		Idle:  idle,
		Cable: cable,
		Args:  args,
	}
}

// does sets Do.
func (f fault) does(do func(*run) error) fault {
	f.Do = do
	return f
}

var program = []fault{
	{Name: "sigterm", Title: "SIGTERM", Safe: safeOff, For: 5 * s, Soak: true, Signal: syscall.SIGTERM},
	{Name: "sigkill", Title: "SIGKILL", Safe: safeOff, For: s, Soak: true, Signal: syscall.SIGKILL},
	{Name: "sigstop", Title: "the process is stopped (SIGSTOP) for 5 s", Safe: safeHeld, For: 5 * s,
		Signal: syscall.SIGSTOP},
	{
		Name:   "sigstop-short",
		Title:  "the process is stopped (SIGSTOP) for 0.4 s",
		Safe:   safeHeld,
		Soak:   true,
		For:    400 * ms,
		Signal: syscall.SIGSTOP,
	},
	{Name: "hung-tick", Title: "the tick hangs for 5 s, the other threads do not", Safe: safeHeld, For: 5 * s,
		Do: hangTick},
	{Name: "suspend", Title: "suspend: stopped for 1 s, and CLOCK_BOOTTIME an hour ahead", For: 1500 * ms, Do: suspend},
	{Name: "clock-step", Title: "the wall clock steps by 10 s for 2 s", For: 2 * s, Do: stepClock},
	{
		Name:   "disk-full",
		Title:  "the disk of the record is full",
		For:    3 * s,
		Args:   []string{"--record", "all", "--record-dir", "DIR/full"},
		Before: smallDisk,
	},
}
