package safety

import (
	"slices"
	"syscall"
	"time"

	"edgert/servo/servosim"
)

// Safe says when an arm counts as safe after a fault.
type Safe uint8

const (
	SafeOn   Safe = iota // it may go on
	SafeHeld             // when the joints that the fault hits are driven no more: two ticks
	SafeOff              // when all are limp, 300 ms after the program is gone
)

// Fault is one row of the table: what goes wrong, and what to look at. A new one
// is a new row; what the existing fields cannot say goes into Do.
type Fault struct {
	Name  string // of --only
	Title string // in the table
	Safe  Safe
	For   time.Duration // the fault lasts; then it is taken back

	Joints []uint8          // that it hits; none: all
	Script []servosim.Fault // on the bus, times counted from the fault
	Do     func(*run) error // what else happens; run.later takes it back
	Soak   bool             // it may come in a soak too

	Lean    bool                        // served by lean-server and the demo policy
	Args    []string                    // of edge-rt; DIR is the run's folder
	Bus     func(*servosim.Config)      // the arm's bus is another one
	Before  func(*run) error            // before the edge starts
	Grip    func(time.Duration) float64 // what the policy wants of the gripper, in percent
	Unarmed bool                        // the fault is there before the arm is armed
}

const (
	elbow = 3
	wrist = 4
	s     = time.Second
)

// Faults is the table.
var Faults = slices.Concat(supply, motors, line, network, chunks, servers, people, program)

var supply = []Fault{
	{Name: "blip-one", Title: "supply of one motor away for 0.3 s", Safe: SafeHeld, For: 2 * s, Joints: []uint8{elbow}, Soak: true,
		Script: []servosim.Fault{{Kind: "brownout", IDs: []uint8{elbow}, Until: 300 * time.Millisecond}}},
	{Name: "blip-all", Title: "supply of all motors away for 0.3 s", Safe: SafeHeld, For: 2 * s, Soak: true,
		Script: []servosim.Fault{{Kind: "brownout", Until: 300 * time.Millisecond}}},
	{Name: "power-off", Title: "supply of all motors away for 3 s: the arm slumps", Safe: SafeHeld, For: 4500 * time.Millisecond, Soak: true,
		Script: []servosim.Fault{{Kind: "brownout", Until: 3 * s}}},
	{Name: "reboot", Title: "one motor reboots", Safe: SafeHeld, For: 2 * s, Joints: []uint8{wrist}, Soak: true,
		Script: []servosim.Fault{{Kind: "reboot", IDs: []uint8{wrist}}}},
	{Name: "low-supply", Title: "supply of one motor at 4.2 V for 2 s", Safe: SafeOn, For: 2 * s, Joints: []uint8{elbow}, Soak: true,
		Script: []servosim.Fault{{Kind: "brownout", IDs: []uint8{elbow}, Volts: 4.2, Until: 2 * s}}},
	{Name: "unplug", Title: "adapter unplugged for 2 s", Safe: SafeHeld, For: 2 * s, Soak: true,
		Script: []servosim.Fault{{Kind: "unplug", Until: 2 * s}}},
	{Name: "unplug-power", Title: "adapter and supply unplugged for 2 s", Safe: SafeHeld, For: 4 * s, Soak: true,
		Script: []servosim.Fault{{Kind: "unplug", Until: 2 * s}, {Kind: "brownout", From: 500 * time.Millisecond, Until: 1500 * time.Millisecond}}},
}

