package follow

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

const (
	simPeriod   = 20 * time.Millisecond
	simPatience = 30 * time.Second // a test waits as long as this only if it fails
)

// simArm is a Follower on simulated motors and a referee. Where real motors differ, the simulated ones behave in the
// way that is harder for a driver. The referee checks the commands that the motors receive.
type simArm struct {
	*Follower
	t       *testing.T
	bus     *servosim.Bus
	arm     *hotplug.Arm
	referee *referee.Referee
	robot   robot.Robot
	tick    rt.Tick
	want    []float32
	events  *event.Queue
	begins  bool // chunks of a policy arrive
}

// newSimArm opens an SO-101 with its joints in the middle of their ranges.
func newSimArm(t *testing.T, motors servosim.Config, change func(*servo.ArmConfig, *Config)) *simArm {
	t.Helper()
	rttest.RealTime(t) // the simulated motors run in real time, by which silences and stalls are judged
	if testing.Short() {
		t.Skip("seconds of real time")
	}
	r, err := robot.ByName("so101")
	rttest.Do(t, err)
	a := &simArm{t: t, robot: r, want: make([]float32, len(r.Motors))}
	judge := referee.Config{Period: simPeriod}
	cfg := servo.ArmConfig{Robot: r, Calibration: servo.Calibration{}}
	for _, m := range r.Motors {
		c := servo.MotorCalibration{ID: int(m.ID), RangeMin: 200, RangeMax: 3900}
		cfg.Calibration[m.Name] = c
		j := referee.Joint{ID: m.ID, Name: m.Name, Min: c.RangeMin, Max: c.RangeMax, Degree: 4095. / 360}
		j.Velocity = m.MaxVelocity * j.Degree
		if m.Norm == robot.Range0100 {
			j.Velocity = m.MaxVelocity * float64(c.RangeMax-c.RangeMin) / 100
		}
		judge.Joints = append(judge.Joints, j)
	}
	a.referee = referee.New(judge)
	motors.Link = filepath.Join(t.TempDir(), "arm")
	motors.Watch = a.referee.Watch
	motors.BootTime = 200 * time.Millisecond
	a.bus = servosimtest.Open(t, motors)
	cfg.Path, cfg.Clock = motors.Link, rt.KernelClock()
	a.events = event.NewQueue(1024)
	how := Config{Period: simPeriod, Safety: r.Safety, Events: a.events}
	if change != nil {
		change(&cfg, &how)
	}
	arm := rttest.Must(servo.OpenArm(cfg))(t)
	a.arm = hotplug.New(arm, cfg, rt.KernelClock())
	how.Gate = NewGate(arm, simPeriod)
	a.Follower = New(a.arm, how, len(r.Motors))
	ending := new(atomic.Bool)
	ended := make(chan struct{})
	go func() { a.arm.KeepOpen(ending, slog.New(slog.DiscardHandler)); close(ended) }()
	t.Cleanup(func() { ending.Store(true); <-ended; a.arm.Close() })
	a.tick.Deadline = rt.KernelClock().Now()
	a.referee.FirstChunk(a.tick.Deadline)
	a.begins = true
	return a
}

// step is one tick of a run whose policy sends a.want.
func (a *simArm) step() error {
	clock := rt.KernelClock()
	a.tick.Deadline = max(a.tick.Deadline.Add(simPeriod), clock.Now())
	clock.SleepUntil(a.tick.Deadline)
	a.tick.Woke = clock.Now()
	a.ReadBy(a.tick, a.tick.Deadline.Add(simPeriod-Reserve(simPeriod)))
	switch a.Phase {
	case Unarmed:
		if a.begins && !a.NeedsResume() {
			a.StartArming()
		}
	case Arming:
		_, err := a.ArmStep(a.tick)
		return err
	case Armed:
		if a.rescuing() {
			return a.rescueStep(a.tick.Woke)
		}
		a.DriveAt(a.tick.Woke, a.want, 1)
	case Parking:
		a.parkStep(a.tick.Woke, false)
	}
	return nil
}

