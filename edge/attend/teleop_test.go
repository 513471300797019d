package attend

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// hands hold a leader's joints and ignore goals.
type hands struct{ servosimtest.Shafts }

func (h *hands) Goal(rt.Instant, int, int) {}

// joints follow their goals at once.
type joints struct{ servosimtest.Shafts }

// simArm simulates an arm whose joints have one calibrated range.
func simArm(t *testing.T, name string, low, high int, sim servosim.Config) (device.Place, *servosim.Bus) {
	t.Helper()
	rttest.RealTime(t) // simulated motors answer within real time-outs
	r := rttest.Must(robot.ByName(name))(t)
	sim.Link = filepath.Join(t.TempDir(), name)
	c := servo.Calibration{}
	sim.Servos = device.SimBus(r, nil, nil).Servos
	for _, m := range r.Motors {
		mode, _ := m.Setting(table.DriveMode)
		c[m.Name] = servo.MotorCalibration{
			ID:        int(m.ID),
			DriveMode: mode,
			RangeMin:  low,
			RangeMax:  high,
		}
	}
	bus := servosimtest.Open(t, sim)
	file := sim.Link + ".json"
	rttest.Do(t, c.Save(file))
	return device.Place{Bus: sim.Link, Robot: r, Calibration: file}, bus
}

// pair returns a leader and a follower on the simulator. Their tests judge real time.
func pair(t *testing.T, name string) (cfg TeleopConfig, lead, follow *servosim.Bus, h *hands, f *joints) {
	t.Helper()
	rttest.RealTime(t) // both simulated buses answer within a period of 20 ms
	h, f = new(hands), new(joints)
	h.All(2047)
	f.All(2047)
	said := new(rttest.Output)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("teleop printed:\n%s", said)
		}
	})
	cfg = TeleopConfig{FPS: 50, Config: Config{
		RT:     rt.ModeOff,
		CPU:    rt.UnpinnedCPU,
		OnExit: "off",
		Out:    said,
		Log:    slog.New(slog.NewTextHandler(said, nil)),
	}}
	cfg.Leader, lead = simArm(t, name+"_leader", 0, 4095, servosim.Config{Plant: h})
	cfg.Arm, follow = simArm(t, name, 0, 4095, servosim.Config{Plant: f})
	cfg.Arm.ID = freshID()
	return cfg, lead, follow, h, f
}

// near reports whether all joints are within a few counts of raw.
func (p *joints) near(raw int) bool {
	for j := range 6 {
		if d := int(p.Raw[j].Load()) - raw; d > 3 || d < -3 {
			return false
		}
	}
	return true
}

// await waits until all joints are near raw.
func (p *joints) await(t *testing.T, what string, raw int) {
	t.Helper()
	rttest.Eventually(t, what, func() bool { return p.near(raw) })
}

// start begins a teleoperation; end ends it, and fails the test if Teleop returned an error.
func start(t *testing.T, cfg TeleopConfig) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := rttest.Go(func() error { return opened(ctx, t, func() error { return Teleop(ctx, cfg) }) })
	return func() {
		t.Helper()
		cancel()
		rttest.Do(t, <-done)
	}
}

// opened repeats a command while the machine is too busy to open its arms.
func opened(ctx context.Context, t *testing.T, run func() error) (err error) {
	for range 20 {
		if err = run(); ctx.Err() != nil || exit.Of(err) != exit.Absent && exit.Of(err) != exit.Config {
			break
		}
		t.Log("once more after: ", err)
	}
	return err
}

// teach calls start, and waits until the follower is under torque.
func teach(t *testing.T, cfg TeleopConfig, follow *servosim.Bus) (end func()) {
	t.Helper()
	end = start(t, cfg)
	awaitTorque(t, follow)
	return end
}

func awaitTorque(t *testing.T, b *servosim.Bus) {
	t.Helper()
	rttest.Eventually(t, "torque", func() bool { return !slices.Contains(b.TorqueEnabled(), false) })
}

