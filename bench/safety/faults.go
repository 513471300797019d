package safety

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/sim/motor"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// safeState is the condition under which an arm counts as safe after a fault.
type safeState uint8

const (
	safeOn   safeState = iota // the arm may continue
	safeHeld                  // within two ticks the joints of the fault are no longer driven
	safeOff                   // all joints are limp 300 ms after the program's end
)

// fault is one row of the table: the fault and its effects. A new fault is a new row; Do is for
// faults that the other fields cannot express.
type fault struct {
	Name  string // its name for --only
	Title string // in the table
	Safe  safeState
	For   time.Duration // duration of the fault, after which it is undone

	Joints []uint8          // the affected joints; empty: all
	Script []servosim.Fault // on the bus, times counted from the fault
	Do     func(*run) error // other actions; run.onRevert undoes them
	Soak   bool             // it may occur in a soak too

	Lean    bool                        // served by lean-server and the demo policy
	Args    []string                    // edge-rt's flags; DIR is the run's folder
	Bus     func(*servosim.Config)      // changes the arm's bus
	Before  func(*run) error            // before the edge starts
	Grip    func(time.Duration) float64 // the policy's goal of the gripper, in percent
	Unarmed bool                        // the fault begins before the arm is armed
}

const (
	elbow   = 3
	wrist   = 4
	gripper = 6
	s       = time.Second
)

// faults is the table.
var faults = slices.Concat(supply, motors, line, network, chunks, servers, people, program)

var (
	oneOff = []servosim.Fault{{Kind: "power", IDs: []uint8{elbow}, Until: 300 * time.Millisecond}}
	allOff = []servosim.Fault{{Kind: "power", Until: 300 * time.Millisecond}}
)

var supply = []fault{
	{
		Name:   "blip-one",
		Title:  "supply of one motor away for 0.3 s",
		Safe:   safeHeld,
		For:    2 * s,
		Joints: []uint8{elbow},
		Soak:   true,
		Script: oneOff,
	},
	{
		Name:   "blip-all",
		Title:  "supply of all motors away for 0.3 s",
		Safe:   safeHeld,
		For:    2 * s,
		Soak:   true,
		Script: allOff,
	},
	{
		Name:   "blip-tight",
		Title:  "the same, with motors that boot with torque on",
		Safe:   safeHeld,
		For:    2 * s,
		Script: allOff,
		Bus:    func(c *servosim.Config) { c.BootTorque = []uint8{1, 2, 3, 4, 5, 6} },
	},
	{
		Name:   "blip-loose",
		Title:  "the same, with motors whose torque only its own register switches",
		Safe:   safeHeld,
		For:    2 * s,
		Script: allOff,
		Bus:    func(c *servosim.Config) { c.GoalLeavesTorque = true },
	},
	{
		Name:   "power-off",
		Title:  "supply of all motors away for 3 s: the arm slumps",
		Safe:   safeHeld,
		For:    4500 * time.Millisecond,
		Soak:   true,
		Script: []servosim.Fault{{Kind: "power", Until: 3 * s}},
	},
	{Name: "reboot", Title: "one motor reboots", Safe: safeHeld, For: 2 * s, Joints: []uint8{wrist}, Soak: true,
		Script: []servosim.Fault{{Kind: "reboot", IDs: []uint8{wrist}}}},
	{
		Name:   "low-supply",
		Title:  "supply of one motor at 4.2 V for 2 s",
		Safe:   safeOn,
		For:    2 * s,
		Joints: []uint8{elbow},
		Soak:   true,
		Script: []servosim.Fault{{Kind: "voltage", IDs: []uint8{elbow}, Volts: 4.2, Until: 2 * s}},
	},
	{Name: "wrong-supply", Title: "supply of all motors at 12.4 V for 3 s", Safe: safeHeld, For: 3 * s, Soak: true,
		Script: []servosim.Fault{{Kind: "voltage", Volts: 12.4, Until: 3 * s}}},
	{Name: "unplug", Title: "adapter unplugged for 2 s", Safe: safeHeld, For: 2 * s, Soak: true,
		Script: []servosim.Fault{{Kind: "unplug", Until: 2 * s}}},
	{
		Name:  "unplug-power",
		Title: "adapter and supply unplugged for 2 s",
		Safe:  safeHeld,
		For:   4 * s,
		Soak:  true,
		Script: []servosim.Fault{{Kind: "unplug", Until: 2 * s},
			{Kind: "power", From: 500 * time.Millisecond, Until: 1500 * time.Millisecond}},
	},
}

// The position at which the gripper meets a hard object, and when the policy closes and opens it,
// from its first chunk on.
const (
	object = 1600 // counts: 30 percent
	closes = 5 * s
	opens  = 11 * s
)