// until runs ticks until a condition holds.
func (a *simArm) until(what string, holds func() bool) {
	a.t.Helper()
	for end := time.Now().Add(simPatience); !holds(); {
		if time.Now().After(end) {
			a.t.Fatalf("%s: not within %v; phase %v, joints %v, at %v, goals %v, last attempt to open: %v", what,
				simPatience, a.Phase, a.joints, a.Place, a.Goal, a.arm.OpenError())
		}
		if err := a.step(); err != nil {
			a.t.Fatalf("%s: %v", what, err)
		}
	}
}

func (a *simArm) during(d time.Duration) {
	a.t.Helper()
	end := time.Now().Add(d)
	a.until("a while", func() bool { return time.Now().After(end) })
}

// clean fails the test if a command broke a rule, or if a jump of a joint was reported.
func (a *simArm) clean() {
	a.t.Helper()
	for _, e := range jumps(a.events) {
		from, to := event.WayOf(e.B)
		a.t.Errorf("joint %b jumped from %v to %v", e.A, from, to)
	}
	a.referee.CheckAt(rt.KernelClock().Now())
	v := a.referee.Verdict()
	if v.Goals == 0 {
		a.t.Error("the referee saw no goal")
	}
	for _, k := range v.Kept {
		a.t.Errorf("%v", k)
	}
}

func (a *simArm) unplug() {
	a.t.Helper()
	rttest.PanicOn(a.bus.Unplug())
	a.until("away", a.arm.Away)
}

func (a *simArm) replug() {
	a.t.Helper()
	rttest.PanicOn(a.bus.Replug())
}

func (a *simArm) armedAgain() {
	a.t.Helper()
	a.until("armed again", func() bool { return !a.arm.Away() && a.Phase == Armed })
}

func (a *simArm) inject(f servosim.Fault) {
	a.t.Helper()
	rttest.PanicOn(a.bus.Inject(servosim.Script{Faults: []servosim.Fault{f}}))
}

// drivenArm returns an arm of default motors that has gone to its first goals.
func drivenArm(t *testing.T) *simArm {
	t.Helper()
	a := newSimArm(t, servosim.Config{}, nil)
	a.drive()
	return a
}

func (a *simArm) drive() {
	a.t.Helper()
	a.until("armed", func() bool {
		if a.NeedsResume() { // busy machine: a motor was silent, and may have restarted if it has no marker
			a.referee.Consent(a.tick.Woke)
			a.Resume()
		}
		return a.Phase == Armed
	})
	for j := range a.want {
		a.want[j] = a.Place[j] + 8
	}
	a.until("there", func() bool { return within(a.Goal, a.want, 0.5) })
	a.during(300 * time.Millisecond)
}

func within(a, b []float32, reach float32) bool {
	for j := range a {
		if d := a[j] - b[j]; d > reach || d < -reach {
			return false
		}
	}
	return true
}

// Goal: when the supply goes off, the arm sags and the supply returns, no joint moves until an operator resumes the
// run. Then the motion begins at the arm's place. The documents disagree on whether writing a goal switches torque on,
// and on whether servos boot with torque.
func TestPowerBlip(t *testing.T) {
	t.Parallel()
	for _, goalTakes := range []bool{true, false} {
		for _, boots := range []bool{true, false} {
			for _, ids := range [][]uint8{nil, {2}} {
				if ids != nil && goalTakes != boots {
					continue
				}
				t.Run(fmt.Sprintf("goal takes torque %v, boots with torque %v, motors %v", goalTakes, boots, ids),
					func(t *testing.T) {
						t.Parallel()
						cfg := servosim.Config{GoalLeavesTorque: !goalTakes}
						if boots {
							cfg.BootTorque = []uint8{1, 2, 3, 4, 5, 6}
						}
						a := newSimArm(t, cfg, nil)
						a.drive()
						a.bus.Power(false, ids...)
						a.during(300 * time.Millisecond)
						a.bus.Power(true, ids...)
						a.until("the arm waits for an operator", a.NeedsResume)
						before := a.bus.States()
						a.during(500 * time.Millisecond)
						for i, s := range a.bus.States() {
							if d := s.Position - before[i].Position; boots && (d > 3 || d < -3) {
								t.Errorf("motor %d moved %d counts without an operator", s.ID, d)
							}
							if !boots && (ids == nil || s.ID == 2) && s.Torque {
								t.Errorf("motor %d has torque without an operator", s.ID)
							}
						}
						a.referee.Consent(rt.KernelClock().Now())
						a.Resume()
						a.armedAgain()
						a.during(300 * time.Millisecond)
						a.clean()
					})
			}
		}
	}
}