// Goal: the follower follows the leader, survives an unplugged adapter on either side, and has no
// torque at the end.
func TestFollowerFollows(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"so101", "koch"} {
		t.Run(name, func(t *testing.T) {
			cfg, lead, follow, h, f := pair(t, name)
			end := teach(t, cfg, follow)
			h.All(2300)
			f.await(t, "follow", 2300)
			lead.Unplug()
			time.Sleep(250 * time.Millisecond) // longer than stillGone
			h.All(2100)
			time.Sleep(100 * time.Millisecond) // some ticks
			if !f.near(2300) {
				t.Error("the follower moved without its leader")
			}
			stagetest.CheckSays(t, cfg.Out.(*rttest.Output).String(), "the leader does not answer: the follower holds")
			lead.Replug()
			f.await(t, "follow again", 2100)
			follow.Unplug()
			h.All(2200)
			time.Sleep(250 * time.Millisecond) // longer than stillGone
			follow.Replug()
			f.await(t, "follow after its own reconnect", 2200)
			want := 0
			if name == "koch" {
				want = 1 // the gripper is a trigger
			}
			held := slices.DeleteFunc(lead.TorqueEnabled(), func(on bool) bool { return !on })
			rttest.Want(t, len(held), want, "motors of the leader under torque")
			end()
			if slices.Contains(follow.TorqueEnabled(), true) || slices.Contains(lead.TorqueEnabled(), true) {
				t.Errorf("torque %v and %v at the end, want none", follow.TorqueEnabled(), lead.TorqueEnabled())
			}
		})
	}
}

// A leader that was only silent is not opened again, so the findings of its opening are logged once.
func TestASilentLeaderHasNoNews(t *testing.T) {
	cfg, lead, follow, _, _ := pair(t, "so101")
	port := rttest.Must(servo.OpenPort(cfg.Leader.Bus, 1_000_000))(t)
	bus := servo.NewBus(port, 1_000_000, table.Feetech, rt.KernelClock())
	sts := rttest.Must(table.ByName("sts3215"))(t)
	rttest.Do(t, bus.WriteRegister(1, sts.Row(table.TorqueEnable), 1))
	port.Close()
	defer teach(t, cfg, follow)()
	said := cfg.Out.(*rttest.Output)
	for id := uint8(1); id <= 6; id++ {
		lead.Mute(id, true)
	}
	rttest.Eventually(t, "silence", func() bool { return strings.Contains(said.String(), "leader does not answer") })
	for id := uint8(1); id <= 6; id++ {
		lead.Mute(id, false)
	}
	rttest.Eventually(t, "an answer", func() bool { return strings.Contains(said.String(), "the leader answers") })
	rttest.Want(t, strings.Count(said.String(), "was under torque and was let go"), 1,
		"reports that motor 1 was under torque")
}

// The follower does not jump to a leader at another position.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	cfg, _, follow, h, f := pair(t, "so101")
	h.All(3000)
	end := teach(t, cfg, follow)
	last, began := int(f.Raw[0].Load()), time.Now()
	rttest.Eventually(t, "there", func() bool {
		now := int(f.Raw[0].Load())
		// The limit of 250 degrees per second times the slew's 0.3 is 17 raw steps a tick. Late ticks are skipped, not
		// made up for.
		if now-last > 17*12 {
			t.Errorf("the follower jumped from %d to %d", last, now)
		}
		last = now
		return f.near(3000)
	})
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("it took %v for 84 degrees, want the slow start", took)
	}
	end()
}

// Teleop names the cure when the ports of leader and follower are exchanged.
func TestExchangedArms(t *testing.T) {
	for _, name := range []string{"koch", "omx", "so101"} { // other models, other ids, and other calibrations
		cfg, _, _, _, _ := pair(t, name)
		if name == "so101" { // no flag names the calibrations
			t.Setenv("HF_LEROBOT_CALIBRATION", t.TempDir())
			for offset, place := range []*device.Place{&cfg.Leader, &cfg.Arm} {
				c := rttest.Must(servo.LoadCalibration(place.Calibration))(t)
				m := c["gripper"]
				m.HomingOffset = offset
				c["gripper"] = m
				rttest.Do(t, c.Save(servo.CalibrationPath(place.Robot, "a")))
				place.ID, place.Calibration = "", ""
			}
		}
		cfg.Leader.Bus, cfg.Arm.Bus = cfg.Arm.Bus, cfg.Leader.Bus
		rttest.Ends(t, Teleop(t.Context(), cfg), exit.Config, "exchanged, give --bus "+cfg.Leader.Bus+" --leader")
	}
}

