package servo

import (
	"errors"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// reads makes n cycles, 10 ms apart.
func reads(a *Arm, l *line, n int) {
	for range n {
		l.tick(a)
	}
}

// A persistent fault causes its reaction, which ends when the fault has gone.
func TestOverloadHoldsTheJoint(t *testing.T) {
	a, l := armedLine(t)
	l.servos[6].err = byte(FaultOverload)
	reads(a, l, persistentReads-1)
	if held(a) != 0 {
		t.Errorf("Hold = %06b after %d reads, want a complaint to stay first",
			held(a), persistentReads-1)
	}
	reads(a, l, 1)
	if held(a) != 1<<5 || a.Fatal() != nil {
		t.Errorf("Hold = %06b, Fatal %v, want the gripper held and no more",
			held(a), a.Fatal())
	}
	l.servos[6].err = 0
	reads(a, l, 2*persistentReads)
	if held(a) != 0 {
		t.Errorf("Hold = %06b after the complaint has gone",
			held(a))
	}
}

func TestReactions(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault Fault
		set   func(*robot.Safety)
		hold  robot.Joints
		stop  bool
		limp  bool
	}{
		{"overheat stops", FaultTemperature, func(*robot.Safety) {}, 0, true, false},
		{"voltage holds", FaultVoltage, func(*robot.Safety) {}, 4, false, false},
		{"encoder stops", FaultEncoder, func(*robot.Safety) {}, 0, true, false},
		{"each of two has its own", FaultVoltage | FaultTemperature, func(*robot.Safety) {}, 4, true, false},
		{"ignored", FaultOverload, func(s *robot.Safety) { s.Overload = robot.Ignore }, 0, false, false},
		{"limp", FaultOverload, func(s *robot.Safety) { s.Overload = robot.Limp }, 4, false, true},
	} {
		a, l := armedLine(t)
		tt.set(&a.robot.Safety)
		l.servos[3].err = byte(tt.fault)
		reads(a, l, persistentReads+1)
		if held(a) != tt.hold || (a.Fatal() != nil) != tt.stop {
			t.Errorf("%s: Hold %06b, Fatal %v, want %06b, %v", tt.name,
				held(a), a.Fatal(), tt.hold, tt.stop)
		}
		if tt.stop && !errors.Is(a.Fatal(), tt.fault) {
			t.Errorf("%s: Fatal = %v, want the fault in it", tt.name, a.Fatal())
		}
		if limp := l.servos[3].mem[40] == 0; limp != tt.limp || l.servos[2].mem[40] == 0 {
			t.Errorf("%s: limp %v, want %v and the others under torque", tt.name, limp, tt.limp)
		}
		if tt.limp { // the motor stays limp when its fault has gone
			l.servos[3].err = 0
			reads(a, l, 200)
			if held(a) != tt.hold || a.TorqueLost() != 0 {
				t.Errorf("%s: Hold %06b, torque gone %v, want it to stay as it is", tt.name,
					held(a), a.TorqueLost())
			}
		}
	}
}

// A motor that restarts is limp and does not report this. TorqueLost returns its joint within a second.
func TestLostTorqueIsDetected(t *testing.T) {
	a, l := openLine(t)
	reads(a, l, 100)
	if a.TorqueLost() != 0 {
		t.Error("a limp arm that was never armed counts as restarted")
	}
	arm(t, a)
	reads(a, l, 100)
	if a.TorqueLost() != 0 {
		t.Error("torque counts as gone, and is on")
	}
	l.servos[4].mem[40] = 0
	reads(a, l, 100) // a second
	if a.TorqueLost() == 0 {
		t.Error("a motor without torque was not noticed in a second")
	}
	rttest.Do(t, a.TorqueOff())
	reads(a, l, 100)
	if a.TorqueLost() != 0 {
		t.Error("torque that was switched off counts as gone")
	}
}

