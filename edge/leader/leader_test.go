package leader

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// stand holds a leader on a simulated bus. The test runs its cycles, unless it calls Run.
type stand struct {
	*Leader
	t     *testing.T
	bus   *servosim.Bus
	hand  *sim.Hand
	judge *referee.Referee
	arm   *hotplug.Arm
	place []float32
	offs  atomic.Int32 // writes that switched torque off

	mu   sync.Mutex
	said []string
}

const middle = 2048

func (s *stand) now() rt.Instant { return s.cfg.Clock.Now() }

// newStand returns a leader that is read every 10 ms; change may be nil.
func newStand(t *testing.T, name string, change func(*Config)) *stand {
	t.Helper()
	rttest.RealTime(t) // a simulated motor whose thread does not run in time counts as silent
	r, err := robot.ByName(name)
	rttest.Do(t, err)
	s := &stand{t: t, hand: sim.NewHand(len(r.Motors), middle), place: make([]float32, len(r.Motors))}
	sim := servosim.Config{Plant: s.hand, Link: filepath.Join(t.TempDir(), name), BootTime: 50 * time.Millisecond}
	judged := referee.Config{Period: ReadEvery}
	c := servo.Calibration{}
	for _, m := range r.Motors {
		sim.Servos = append(sim.Servos, servosim.Servo{ID: m.ID, Model: m.Model.Name})
		k := servo.MotorCalibration{ID: int(m.ID), RangeMax: m.Model.MaxRaw()}
		unit := 4096. / 360
		if m.Norm == robot.Range0100 {
			k.RangeMin = 1000
			k.RangeMax = 3000
			unit = 20
		}
		c[m.Name] = k
		judged.Joints = append(judged.Joints, referee.Joint{
			ID:       m.ID,
			Name:     m.Name,
			Min:      k.RangeMin,
			Max:      k.RangeMax,
			Velocity: 0.12 * m.MaxVelocity * unit,
			Degree:   4096. / 360,
		})
		s.place[len(judged.Joints)-1] = 0
		if m.Norm == robot.Range0100 {
			s.place[len(judged.Joints)-1] = 50
		}
	}
	s.judge = referee.New(judged)
	if name == "so101_leader" {
		sim.Watch = func(e *servosim.Event) {
			s.judge.Watch(e)
			if e.Addr == 40 && len(e.Data) == 1 && e.Data[0] == 0 && !e.NotReceived {
				s.offs.Add(1)
			}
		}
	}
	s.bus = servosimtest.Open(t, sim)
	cfg := servo.ArmConfig{Path: sim.Link, Robot: r, Calibration: c, Clock: rt.KernelClock()}
	arm := rttest.Must(servo.OpenArm(cfg))(t)
	s.arm = hotplug.New(arm, cfg, cfg.Clock)
	t.Cleanup(func() { s.arm.Close() })
	how := Config{Arm: s.arm, Robot: r, Clock: cfg.Clock, Every: ReadEvery, Say: func(_ bool, text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.said = append(s.said, text)
	}}
	if change != nil {
		change(&how)
	}
	s.Leader = New(how)
	s.judge.FirstChunk(0)
	return s
}

// says reports whether the leader has reported a text with these words.
func (s *stand) says(words string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.said, func(text string) bool { return strings.Contains(text, words) })
}

// until runs cycles until the function so accepts the leader's pose.
func (s *stand) until(what string, so func(*Pose) bool) {
	s.t.Helper()
	clock := s.cfg.Clock
	for end := clock.Now().Add(20 * time.Second); ; {
		now := clock.Now()
		s.cycle(now)
		if so(s.Pose()) {
			return
		}
		if now > end {
			s.t.Fatalf("never %s: %+v, it says %q", what, *s.Pose(), s.said)
		}
		clock.SleepUntil(now.Add(s.cfg.Every))
	}
}

func (s *stand) cycles(n int) {
	s.t.Helper()
	s.until(fmt.Sprintf("%d cycles", n), func(*Pose) bool { n--; return n < 0 })
}

func (s *stand) want(number uint32, align bool) {
	s.Want(s.now(), number, align, s.place)
}