func TestTeleopRefusals(t *testing.T) {
	good := TeleopConfig{
		FPS: 50,
		Config: Config{
			CPU:    rt.UnpinnedCPU,
			OnExit: "off",
			Arm:    device.Place{Bus: "/dev/a", Robot: so101(t)},
			Out:    new(strings.Builder),
		},
		Leader: device.Place{Bus: "/dev/b"},
	}
	for _, tt := range []struct {
		name   string
		change func(*TeleopConfig)
		code   exit.Code
		says   string
	}{
		{"no follower", func(c *TeleopConfig) { c.Arm.Bus = "" }, exit.Usage, "--bus"},
		{"no leader", func(c *TeleopConfig) { c.Leader.Bus = "" }, exit.Usage, "--leader"},
		{"no such CPU", func(c *TeleopConfig) { c.CPU = 4096 }, exit.Usage, "--cpu is 4096"},
		{"two cameras of one device", func(c *TeleopConfig) {
			c.Cameras = []capture.Config{{Name: "a", Source: "/dev/video97"}, {Name: "b", Source: "/dev/video97"}}
		}, exit.Usage, "a and b are both /dev/video97"},
		{"one port for both", func(c *TeleopConfig) { c.Leader.Bus = "/dev/a" }, exit.Usage, "own adapter"},
		{"a leader of another kind", func(c *TeleopConfig) {
			c.LeaderRobot = "koch_leader"
		}, exit.Config, "do not fit"},
		{"no such leader", func(c *TeleopConfig) { c.LeaderRobot = "r2d2" }, exit.Usage, "r2d2"},
		{"no calibration", func(c *TeleopConfig) {
			c.Leader.Calibration = "/none.json"
		}, exit.Config, "edge-rt calibrate"},
	} {
		cfg := good
		tt.change(&cfg)
		rttest.Ends(t, Teleop(t.Context(), cfg), tt.code, tt.says)
	}
}

// Teleop refuses a rate that the buses cannot keep before any motor has torque.
func TestARateThatTheBusesCannotKeep(t *testing.T) {
	t.Parallel()
	cfg, lead, follow, _, _ := pair(t, "so101")
	cfg.FPS = 600
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // ends an arm that is not refused
	defer cancel()
	rttest.Ends(t, Teleop(ctx, cfg), exit.Config, "the bus takes", "600 ticks per second", "lower --fps")
	rttest.Ends(t, Jog(ctx, cfg.Config, cfg.FPS), exit.Config, "600 ticks per second", "lower --fps")
	if slices.Contains(slices.Concat(lead.TorqueEnabled(), follow.TorqueEnabled()), true) {
		t.Error("a motor is under torque")
	}
}