var motors = []fault{
	{Name: "heat", Title: "one motor too hot", Safe: safeOff, For: 3 * s, Joints: []uint8{elbow},
		Script: []servosim.Fault{{Kind: "heat", IDs: []uint8{elbow}, Degrees: 60}}},
	{
		Name:   "encoder",
		Title:  "encoder of one motor is 300 counts off, with its error bit",
		Safe:   safeHeld,
		For:    2 * s,
		Joints: []uint8{elbow},
		Soak:   true,
		Script: []servosim.Fault{{Kind: "encoder", IDs: []uint8{elbow}, Offset: 300, Until: 2 * s}},
	},
	{
		Name:   "overload",
		Title:  "gripper closes on something hard, is overloaded, then asked to open",
		Safe:   safeOn,
		For:    10 * s,
		Joints: []uint8{gripper},
		Script: []servosim.Fault{{Kind: "block", IDs: []uint8{gripper}, At: new(object)}},
		Grip:   squeeze,
	},
	{
		Name:   "limp-unplug",
		Title:  "gripper overloaded where that makes it limp (`overload: limp`), then the adapter unplugged for 1 s",
		Safe:   safeOn,
		For:    10 * s,
		Joints: []uint8{gripper},
		Args:   []string{"--robot", "DIR/robot.yaml"},
		Before: limpGripper,
		Grip:   squeeze,
		Script: []servosim.Fault{{Kind: "block", IDs: []uint8{gripper}, At: new(object)},
			{Kind: "unplug", From: 7 * s, Until: 8 * s}},
	},
	{
		Name:   "stuck",
		Title:  "one joint is held fast for 4 s",
		Safe:   safeOn,
		For:    4 * s,
		Joints: []uint8{elbow},
		Soak:   true,
		Script: []servosim.Fault{{Kind: "block", IDs: []uint8{elbow}, Until: 4 * s}},
	},
	{
		Name:    "outside",
		Title:   "the arm hangs 100 counts outside its range when it is to be armed",
		Unarmed: true,
		For:     4 * s,
		Bus:     low,
	},
	{Name: "silent-one", Title: "one motor silent for 1 s", Safe: safeHeld, For: s, Joints: []uint8{elbow}, Soak: true,
		Script: []servosim.Fault{{Kind: "mute", IDs: []uint8{elbow}, Until: s}}},
	{
		Name:   "silent-two",
		Title:  "two motors silent for 1 s",
		Safe:   safeHeld,
		For:    s,
		Joints: []uint8{elbow, wrist},
		Soak:   true,
		Script: []servosim.Fault{{Kind: "mute", IDs: []uint8{elbow, wrist}, Until: s}},
	},
	{Name: "silent-all", Title: "all motors silent for 1 s", Safe: safeHeld, For: s, Soak: true,
		Script: []servosim.Fault{{Kind: "mute", Until: s}}},
}

// squeeze closes the gripper and opens it again, in percent.
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
func low(c *servosim.Config) {
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
	return fault{
		Name:   name,
		Title:  title,
		For:    4 * s,
		Soak:   true,
		Script: []servosim.Fault{{Kind: kind, Probability: share, Until: 4 * s}},
	}
}

var line = []fault{
	spoilt("lost-1", "1 % of the replies lost", "drop", 0.01),
	spoilt("lost-5", "5 % of the replies lost", "drop", 0.05),
	spoilt("lost-20", "20 % of the replies lost", "drop", 0.2),
	spoilt("spoilt-1", "1 % of the replies spoilt", "corrupt", 0.01),
	spoilt("spoilt-5", "5 % of the replies spoilt", "corrupt", 0.05),
	spoilt("spoilt-20", "20 % of the replies spoilt", "corrupt", 0.2),
	{Name: "noise", Title: "64 bytes of noise before every reply for 2 s", For: 2 * s, Soak: true,
		Script: []servosim.Fault{{Kind: "noise", Bytes: 64, Until: 2 * s}}},
	{Name: "flood", Title: "the adapter floods the line with garbage for 2 s", For: 2 * s, Soak: true,
		Script: []servosim.Fault{{Kind: "flood", Until: 2 * s}}},
	{
		Name:   "echo",
		Title:  "the adapter echoes for 2 s",
		For:    2 * s,
		Soak:   true,
		Script: []servosim.Fault{{Kind: "echo", Until: 2 * s}},
	},
	{
		Name:    "wrong-baud",
		Title:   "the motors run at another speed than the adapter",
		Unarmed: true,
		For:     6 * s,
		Args:    []string{"--max-offline", "3s"},
		Bus:     func(c *servosim.Config) { c.Baud = 500_000 },
	},
}