// arrive brings the leader to the follower's pose, where it waits for a hand.
func (s *stand) arrive() {
	s.want(1, true)
	s.until("there", func(*Pose) bool { return s.align != nil && s.align.settled != nil })
}

// keepOpen reopens the leader's port until the test ends.
func (s *stand) keepOpen() {
	var ending atomic.Bool
	kept := make(chan struct{})
	go func() { defer close(kept); s.arm.KeepOpen(&ending, slog.New(slog.DiscardHandler)) }()
	s.t.Cleanup(func() { ending.Store(true); <-kept })
}

func (s *stand) stiff() bool { return slices.Contains(s.bus.TorqueEnabled(), true) }

// Goal: an actuated leader moves slowly to the follower's pose, and is limp there before it leads.
func TestLeaderIsBroughtToTheFollower(t *testing.T) {
	t.Parallel()
	s := newStand(t, "so101_leader", nil)
	for j := range s.place {
		s.place[j] += 20
	}
	for round := range uint32(3) {
		s.judge.Consent(s.now())
		began, from := s.now(), middle
		if round > 0 {
			s.hand.Move(began, from, 1e5)
			s.cycles(3)
		}
		s.want(round+1, true)
		driven := false
		s.until("brought there", func(p *Pose) bool {
			driven = driven || p.State == Driven && s.stiff()
			return p.State == Ready && p.Order == round+1
		})
		if !driven || s.Pose().Stiff || s.stiff() {
			t.Errorf("driven %v, stiff %v, torque %v: want it driven there, and limp", driven, s.Pose().Stiff,
				s.bus.TorqueEnabled())
		}
		if _, far := farthest(s.Pose().Joints, s.place); far > alignNear {
			t.Errorf("it is %.1f units from the follower, want at most %v", far, alignNear)
		}
		if took := s.now().Sub(began); took < 400*time.Millisecond {
			t.Errorf("it took %v for 12 degrees of 20, want 30 degrees a second", took)
		}
		s.want(round+1, false)
		s.cycles(2)
	}
	v := s.judge.Verdict()
	if len(v.Kept) > 0 || v.Goals == 0 {
		t.Errorf("the referee saw %d goals and says %v", v.Goals, v.Kept)
	}
}

// Goal: when the tick withdraws its order, the leader is limp at once.
func TestLeaderThatIsNotWantedAnyMore(t *testing.T) {
	t.Parallel()
	s := newStand(t, "so101_leader", nil)
	s.place[0] = 60
	s.want(1, true)
	s.until("under torque", func(*Pose) bool { return s.stiff() })
	s.want(1, false)
	s.cycles(2)
	if s.stiff() || s.Pose().State != Limp || s.Pose().Stiff {
		t.Errorf("torque %v, %+v: want it limp", s.bus.TorqueEnabled(), *s.Pose())
	}
}

// Goal: a leader that cannot arrive, or is outside its range, reports the joint and is limp.
func TestLeaderThatDoesNotGetThere(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		long       bool // the leader takes the longest permitted time
		prevent    func(*stand)
	}{
		{"blocked", "its shoulder_lift is at", true, func(s *stand) {
			s.bus.Block(2, middle, true)
			s.place[1] = 40
		}},
		{"outside its range", "gripper is at", false, func(s *stand) { s.hand.Move(s.now(), 900, 1e6) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.long && testing.Short() {
				t.Skip()
			}
			s := newStand(t, "so101_leader", nil)
			tt.prevent(s)
			s.cycles(3)
			s.want(1, true)
			s.until("given up", func(p *Pose) bool { return p.State == Failed })
			s.cycles(2)
			if !s.says(tt.says) || !s.says("edge-rt ctl correct tries again") || s.stiff() || s.Pose().Order != 1 {
				t.Errorf("torque %v, it says %q", s.bus.TorqueEnabled(), s.said)
			}
		})
	}
}