// Ctrl-C ends the start while silent motors are queried, and the end is clean.
func TestInterruptedBeforeTheArmsAreThere(t *testing.T) {
	t.Parallel()
	cfg, lead, _, _, _ := pair(t, "so101")
	for id := range byte(6) {
		lead.Mute(id+1, true)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	rttest.Do(t, Teleop(ctx, cfg))
}

func TestTeleopTickNoAlloc(t *testing.T) {
	cfg, _, _, _, _ := pair(t, "so101")
	cfg.Record, cfg.RecordDir = record.Ring, t.TempDir()
	cfg.RecordSize = recording.MinSize
	s := &teleop{place: cfg.Leader, here: []device.Place{cfg.Leader}}
	s.source = s
	s.rate = 50
	s.period = 20 * time.Millisecond
	rttest.Do(t, s.begin(cfg.Config, teleoperated))
	defer s.close()
	rttest.Do(t, s.session.open(t.Context()))
	if ticksAllocateNothing(t, &s.session); s.step < 50 {
		t.Errorf("it followed in %d ticks, want in all that were measured", s.step)
	}
}

// ticksAllocateNothing arms the follower, checks that its ticks allocate nothing, and switches the torque off.
func ticksAllocateNothing(t *testing.T, s *session) {
	t.Helper()
	tick := func() {
		now := s.clock.Now()
		s.tick(rt.Tick{Deadline: now, Woke: now})
	}
	for n := 0; s.arm.Phase != follow.Armed && n < 200; n++ {
		tick()
	}
	if s.arm.Phase != follow.Armed {
		t.Fatal("the follower was never armed")
	}
	rttest.NoAllocs(t, "a tick allocates %v times, want 0", 50, tick)
	rttest.Do(t, s.arms[0].TorqueOff())
}

// faulty is a clock that panics in the loop that drives the arms, as soon as the test has set c.now.
type faulty struct {
	rt.Clock
	now atomic.Bool
}

func (c *faulty) SleepUntil(at rt.Instant) {
	if c.now.Load() {
		stack := make([]byte, 4096)
		if bytes.Contains(stack[:runtime.Stack(stack, false)], []byte(").KeepOpen(")) {
			panic("a mistake of ours")
		}
	}
	c.Clock.SleepUntil(at)
}

// A panic beside the tick also releases the follower.
func TestAPanicBesideTheTickLetsGo(t *testing.T) {
	t.Parallel()
	cfg, _, follow, _, _ := pair(t, "so101")
	clock := &faulty{Clock: rt.KernelClock()}
	cfg.Clock, cfg.OnExit = clock, "hold"
	done := rttest.Go(func() error { return Teleop(t.Context(), cfg) })
	awaitTorque(t, follow)
	clock.now.Store(true)
	rttest.Ends(t, <-done, exit.Failure, "a mistake of ours")
	if slices.Contains(follow.TorqueEnabled(), true) {
		t.Error("the follower is under torque after a panic")
	}
}

// Goal: a joint of the leader that crosses its seam or leaves its range does not lead. The
// follower's joint holds, the others follow, the person gets the reason, and the joint then
// continues slowly.
func TestLeaderJointThatDoesNotLead(t *testing.T) {
	t.Parallel()
	cfg, _, follow, h, f := pair(t, "so101")
	out := cfg.Out.(*rttest.Output)
	c := rttest.Must(servo.LoadCalibration(cfg.Leader.Calibration))(t)
	elbow := c["elbow_flex"]
	elbow.RangeMin, elbow.RangeMax = 1000, 3000
	c["elbow_flex"] = elbow
	rttest.Do(t, c.Save(cfg.Leader.Calibration))
	end := teach(t, cfg, follow)
	slide := func(joint, to int) {
		for at := int(h.Raw[joint].Load()); at != to; {
			at += max(-40, min(40, to-at))
			h.Raw[joint].Store(int32(at))
			time.Sleep(5 * time.Millisecond) // the pace of a hand
		}
	}
	near := func(joint, raw int) func() bool {
		return func() bool { d := int(f.Raw[joint].Load()) - raw; return d <= 40 && d >= -40 }
	}
	slide(4, 4090)
	rttest.Eventually(t, "the wrist", near(4, 4090))
	slide(4, 4300) // the servo reads 204
	slide(2, 800)
	slide(0, 2300)
	rttest.Eventually(t, "the reports", func() bool {
		text := out.String()
		return strings.Contains(text, "does not lead: the follower's holds\" joint=wrist_roll why=") &&
			strings.Contains(text, "turn it back") &&
			strings.Contains(text, "does not lead: the follower's holds\" joint=elbow_flex why=") &&
			strings.Contains(text, "outside its calibrated range")
	})
	rttest.Eventually(t, "the others", near(0, 2300))
	if at := f.Raw[4].Load(); at < 3900 {
		t.Errorf("the follower's wrist went to %d", at)
	}
	slide(4, 3900)
	slide(2, 1500)
	rttest.Eventually(t, "the wrist again", near(4, 3900))
	rttest.Contains(t, out.String(), "moves slowly to its pose\" joint=wrist_roll\n")
	end()
}

// Goal: a second request for the end switches the torque off where the arm is, without parking.
func TestHurriedTeleop(t *testing.T) {
	cfg, _, follow, h, f := pair(t, "so101")
	cfg.OnExit = "park"
	cfg.Again = func(hurry func()) { hurry() }
	end := start(t, cfg)
	awaitTorque(t, follow)
	h.All(2300)
	f.await(t, "the arm follows", 2300)
	end()
	// the shoulder pan does not sink without torque
	if at := f.Raw[0].Load(); at < 2250 || slices.Contains(follow.TorqueEnabled(), true) {
		t.Errorf("the arm is at %d, under torque: %v, want about 2300, limp", at, follow.TorqueEnabled())
	}
}