var motors = []Fault{
	{Name: "heat", Title: "one motor too hot", Safe: SafeOff, For: 3 * s, Joints: []uint8{elbow},
		Script: []servosim.Fault{{Kind: "heat", IDs: []uint8{elbow}, Degrees: 60}}},
	{Name: "encoder", Title: "encoder fault of one motor", Safe: SafeHeld, For: 2 * s, Soak: true, Joints: []uint8{elbow}, Do: func(r *run) error {
		r.arm.bus.SetFault(elbow, 1<<1)
		r.later(func() { r.arm.bus.SetFault(elbow, 0) })
		return nil
	}},
	{Name: "overload", Title: "gripper closes on something hard, then is asked to open", Safe: SafeOn, For: 9 * s, Joints: []uint8{gripper},
		Bus: func(c *servosim.Config) {
			c.Loads = slices.Clone(c.Loads)
			c.Loads[gripper-1] = servosim.Load{StopMin: 1600, StopMax: 3200}
		},
		Grip: func(t time.Duration) float64 { // stops at 30 percent; the fault begins at about 2 s
			switch {
			case t < 2*s:
				return 50
			case t < 8*s:
				return 10
			}
			return 80
		}},
	{Name: "silent-one", Title: "one motor silent for 1 s", Safe: SafeHeld, For: s, Joints: []uint8{elbow}, Soak: true,
		Script: []servosim.Fault{{Kind: "mute", IDs: []uint8{elbow}, Until: s}}},
	{Name: "silent-two", Title: "two motors silent for 1 s", Safe: SafeHeld, For: s, Joints: []uint8{elbow, wrist}, Soak: true,
		Script: []servosim.Fault{{Kind: "mute", IDs: []uint8{elbow, wrist}, Until: s}}},
	{Name: "silent-all", Title: "all motors silent for 1 s", Safe: SafeHeld, For: s, Soak: true,
		Script: []servosim.Fault{{Kind: "mute", Until: s}}},
}

// spoilt is a share of the replies lost or spoilt for 4 s.
func spoilt(name, title, kind string, share float64) Fault {
	return Fault{Name: name, Title: title, For: 4 * s, Soak: true, Script: []servosim.Fault{{Kind: kind, Probability: share, Until: 4 * s}}}
}

var line = []Fault{
	spoilt("lost-1", "1 % of the replies lost", "drop", 0.01),
	spoilt("lost-5", "5 % of the replies lost", "drop", 0.05),
	spoilt("lost-20", "20 % of the replies lost", "drop", 0.2),
	spoilt("spoilt-1", "1 % of the replies spoilt", "corrupt", 0.01),
	spoilt("spoilt-5", "5 % of the replies spoilt", "corrupt", 0.05),
	spoilt("spoilt-20", "20 % of the replies spoilt", "corrupt", 0.2),
	{Name: "flood", Title: "every reply is followed by 64 bytes of noise for 2 s", For: 2 * s, Soak: true,
		Script: []servosim.Fault{{Kind: "noise", Bytes: 64, Until: 2 * s}}},
	{Name: "echo", Title: "the adapter echoes for 2 s", For: 2 * s, Soak: true, Script: []servosim.Fault{{Kind: "echo", Until: 2 * s}}},
	{Name: "wrong-baud", Title: "the motors run at another speed than the adapter", Unarmed: true, For: 6 * s, Args: []string{"--max-offline", "3s"},
		Bus: func(c *servosim.Config) { c.Baud = 500_000 }},
}

var network = []Fault{
	{Name: "router-loss", Title: "the router is gone for 3 s", For: 3 * s, Soak: true, Do: func(r *run) error {
		r.proxy.pull()
		r.later(func() { _ = r.proxy.plug() })
		return nil
	}},
	{Name: "cut-up", Title: "nothing gets from the robot to the server for 3 s", For: 3 * s, Soak: true, Do: cut(false, true)},
	{Name: "cut-down", Title: "nothing gets from the server to the robot for 3 s", For: 3 * s, Soak: true, Do: cut(true, false)},
	{Name: "blackout", Title: "nothing gets through for 5 s", For: 5 * s, Soak: true, Do: cut(false, false)},
}

func cut(up, down bool) func(*run) error {
	return func(r *run) error {
		r.proxy.cut(up, down)
		r.later(func() { r.proxy.cut(true, true) })
		return nil
	}
}

var chunks = []Fault{
	{Name: "garbage", Title: "somebody publishes garbage as chunks for 2 s", For: 2 * s, Soak: true, Do: garbage},
	{Name: "nan", Title: "chunks of NaN and infinities for 2 s", For: 2 * s, Soak: true, Do: func(r *run) error { r.ruined(notNumbers); return nil }},
	{Name: "wild", Title: "chunks that jump from one end of the range to the other for 2 s", For: 2 * s, Soak: true, Do: func(r *run) error { r.ruined(jumps); return nil }},
	{Name: "same-id", Title: "a second robot with the same id", For: 5 * s, Do: twin},
}