// Goal: unplugging, a power cycle and plugging in again are a restart, each time.
func TestPowerCycleWhileUnplugged(t *testing.T) {
	t.Parallel()
	a := drivenArm(t)
	for range 3 {
		a.unplug()
		a.bus.Power(false)
		a.during(300 * time.Millisecond)
		a.bus.Power(true)
		a.during(300 * time.Millisecond)
		a.replug()
		a.until("back", func() bool { return !a.arm.Away() })
		a.during(200 * time.Millisecond)
		if !a.NeedsResume() || a.Phase != Unarmed {
			t.Fatalf("waits %v, phase %v: taken for a replug", a.NeedsResume(), a.Phase)
		}
		a.referee.Consent(rt.KernelClock().Now())
		a.Resume()
		a.armedAgain()
	}
	a.clean()
}

// neverStalls changes the configuration of a test arm so that no joint counts as stalled.
func neverStalls(_ *servo.ArmConfig, c *Config) { c.Safety.StallFor = time.Hour }

// Goal: a gripper that holds an object keeps its force when its protection trips. It opens when a goal opens it, and is
// then no longer overloaded.
func TestOverloadedGripper(t *testing.T) {
	t.Parallel()
	a := newSimArm(t, servosim.Config{}, neverStalls)
	const gripper = 5
	a.drive()
	states := a.bus.States()
	a.bus.Block(6, states[gripper].Position-100, true)
	a.want[gripper] = 5 // closes
	a.until("overload", func() bool { return a.joints[gripper]&Overloaded != 0 })
	a.during(500 * time.Millisecond)
	if goal := a.Goal[gripper]; goal > a.Place[gripper] {
		t.Errorf("goal %v at %v: it does not press any more", goal, a.Place[gripper])
	}
	rttest.Want(t, a.bus.Counters().Dropped, 0, "objects that the gripper dropped")
	a.want[gripper] = 70
	a.referee.PolicyGoal(rt.KernelClock().Now(), 6, 2800)
	a.until("opens", func() bool { return a.Place[gripper] > 65 })
	a.until("the complaint goes", func() bool { return a.joints[gripper]&Overloaded == 0 })
	a.clean()
}

// Goal: if a motor reports an overload at its goal, the goal gives no direction of the push. The joint still moves, and
// an operator can make its motor forget the overload.
func TestOverloadWithoutADirection(t *testing.T) {
	t.Parallel()
	a := drivenArm(t)
	trip := func() {
		rttest.Do(t, a.bus.Inject(servosim.Script{Faults: []servosim.Fault{{Kind: "overload",
			IDs: []uint8{3}}}}))
		a.until("overload", func() bool { return a.joints[elbow]&Overloaded != 0 })
	}
	trip()
	a.want[elbow] = -15
	a.referee.PolicyGoal(rt.KernelClock().Now(), 3, 1880)
	a.until("the joint follows", func() bool { return a.Place[elbow] < -12 })
	a.clean() // the referee does not expect that an operator switches the torque off and on
	trip()
	at := a.bus.States()[elbow].Position
	told := make(chan error)
	go func() {
		_, err := One(a.Follower).Unload(a.robot, "elbow_flex")
		told <- err
	}()
	a.until("it is unloaded", func() bool {
		select {
		case err := <-told:
			if err != nil {
				t.Error(err)
			}
			return true
		default:
			return false
		}
	})
	a.until("the complaint goes", func() bool { return a.joints[elbow]&Overloaded == 0 })
	a.during(100 * time.Millisecond)
	if s := a.bus.States()[elbow]; !s.Torque || s.Fault != 0 || a.NeedsResume() || s.Position-at > 40 ||
		at-s.Position > 40 {
		t.Errorf("%+v, was at %d, waits %v: want it under torque where it was", s, at, a.NeedsResume())
	}
}

