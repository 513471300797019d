package bringup

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// torquedArm returns a simulated arm with all motors under torque, as a killed edge leaves it.
func torquedArm(t *testing.T) *servosim.Bus {
	t.Helper()
	rttest.RealTime(t) // simulated motors answer within real time-outs
	b := servosimtest.Open(t, servosim.Config{})
	port := rttest.Must(servo.OpenPort(b.Path(), 1_000_000))(t)
	defer port.Close()
	bus := servo.NewBus(port, 1_000_000, table.Feetech, rt.KernelClock())
	sts := rttest.Must(table.ByName("sts3215"))(t)
	for id := servo.ID(1); id <= 6; id++ {
		rttest.Do(t, bus.WriteRegister(id, sts.Row(table.TorqueEnable), 1))
	}
	if on := b.TorqueEnabled(); slices.Contains(on, false) {
		t.Fatalf("torque %v before the test, want all on", on)
	}
	return b
}

// offAt configures torque off for an SO-101.
func offAt(bus string) TorqueOffConfig {
	return TorqueOffConfig{Bus: device.ByPart{bus}, Robot: "so101"}
}

func TestTorqueOff(t *testing.T) {
	t.Parallel()
	b := torquedArm(t)
	var out strings.Builder
	rttest.Do(t, TorqueOff(offAt(b.Path()), &out))
	rttest.Do(t, TorqueOff(offAt(b.Path()), &out)) // a second time is as good as the first
	if on := b.TorqueEnabled(); slices.Contains(on, true) {
		t.Errorf("torque %v after torque off", on)
	}
	rttest.Contains(t, out.String(), "off on 6 motors")
}

// TorqueOff makes the other motors limp although one motor is silent, and its error names the silent motor.
func TestTorqueOffNamesWhoDidNotConfirm(t *testing.T) {
	t.Parallel()
	b := torquedArm(t)
	b.Mute(3, true)
	err := TorqueOff(offAt(b.Path()), io.Discard)
	if exit.Of(err) != exit.Absent || !rttest.Says(err, "motor 3 (elbow_flex)") || rttest.Says(err, "motor 2") ||
		rttest.Says(err, "--robot") {
		t.Errorf("torque off with motor 3 silent: %v (code %d), want motor 3 alone named and code 4", err, exit.Of(err))
	}
	for i, on := range b.TorqueEnabled() {
		if on && i != 2 {
			t.Errorf("motor %d is still under torque", i+1)
		}
	}
}

// A Koch does not answer in the default robot's protocol, and the error recommends the flag --robot.
func TestTorqueOffOfAnotherArm(t *testing.T) {
	t.Parallel()
	b, cfg, _ := simArm(t, named(t, "koch"), servosim.Config{})
	defer b.Close()
	err := TorqueOff(offAt(cfg.Bus), io.Discard)
	// This calls torque off for a Koch without --robot.
	rttest.Ends(t, err, exit.Absent, "with the arm's --robot where it is no so101")
}

// After a service's run systemd's command waits for a motor that is silent for a moment.
func TestTorqueOffAfterAService(t *testing.T) {
	rttest.RealTime(t)
	t.Setenv("SERVICE_RESULT", "signal")
	b := torquedArm(t)
	b.Mute(3, true)
	back := time.AfterFunc(1200*time.Millisecond, func() { b.Mute(3, false) })
	defer back.Stop()
	if err := TorqueOff(offAt(b.Path()), io.Discard); err != nil || slices.Contains(b.TorqueEnabled(), true) {
		t.Errorf("torque off with motor 3 silent for 1.2 s: %v, torque %v", err, b.TorqueEnabled())
	}
}

// TorqueOff sends the command to all motors at once, before it asks for confirmations, which takes seconds for silent
// motors.
func TestTorqueOffIsSentToAllFirst(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	b := torquedArm(t)
	for id := uint8(1); id <= 5; id++ {
		b.Mute(id, true)
	}
	began, done := time.Now(), make(chan error, 1)
	go func() {
		done <- TorqueOff(offAt(b.Path()), io.Discard)
	}()
	rttest.Eventually(t, "motor 6 without torque", func() bool { return !b.TorqueEnabled()[5] })
	limp := time.Since(began)
	err := <-done
	if all := time.Since(began); limp > all/2 || exit.Of(err) != exit.Absent {
		t.Errorf("motor 6 was limp after %v of %v, want it among the first; %v", limp, all, err)
	}
}