var servers = []Fault{
	{Name: "server-kill", Title: "server killed (SIGKILL), back after 2 s", Lean: true, For: 4 * s, Do: func(r *run) error {
		r.lean.child.Kill()
		r.sleep(2 * s)
		return r.lean.start(r.tree + "/bundle")
	}},
	{Name: "server-hang", Title: "server stopped (SIGSTOP) for 3 s", Lean: true, For: 3 * s, Do: func(r *run) error {
		r.later(func() { _ = r.lean.child.Resume() })
		return r.lean.child.Pause()
	}},
	{Name: "other-model", Title: "server back with another model", Lean: true, For: 5 * s, Do: func(r *run) error {
		r.lean.child.Kill()
		return r.lean.start(r.tree + "/still")
	}},
	{Name: "bad-jpeg", Title: "pictures with four stray bytes before their end", For: 3 * s, Unarmed: true,
		Args: []string{"--camera", "top=DIR/bad.jpg:320x240@10,rotate=180"}, Before: strayBytes},
}

var people = []Fault{
	{Name: "pause-early", Title: "paused before the first chunk", Unarmed: true, For: 5 * s,
		Before: func(r *run) error { r.sway.hush(true); return nil },
		Do: func(r *run) error {
			if err := r.edge.ctl("pause"); err != nil {
				return err
			}
			r.arm.referee.Paused(now(), true)
			r.sway.hush(false)
			return nil
		}},
	{Name: "pause", Title: "paused", Safe: SafeHeld, For: 2 * s, Soak: true, Do: func(r *run) error {
		if err := r.edge.ctl("pause"); err != nil {
			return err
		}
		r.at = now()
		r.arm.referee.Paused(r.at, true)
		return nil
	}},
	{Name: "pause-power", Title: "paused, and the supply of all motors away for 1 s", Safe: SafeHeld, For: 3500 * time.Millisecond, Do: func(r *run) error {
		if err := r.edge.ctl("pause"); err != nil {
			return err
		}
		r.at = now()
		r.arm.referee.Paused(r.at, true)
		return r.arm.bus.Inject(servosim.Script{Faults: []servosim.Fault{{Kind: "brownout", Until: s}}})
	}},
	{Name: "reset", Title: "new episode (`ctl reset`)", For: s, Soak: true, Do: func(r *run) error { return r.edge.ctl("reset") }},
}

// signalled sends the edge a signal.
func signalled(sig syscall.Signal) func(*run) error {
	return func(r *run) error { return r.edge.signal(sig) }
}

var program = []Fault{
	{Name: "sigterm", Title: "SIGTERM", Safe: SafeOff, For: 5 * s, Soak: true, Do: signalled(syscall.SIGTERM)},
	{Name: "sigkill", Title: "SIGKILL", Safe: SafeOff, For: s, Soak: true, Do: signalled(syscall.SIGKILL)},
	{Name: "sigstop", Title: "the process is stopped (SIGSTOP) for 5 s", Safe: SafeHeld, For: 5 * s, Do: func(r *run) error {
		r.later(func() { _ = r.edge.signal(syscall.SIGCONT) })
		return r.edge.signal(syscall.SIGSTOP)
	}},
	{Name: "sigstop-short", Title: "the process is stopped (SIGSTOP) for 0.4 s", Safe: SafeHeld, Soak: true, For: 400 * time.Millisecond, Do: func(r *run) error {
		r.later(func() { _ = r.edge.signal(syscall.SIGCONT) })
		return r.edge.signal(syscall.SIGSTOP)
	}},
	{Name: "hung-tick", Title: "the tick hangs for 5 s, the other threads do not", Safe: SafeHeld, For: 5 * s, Do: hangTick},
	{Name: "disk-full", Title: "the disk of the record is full", For: 3 * s, Args: []string{"--record", "DIR/full/record.jsonl"}, Before: smallDisk},
}