// Goal: a joint with a faulty encoder is not driven, not even at the end of the run, and the run ends.
func TestEncoderFault(t *testing.T) {
	t.Parallel()
	a := drivenArm(t)
	rttest.Do(t, a.bus.Inject(servosim.Script{Faults: []servosim.Fault{{Kind: "encoder", IDs: []uint8{3},
		Offset: 600}}}))
	a.until("the run must end", func() bool { return a.Fatal() != nil })
	a.finish(a.tick.Woke)
	a.until("parked", func() bool { return a.Phase == Done })
	if a.Goal[0] > 3 {
		t.Errorf("the pan stands at %v, want it parked at 0", a.Goal[0])
	}
	a.clean()
}

// Goal: a joint that was made limp stays limp over further goals, and over a replug. Its Goal is its place. A replug is
// no restart.
func TestLimpJointOfMotors(t *testing.T) {
	t.Parallel()
	a := newSimArm(t, servosim.Config{}, neverStalls)
	a.drive()
	a.arm.DisableTorque(1 << 4)
	a.want[0] = -20
	a.during(500 * time.Millisecond)
	a.unplug()
	a.replug()
	a.armedAgain()
	a.want[0] = 20
	a.during(500 * time.Millisecond)
	if s := a.bus.States()[4]; s.Torque {
		t.Error("the limp joint has torque again")
	}
	if d := a.Goal[4] - a.Place[4]; d > 10 || d < -10 {
		t.Errorf("goal %v of a limp joint at %v: the policy is conditioned on it, and records show it", a.Goal[4],
			a.Place[4])
	}
	a.clean()
}

// Goal: an arm outside its range is refused with a reason. With Rescue the arm moves slowly into its range, even if its
// place is outside the range that its servo stores.
func TestOutsideOfMotors(t *testing.T) {
	t.Parallel()
	const most = 1800 // the joint is at 2048, 22 degrees outside
	for _, eeprom := range []bool{false, true} {
		t.Run(fmt.Sprintf("in the servo too %v", eeprom), func(t *testing.T) {
			t.Parallel()
			a := newSimArm(t, servosim.Config{}, narrowed(t, most, eeprom, false))
			var err error
			for range 50 {
				if err = a.step(); err != nil {
					break
				}
			}
			if !errors.Is(err, servo.ErrOutOfRange) || exit.Of(err) != exit.Fault {
				t.Errorf("arming: %v, want it refused with code 6", err)
			}
			if s := a.bus.States()[1]; s.Torque || s.Position < 2040 {
				t.Errorf("motor 2 at %d, torque %v: it was moved", s.Position, s.Torque)
			}
		})
		t.Run(fmt.Sprintf("rescued, in the servo too %v", eeprom), func(t *testing.T) {
			t.Parallel()
			a := newSimArm(t, servosim.Config{Fitted: true}, narrowed(t, most, eeprom, true))
			a.until("armed", func() bool { return a.Phase == Armed })
			copy(a.want, a.Goal)
			began, last := time.Now(), a.bus.States()[1].Position
			fastest := 0
			a.until("inside", func() bool {
				at := a.bus.States()[1].Position
				fastest, last = max(fastest, last-at), at
				return !a.rescuing()
			})
			if took := time.Since(began); took < time.Second || fastest > 30 {
				t.Errorf("22 degrees in %v, at most %d counts in a tick; want it slow", took, fastest)
			}
		})
	}
}

// Goal: after a lost reply a joint misses one or two goals, and never gets a wrong goal.
func TestLossyBus(t *testing.T) {
	t.Parallel()
	a := newSimArm(t, servosim.Config{Faults: servosim.Script{Seed: 7, Faults: []servosim.Fault{
		{Kind: "drop", Probability: new(0.1), From: 2 * time.Second},
		{Kind: "corrupt", Probability: new(0.05), From: 2 * time.Second},
	}}}, nil)
	a.drive()
	for n := range 6 {
		for j := range a.want {
			a.want[j] = float32(10 + 15*(n%2)*(1-2*(j%2)))
		}
		a.during(500 * time.Millisecond)
	}
	if a.NeedsResume() || a.Phase != Armed {
		t.Errorf("waits %v, phase %v", a.NeedsResume(), a.Phase)
	}
	a.clean()
}
