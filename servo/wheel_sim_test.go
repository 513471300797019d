package servo_test

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// spins holds the present goal velocities of a bus's wheels, 0 for a limp wheel, and the highest one so far.
type spins struct {
	mu   sync.Mutex
	now  [10]int // present goal velocity by id
	most int
}

func (s *spins) watch(e *servosim.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now[e.ID] = 0; e.After.Torque {
		s.now[e.ID] = e.After.Spin
	}
	s.most = max(s.most, s.now[e.ID], -s.now[e.ID])
}

func (s *spins) read() (now []int, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.now[7:]), s.most
}

func lekiwi(t *testing.T) (robot.Robot, *servosim.Bus, *spins) {
	t.Helper()
	r := rttest.Must(robot.ByName("lekiwi"))(t)
	wheels := new(spins)
	return r, simOf(t, r, servosim.Config{Wheels: 3, Watch: wheels.watch}), wheels
}

// drive sends the same goals for the time d, and returns the last state that it has read.
func drive(t *testing.T, arm *servo.Arm, goal []float32, joints robot.Joints, d time.Duration) []float32 {
	t.Helper()
	clock, at := rt.KernelClock(), make([]float32, len(goal))
	for end := clock.Now().Add(d); clock.Now() < end; clock.SleepUntil(clock.Now().Add(10 * time.Millisecond)) {
		tick(t, arm, at)
		arm.Write(goal, joints)
	}
	return at
}

func TestABaseDrives(t *testing.T) {
	r, bus, wheels := lekiwi(t)
	arm := mustOpen(t, config(bus, r))
	checkTorque(t, bus, "after the opening", false)
	torqueOn(t, arm)
	if now, most := wheels.read(); most != 0 {
		t.Fatalf("a wheel got goal velocity %d while it was armed, now %v", most, now)
	}
	goal := make([]float32, 9)
	arm.Goals(goal)
	copy(goal[6:], []float32{0.1, 0, 30})
	at := drive(t, arm, goal, arm.Joints(), 600*time.Millisecond)
	k := r.Base.Kinematics(4096)
	want, _ := k.Wheels([3]float64{0.1, 0, 30})
	if now, _ := wheels.read(); !slices.Equal(now, want[:]) {
		t.Errorf("goal velocities %v, want %v", now, want)
	}
	for i, tolerance := range []float64{0.02, 0.02, 5} {
		if d := float64(at[6+i] - goal[6+i]); math.Abs(d) > tolerance {
			t.Errorf("%s is %v, want about %v", r.ActionNames()[6+i], at[6+i], goal[6+i])
		}
	}
	arm.Goals(at)
	if math.Abs(float64(at[6]-0.1)) > 1e-3 || math.Abs(float64(at[8]-30)) > 0.1 {
		t.Errorf("Goals() = %v", at[6:])
	}
	drive(t, arm, goal, arm.Joints()&^(1<<7), 30*time.Millisecond)
	if now, _ := wheels.read(); now[0] != 0 || now[1] != want[1] || now[2] != 0 {
		t.Errorf("goal velocities %v with goals for two of three wheels, want 0 for these", now)
	}
	drive(t, arm, goal, arm.Joints(), 30*time.Millisecond)
	arm.Close() // --on-exit hold closes the port in the same way
	time.Sleep(20 * time.Millisecond)
	checkTorque(t, bus, "after the port was closed", true)
	if now, _ := wheels.read(); !slices.Equal(now, []int{0, 0, 0}) {
		t.Errorf("goal velocities %v after the port was closed, want 0", now)
	}
}

// Goal: a base that a killed run has left turning stops when OpenArm opens it, and when Release makes it limp, also
// without the base's description.
func TestABaseLeftTurning(t *testing.T) {
	r, bus, wheels := lekiwi(t)
	mustOpen(t, config(bus, r)).Close()
	turn := func() {
		onBus(t, bus, r, func(b *servo.Bus) {
			for _, m := range r.Motors[6:] {
				write(t, b, m, table.TorqueEnable, 1)
				write(t, b, m, table.GoalVelocity, -700)
			}
		})
	}
	turn()
	if now, _ := wheels.read(); !slices.Equal(now, []int{-700, -700, -700}) {
		t.Fatalf("goal velocities %v", now)
	}
	arm := mustOpen(t, config(bus, r))
	if now, _ := wheels.read(); !slices.Equal(now, []int{0, 0, 0}) || !strings.Contains(strings.Join(arm.Notes(), "\n"),
		"base_back_wheel) was left turning with Goal_Velocity -700; it is stopped") {
		t.Errorf("goal velocities %v, notes %q", now, arm.Notes())
	}
	arm.Close()
	turn()
	onBus(t, bus, r, func(b *servo.Bus) {
		rttest.Do(t, servo.Release(b, r))
		for _, m := range r.Motors[6:] {
			if v, _, err := b.ReadRegister(m.ID, m.Model.Row(table.GoalVelocity)); v != 0 || err != nil {
				t.Errorf("goal velocity %d of %s after Release, %v", v, m.Name, err)
			}
		}
	})
	checkTorque(t, bus, "after Release", false)
	turn()
	onBus(t, bus, r, func(b *servo.Bus) {
		rttest.Do(t, servo.Release(b, robotOf(t, "so101")))
		rttest.Do(t, b.Ping(9)) // answered after the command to all motors
	})
	checkTorque(t, bus, "after Release of an SO-101", false)
}

func TestABaseAllocatesNothing(t *testing.T) {
	r, bus, _ := lekiwi(t)
	arm := mustOpen(t, config(bus, r))
	torqueOn(t, arm)
	at := make([]float32, 9)
	arm.SetPeriod(20 * time.Millisecond)
	rttest.NoAllocs(t, "%v allocations a cycle", 20, func() {
		arm.Read(at, rt.KernelClock().Now().Add(40*time.Millisecond))
		arm.Write(at, arm.Joints())
	})
}