var network = []fault{
	{Name: "router-loss", Title: "the router is gone for 3 s", For: 3 * s, Soak: true, Do: func(r *run) error {
		r.proxy.Unplug()
		r.onRevert(func() { _ = r.proxy.Replug() })
		return nil
	}},
	{
		Name:  "cut-up",
		Title: "nothing gets from the robot to the server for 3 s",
		For:   3 * s,
		Soak:  true,
		Do:    cut(false, true),
	},
	{
		Name:  "cut-down",
		Title: "nothing gets from the server to the robot for 3 s",
		For:   3 * s,
		Soak:  true,
		Do:    cut(true, false),
	},
	{Name: "blackout", Title: "nothing gets through for 5 s", For: 5 * s, Soak: true, Do: cut(false, false)},
}

func cut(up, down bool) func(*run) error {
	return func(r *run) error {
		r.proxy.Pass(up, down)
		r.onRevert(func() { r.proxy.Pass(true, true) })
		return nil
	}
}

var chunks = []fault{
	{Name: "garbage", Title: "garbage is published as chunks for 2 s", For: 2 * s, Soak: true, Do: garbage},
	{Name: "nan", Title: "chunks of NaN and infinities for 2 s", For: 2 * s, Soak: true, Do: corruptChunks(notNumbers)},
	{
		Name:  "wild",
		Title: "chunks that jump from one end of the range to the other for 2 s",
		For:   2 * s,
		Soak:  true,
		Do:    corruptChunks(jumps),
	},
	{Name: "same-id", Title: "a second robot with the same id", Lean: true, For: 5 * s, Do: secondRobot},
	{Name: "same-id-old", Title: "the same, at a server that admits both", For: 5 * s, Do: secondRobot},
}

var servers = []fault{
	{
		Name:  "server-kill",
		Title: "server killed (SIGKILL), back after 2 s",
		Lean:  true,
		For:   4 * s,
		Do: func(r *run) error {
			r.lean.Kill()
			r.sleep(2 * s)
			return r.lean.serve(r.ctx, r.cfg.Tree+"/bundle")
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

// pause is the operator's pause; the fault begins once the edge has answered.
func pause(r *run) error {
	if err := r.edge.Ctl("pause"); err != nil {
		return err
	}
	r.at = now()
	r.arm.Referee.Paused(r.at, true)
	return nil
}

var people = []fault{
	{Name: "pause-early", Title: "paused before the first chunk", Unarmed: true, For: 5 * s,
		Before: func(r *run) error { r.sine.setSilent(true); return nil },
		Do: func(r *run) error {
			err := pause(r)
			r.sine.setSilent(false)
			return err
		}},
	{Name: "pause", Title: "paused", Safe: safeHeld, For: 2 * s, Soak: true, Do: pause},
	{
		Name:  "pause-power",
		Title: "paused, and the supply of all motors away for 1 s",
		Safe:  safeHeld,
		For:   3500 * time.Millisecond,
		Do: func(r *run) error {
			if err := pause(r); err != nil {
				return err
			}
			return r.arm.Inject(servosim.Script{Faults: []servosim.Fault{{Kind: "power", Until: s}}})
		},
	},
	{
		Name:  "reset",
		Title: "new episode (`ctl reset`)",
		For:   s,
		Soak:  true,
		Do:    func(r *run) error { return r.edge.Ctl("reset") },
	},
}

func stopProcess(r *run) error {
	r.onRevert(func() { _ = r.edge.Signal(syscall.SIGCONT) })
	return r.edge.Signal(syscall.SIGSTOP)
}

func signalled(sig syscall.Signal) func(*run) error {
	return func(r *run) error { return r.edge.Signal(sig) }
}

var program = []fault{
	{Name: "sigterm", Title: "SIGTERM", Safe: safeOff, For: 5 * s, Soak: true, Do: signalled(syscall.SIGTERM)},
	{Name: "sigkill", Title: "SIGKILL", Safe: safeOff, For: s, Soak: true, Do: signalled(syscall.SIGKILL)},
	{Name: "sigstop", Title: "the process is stopped (SIGSTOP) for 5 s", Safe: safeHeld, For: 5 * s, Do: stopProcess},
	{
		Name:  "sigstop-short",
		Title: "the process is stopped (SIGSTOP) for 0.4 s",
		Safe:  safeHeld,
		Soak:  true,
		For:   400 * time.Millisecond,
		Do:    stopProcess,
	},
	{
		Name:  "hung-tick",
		Title: "the tick hangs for 5 s, the other threads do not",
		Safe:  safeHeld,
		For:   5 * s,
		Do:    hangTick,
	},
	{
		Name:  "suspend",
		Title: "suspend: stopped for 1 s, and CLOCK_BOOTTIME an hour ahead",
		For:   1500 * time.Millisecond,
		Do:    suspend,
	},
	{Name: "clock-step", Title: "the wall clock steps by 10 s for 2 s", For: 2 * s, Do: stepClock},
	{
		Name:   "disk-full",
		Title:  "the disk of the record is full",
		For:    3 * s,
		Args:   []string{"--record", "all", "--record-dir", "DIR/full"},
		Before: smallDisk,
	},
}