// bounded returns an armed SO-101 whose motors have the bounds b, after changes of the robot's
// reactions. The fake servos measure 35 C and 7.4 V and report no fault themselves.
func bounded(t *testing.T, b robot.Bounds, changes ...func(*robot.Safety)) (*Arm, *line) {
	t.Helper()
	a, l := openLine(t)
	for i := range a.units {
		a.robot.Motors[a.units[i].joint].Bounds = b
		a.health.readings[i].setBounds(b)
		l.servos[int(a.units[i].id)].mem[62], l.servos[int(a.units[i].id)].mem[63] = 74, 35
	}
	for _, change := range changes {
		change(&a.robot.Safety)
	}
	arm(t, a)
	reads(a, l, look)
	if a.Warned() != 0 || held(a) != 0 || a.Fatal() != nil {
		t.Fatalf("warned %06b, held %06b, %v of motors that are well", a.Warned(),
			held(a), a.Fatal())
	}
	return a, l
}

// look is the number of reads, one every ten milliseconds, in which the windows of six motors are read.
const look = 6*int(healthEvery/(10*time.Millisecond)) + 1

func TestBoundsOfHeat(t *testing.T) {
	a, l := bounded(t, robot.Bounds{HotWarn: 55, HotAct: 65})
	l.servos[3].mem[63] = 55
	reads(a, l, boundReads*look)
	if a.Warned() != 4 || held(a) != 0 || a.Fatal() != nil {
		t.Errorf("at 55 C: warned %06b, held %06b, %v, want motor 3 warned of and no more", a.Warned(),
			held(a), a.Fatal())
	}
	l.servos[3].mem[63] = 53
	reads(a, l, look)
	if a.Warned() != 4 {
		t.Errorf("at 53 C the warning is over, want it to stay until %d C below", boundRelief)
	}
	l.servos[3].mem[63] = 51
	reads(a, l, look)
	if a.Warned() != 0 {
		t.Error("at 51 C the warning stays")
	}
	l.servos[3].mem[63] = 200 // once: a damaged reply
	for a.health.readings[2].temperature != 200 {
		reads(a, l, 1)
	}
	l.servos[3].mem[63] = 64
	reads(a, l, 3*look)
	if a.Fatal() != nil {
		t.Errorf("%v after one reading of 200 C and then 64", a.Fatal())
	}
	l.servos[3].mem[63] = 65
	reads(a, l, boundReads*look+persistentReads)
	want := "motor 3 (elbow_flex) on fake: over temperature; elbow_flex has 65 C, overheat_act is 65"
	rttest.FailsAs(t, a.Fatal(), FaultTemperature, want)
}

func TestBoundsOfTheSupply(t *testing.T) {
	a, l := bounded(t, robot.Bounds{LowWarn: 68, LowAct: 62})
	sag := func(tenths byte, rounds int, warned, kept robot.Joints) {
		t.Helper()
		l.servos[6].mem[62] = tenths
		reads(a, l, rounds*look+persistentReads)
		if a.Warned() != warned || held(a) != kept ||
			a.Fatal() != nil {
			t.Errorf("at %d tenths of a volt: warned %06b, held %06b, %v, want %06b, %06b", tenths, a.Warned(),
				held(a), a.Fatal(), warned, kept)
		}
	}
	const gripper = 1 << 5
	sag(69, boundReads, 0, 0)
	sag(68, boundReads, gripper, 0)
	sag(62, boundReads, gripper, gripper)
	sag(65, 1, gripper, gripper) // a supply that recovers this little, because nothing moves, does not end the hold
	sag(66, 1, gripper, 0)
	sag(0, boundReads, gripper, 0) // the motor has not measured its supply yet
	sag(72, 1, 0, 0)
}