func TestTorqueOffRefusals(t *testing.T) {
	t.Parallel()
	b := torquedArm(t)
	port := rttest.Must(servo.OpenPort(b.Path(), 1_000_000))(t)
	defer port.Close()
	for _, tt := range []struct {
		name string
		cfg  TorqueOffConfig
		code exit.Code
		says string
	}{
		{"no bus", TorqueOffConfig{Robot: "so101"}, exit.Usage, "--bus"},
		{"no such robot", TorqueOffConfig{Bus: device.ByPart{b.Path()}, Robot: "r2d2"}, exit.Usage, "so101"},
		{"no such port", offAt("/dev/ttyNONE"), exit.Absent, "/dev/ttyNONE"},
		{"an edge still runs", offAt(b.Path()), exit.Absent, "end "},
		{"simulated", offAt("sim"), exit.Clean, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			err := TorqueOff(tt.cfg, &out)
			if exit.Of(err) != tt.code || err != nil && !rttest.Says(err, tt.says) {
				t.Errorf("TorqueOff(%+v) = %v (code %d), want code %d and %q", tt.cfg, err, exit.Of(err), tt.code,
					tt.says)
			}
			if (out.Len() == 0) != (err != nil) {
				t.Errorf("TorqueOff(%+v) says %q beside %v", tt.cfg, out.String(), err)
			}
		})
	}
}

// When a run with --on-exit hold ends cleanly or is refused at its start, the arm stays under torque. After a kill or a
// fault it does not, because a killed edge may have done anything.
func TestTorqueOffLeavesAnArmThatIsHeldOnPurpose(t *testing.T) {
	b := torquedArm(t)
	t.Setenv("GOTRACEBACK", "crash") // the unit file sets it, too
	end := func(result, code, status string) {
		t.Setenv("SERVICE_RESULT", result)
		t.Setenv("EXIT_CODE", code)
		t.Setenv("EXIT_STATUS", status)
	}
	for _, tt := range []struct {
		name, onExit, result, code, status string
		stays                              bool
	}{
		{"by hand", "hold", "", "", "", false},
		{"after a clean stop", "hold", "success", "exited", "0", true},
		{"after something broke", "hold", "exit-code", "exited", "1", false},
		{"after a wrong flag", "hold", "exit-code", "exited", "2", true},
		{"after a contract that was refused", "hold", "exit-code", "exited", "3", true},
		{"after the server stayed away", "hold", "exit-code", "exited", "4", true},
		{"after real time was refused", "hold", "exit-code", "exited", "5", true},
		{"after a motor's fault", "hold", "exit-code", "exited", "6", false},
		{"after a code that nobody has", "hold", "exit-code", "exited", "137", false},
		{"without a code", "hold", "exit-code", "exited", "", false},
		{"after a stop that took too long", "hold", "timeout", "exited", "0", false},
		{"after the kernel ran out of memory", "hold", "oom-kill", "exited", "0", false},
		{"after a SIGKILL", "hold", "signal", "killed", "KILL", false},
		{"after systemd's watchdog", "hold", "watchdog", "killed", "KILL", false},
		{"after a panic", "hold", "signal", "killed", "ABRT", false},
		{"after a core dump", "hold", "core-dump", "dumped", "ABRT", false},
		{"after a stop that was to park", "park", "success", "exited", "0", false},
		{"after a stop that was to let go", "off", "success", "exited", "0", false},
	} {
		end(tt.result, tt.code, tt.status)
		rttest.Want(t, heldOnPurpose(tt.onExit), tt.stays, "%s: the arm is held", tt.name)
	}
	end("exit-code", "exited", "2")
	t.Setenv("GOTRACEBACK", "single")
	rttest.Want(t, heldOnPurpose("hold"), false, "after code 2, which may be a panic: the arm is held")
	end("success", "exited", "0")
	off := offAt(b.Path())
	off.OnExit = "hold"
	rttest.Do(t, TorqueOff(off, io.Discard))
	if on := b.TorqueEnabled(); slices.Contains(on, false) {
		t.Errorf("torque %v, want the arm held", on)
	}
}

// TorqueOff makes the other parts limp although the bus of one part fails, and its error names that part.
func TestTorqueOffOfAllParts(t *testing.T) {
	t.Parallel()
	left, right := torquedArm(t), torquedArm(t)
	cfg := TorqueOffConfig{
		Bus:   device.ByPart{"left=/dev/ttyNONE", "right=" + right.Path()},
		Robot: "bi_so101",
	}
	err := TorqueOff(cfg, new(strings.Builder))
	if exit.Of(err) != exit.Absent || !rttest.Says(err, "part left: ") || slices.Contains(right.TorqueEnabled(), true) {
		t.Errorf("with left's bus gone: %v, torque of right %v", err, right.TorqueEnabled())
	}
	cfg.Bus[0] = "left=" + left.Path()
	var out strings.Builder
	if err = TorqueOff(cfg, &out); err != nil || slices.Contains(left.TorqueEnabled(), true) {
		t.Errorf("%v, torque of left %v", err, left.TorqueEnabled())
	}
	rttest.Want(t, out.String(), "torque is off on 6 motors at "+left.Path()+"\ntorque is off on 6 motors at "+
		right.Path()+"\n", "text")
}