// Goal: a leader that was unplugged under torque is made limp as soon as it is back, and does not lead before.
func TestLeaderUnpluggedUnderTorque(t *testing.T) {
	t.Parallel()
	s := newStand(t, "so101_leader", nil)
	s.keepOpen()
	s.place[0] = 80
	s.want(1, true)
	s.until("under torque", func(*Pose) bool { return s.stiff() })
	s.bus.Unplug()
	s.until("given up", func(p *Pose) bool { return p.State == Failed && p.Stiff })
	if !s.stiff() || !s.says("stays as it is until it is plugged in again") {
		t.Fatalf("torque %v: what is simulated keeps torque without its adapter; it says %q", s.bus.TorqueEnabled(),
			s.said)
	}
	s.want(1, false)
	s.bus.Replug()
	s.until("limp", func(p *Pose) bool { return !p.Stiff })
	if s.stiff() || !s.says("the leader is back") {
		t.Errorf("torque %v, it says %q", s.bus.TorqueEnabled(), s.said)
	}
	before := s.Pose().At
	s.cycles(2)
	if s.Pose().At <= before {
		t.Error("it is not read any more")
	}
	s.judge.Consent(s.now())
	s.want(2, true)
	s.until("brought there", func(p *Pose) bool { return p.State == Ready })
}

// Goal: a leader that was limp before its absence is made limp after it, too, because its motors may have torque.
func TestLeaderThatComesBack(t *testing.T) {
	t.Parallel()
	s := newStand(t, "so101_leader", nil)
	s.keepOpen()
	s.cycles(3)
	before := s.offs.Load()
	s.bus.Unplug()
	s.until("away", func(*Pose) bool { return s.arm.Away() })
	s.bus.Replug()
	s.until("let go", func(*Pose) bool { return s.offs.Load() >= before+6 })
	if s.Pose().Stiff {
		t.Error("it counts as stiff")
	}
}

// Goal: a leader is not Ready before all motors have confirmed that they are limp.
func TestStiffLeaderIsNotReady(t *testing.T) {
	t.Parallel()
	s := newStand(t, "so101_leader", nil)
	s.place[0] = 10
	s.want(1, true)
	s.until("near", func(p *Pose) bool { return s.align != nil && s.align.there != 0 })
	s.bus.Mute(4, true) // the motor does not receive anything, either
	s.until("to be handed over", func(p *Pose) bool { return s.align == nil })
	s.cycles(5)
	if p := s.Pose(); !p.Stiff || !s.says("may be stiff") {
		t.Errorf("%+v, it says %q: motor 4 is under torque", *p, s.said)
	}
	s.bus.Mute(4, false)
	s.until("limp", func(p *Pose) bool { return !p.Stiff })
	if s.stiff() {
		t.Errorf("torque %v", s.bus.TorqueEnabled())
	}
}

// Goal: with Push a hand that moves the limp leader takes over. The leader is then held at the follower's pose until
// the hand moves it again. A slow motion does not count as a hand.
func TestAPushTakesOver(t *testing.T) {
	t.Parallel()
	s := newStand(t, "so101_leader", func(c *Config) { c.Push = true })
	s.hand.Move(s.now(), middle+150, 60) // 13 degrees in 2.5 s
	s.cycles(250)
	if n := s.Pose().Pushes; n != 0 {
		t.Fatalf("%d pushes by what sinks, want 0", n)
	}
	s.hand.Move(s.now(), middle+400, 2000)
	s.until("felt", func(p *Pose) bool { return p.Pushes == 1 })
	s.arrive()
	s.cycles(50)
	if !s.stiff() || s.Pose().State != Driven {
		t.Fatalf("torque %v, %+v: want it held until somebody takes it", s.bus.TorqueEnabled(), *s.Pose())
	}
	s.hand.Bend(60)
	s.until("handed over", func(p *Pose) bool { return p.State == Ready && !p.Stiff })
	if s.stiff() {
		t.Errorf("torque %v", s.bus.TorqueEnabled())
	}
}

// Goal: a late motion of the motors towards the follower's pose does not count as a hand. A motion away from this pose
// counts as a hand.
func TestALateArrivalIsNoHand(t *testing.T) {
	place := []float32{0, 0}
	a := &alignment{arm: &follow.Follower{Place: place}, settled: []float32{7, 0}}
	l := &Leader{align: a, leading: NewLeading(rttest.Must(robot.ByName("so101_leader"))(t))}
	for _, tt := range []struct {
		at   float32
		hand bool
	}{{7, false}, {2, false}, {-3, false}, {2, false}, {5, true}} {
		place[0] = tt.at
		l.checkArrival(rt.Instant(time.Second), &order{Place: []float32{0, 0}})
		if hand := l.align == nil; hand != tt.hand {
			t.Errorf("a joint at %v of 0 is a hand's: %v, want %v", tt.at, hand, tt.hand)
		}
	}
}