// A motor beyond a bound loses its torque, as with a fault that it reports itself, and the tick's
// reaction does not allocate.
func TestBoundThatMakesLimp(t *testing.T) {
	a, l := bounded(t, robot.Bounds{HotWarn: 50, HotAct: 60}, func(s *robot.Safety) { s.Overheat = robot.Limp })
	l.keep = false
	read := func(celsius byte, n int) {
		l.servos[2].mem[63] = celsius
		for range n {
			l.tick(a)
		}
	}
	var kept robot.Joints
	var torque [6]byte
	rttest.NoAllocs(t, "the way to a limp joint allocates %v times, want 0", 20, func() {
		read(60, boundReads*look+persistentReads)
		kept = held(a)
		for i := range torque {
			torque[i] = l.servos[i+1].mem[40]
		}
		a.health.reactions.Limp = 0
		a.health.torque = a.Joints()
		l.servos[2].mem[40] = 1
		read(35, look)
	})
	if kept != 2 || torque != [6]byte{1, 0, 1, 1, 1, 1} || a.TorqueLost() != 0 {
		t.Errorf("held %06b, torque %v, gone %v, want motor 2 limp alone", kept, torque, a.TorqueLost())
	}
}

// After a read with a repeated request, the health window waits for the next tick, since this tick
// has waited long enough.
func TestALostReplyPutsTheWatchOff(t *testing.T) {
	a, l := openLine(t)
	a.health.due = l.Now()
	l.servos[6].muteTimes = 1
	if stale := l.read(a); stale != 0 || a.bus.retries.Load() != 1 || a.health.next != 0 {
		t.Errorf("a read with a lost reply: stale %06b, %d retries, window %d next; want none, one, and the watch "+
			"put off", stale, a.bus.retries.Load(), a.health.next)
	}
	if l.read(a); a.health.next != 1 {
		t.Errorf("the read behind it: window %d next, want 1", a.health.next)
	}
}

// A motor that never answers does not keep the others' windows from being read.
func TestSilentMotorLeavesTheOthersWatched(t *testing.T) {
	a, l := bounded(t, robot.Bounds{HotAct: 60})
	l.servos[1].mute = true
	l.servos[5].mem[63] = 61
	reads(a, l, 10*look*boundReads)
	if a.Fatal() == nil {
		t.Error("motor 5 is too hot, motor 1 silent, and the run goes on")
	}
}

func TestClimate(t *testing.T) {
	a, l := openLine(t)
	for id, s := range l.servos {
		s.mem[62], s.mem[63] = byte(70+id), byte(30+id)
	}
	reads(a, l, 100)
	if hot, volts := a.Extremes(); hot != 36 || volts != 7.1 {
		t.Errorf("Climate = %v, %v, want 36, 7.1", hot, volts)
	}
}

// When the time between two requests is as long as a boot, the motors are checked before they are
// trusted again, although no motor has missed a reply.
func TestSlowTicksCompareEveryTime(t *testing.T) {
	a, l := armedLine(t)
	l.read(a)
	l.servos[3].mem[41] = 0 // the servo has restarted, booted with torque, and lost the values of its RAM
	l.Advance(bootMin - 10*time.Millisecond)
	l.read(a)
	rttest.Want(t, a.Unchecked(), 0, "doubted after less than a boot")
	for range mismatchReads {
		l.Advance(bootMin)
		l.read(a)
	}
	if a.Unchecked() != 4 || a.Restarted() != 4 {
		t.Errorf("%06b doubted, want motor 3, restarted", a.Unchecked())
	}
}

// A joint with priority in every tick, such as a joint that sags by some degrees, gets every second
// window. The other windows are still read in turn.
func TestAttentionLeavesTheOthersWatched(t *testing.T) {
	a, l := bounded(t, robot.Bounds{HotAct: 60})
	l.servos[5].mem[63] = 61
	for n := 0; a.Fatal() == nil; n++ {
		if n > 3*look*boundReads {
			t.Fatal("motor 5 is too hot, motor 1 wants attention, and nobody looks at motor 5")
		}
		a.Prioritize(1)
		reads(a, l, 1)
	}
	l.servos[1].put(60, 400) // the motor works harder
	for n := 0; a.Effort(0, 0) < 0.4; n++ {
		if n > 3*int(healthEvery/(10*time.Millisecond)) {
			t.Fatalf("effort %v after %d reads, want 0.4 within three looks", a.Effort(0, 0), n)
		}
		a.Prioritize(1)
		reads(a, l, 1)
	}
}