// Goal: without a hand the leader is limp after a while.
func TestHandThatDoesNotCome(t *testing.T) {
	t.Parallel()
	s := newStand(t, "so101_leader", func(c *Config) { c.Push = true })
	s.arrive()
	s.align.by = s.now()
	s.until("given up", func(p *Pose) bool { return p.State == Failed })
	if s.stiff() || !s.says("no hand took it") {
		t.Errorf("torque %v, it says %q", s.bus.TorqueEnabled(), s.said)
	}
}

// Goal: the leader is limp after its thread has ended, whatever the reason.
func TestRunLetsGo(t *testing.T) {
	for _, name := range []string{"asked", "panic"} {
		t.Run(name, func(t *testing.T) {
			clock := &breaking{Clock: rt.KernelClock()}
			s := newStand(t, "so101_leader", func(c *Config) { c.Clock = clock })
			s.place[0] = 80
			s.want(1, true)
			var ending atomic.Bool
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				if err := s.Run(&ending, func() bool { return false }); err != nil {
					t.Error(err)
				}
			}()
			rttest.Eventually(t, "under torque", s.stiff)
			if name == "panic" {
				clock.now.Store(true)
			} else {
				ending.Store(true)
			}
			if p := <-ended; (p != nil) != (name == "panic") {
				t.Errorf("it ended with %v", p)
			}
			if s.stiff() {
				t.Errorf("torque %v at the end", s.bus.TorqueEnabled())
			}
		})
	}
}

// breaking is a clock that panics once, as soon as the test has set c.now.
type breaking struct {
	rt.Clock
	now atomic.Bool
}

func (c *breaking) SleepUntil(at rt.Instant) {
	if c.now.Swap(false) {
		panic("a mistake of ours")
	}
	c.Clock.SleepUntil(at)
}

// Goal: a leader that is not actuated never gets torque, except for its trigger, which is released
// at the end.
func TestLeaderWithATrigger(t *testing.T) {
	t.Parallel()
	s := newStand(t, "koch_leader", nil)
	rttest.Do(t, s.arm.Arm().HoldTriggers())
	s.cycles(5)
	if on := s.bus.TorqueEnabled(); !slices.Equal(on, []bool{false, false, false, false, false, true}) ||
		s.Actuated() || s.Pose().At == 0 {
		t.Errorf("torque %v, actuated %v, %+v: want the trigger alone", on, s.Actuated(), *s.Pose())
	}
	var ending atomic.Bool
	ending.Store(true)
	if err := s.Run(&ending, func() bool { return false }); err != nil || s.stiff() {
		t.Errorf("%v, torque %v at the end", err, s.bus.TorqueEnabled())
	}
}

func TestInterval(t *testing.T) {
	for _, tt := range []struct {
		cycle, every time.Duration
		fails        bool
	}{{time.Millisecond, ReadEvery, false}, {17 * time.Millisecond, 34 * time.Millisecond, false},
		{40 * time.Millisecond, 0, true}} {
		if every, err := Interval(tt.cycle); every != tt.every || (err != nil) != tt.fails {
			t.Errorf("Interval(%v) = %v, %v, want %v", tt.cycle, every, err, tt.every)
		}
	}
}

// Goal: the tick's two calls allocate nothing.
func TestPoseAndWantAllocateNothing(t *testing.T) {
	s := newStand(t, "so101_leader", nil)
	at := rt.Instant(0)
	rttest.NoAllocs(t, "%v allocations, want 0", 100, func() {
		at++
		s.Want(at, 0, false, s.place)
		_ = s.Pose()
	})
	now := s.now()
	rttest.NoAllocs(t, "a cycle of a limp leader allocates %v times, want 0: the run counts all that the process "+
		"allocates", 50, func() {
		now = s.now()
		s.cycle(now)
	})
}
