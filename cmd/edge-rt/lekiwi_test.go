package main

import (
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
)

// kiwi is a LeKiwi on a simulated bus, a referee that checks every byte to the motors, and a server
// of a policy whose nine values include the base's velocities.
type kiwi struct {
	*process
	server *holdServer
	bus    *servosim.Bus
	*referee.Referee
	spins func() []int
}

// kiwiTick is the period of the runs, long enough for a busy machine.
const kiwiTick = 50 * time.Millisecond

func startKiwi(t *testing.T, args ...string) *kiwi {
	t.Helper()
	rttest.RealTime(t) // simulated motors answer within real time-outs
	r, err := robot.ByName("lekiwi")
	rttest.Do(t, err)
	k := &kiwi{server: newHoldServer(t)}
	judge, cfg := referee.Config{Period: kiwiTick}, servosim.Config{Wheels: 3, Clock: rt.KernelClock()}
	calibration := servo.Calibration{}
	for j, m := range r.Motors {
		cfg.IDs = append(cfg.IDs, m.ID)
		calibration[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMax: 4095}
		joint := referee.Joint{
			ID:       m.ID,
			Name:     m.Name,
			Max:      4095,
			Velocity: m.MaxVelocity * 4095 / 100,
			Degree:   4096. / 360,
		}
		if joint.Wheel = r.Wheels().Has(j); joint.Wheel {
			joint.Velocity = float64(r.Base.MaxRaw)
			// counts/s2 of the left wheel when the base accelerates by 1 m/s2 on both axes and by 300 deg/s2
			joint.Acceleration = 26342
		}
		judge.Joints = append(judge.Joints, joint)
	}
	k.Referee = referee.New(judge)
	var spin [3]atomic.Int32
	cfg.Watch = func(e *servosim.Event) {
		k.Watch(e)
		if e.ID >= 7 && e.After.Torque {
			spin[e.ID-7].Store(int32(e.After.Spin))
		} else if e.ID >= 7 {
			spin[e.ID-7].Store(0)
		}
	}
	k.spins = func() []int { return []int{int(spin[0].Load()), int(spin[1].Load()), int(spin[2].Load())} }
	k.bus = servosimtest.Open(t, cfg)
	file := filepath.Join(t.TempDir(), "kiwi.json")
	rttest.Do(t, calibration.Save(file))
	k.server.SetAnswer(func(s wire.Sample) {
		h, o, ok := stage.ParseRequest(s)
		if !ok || len(o.State) != 9 {
			return
		}
		k.FirstChunk(rt.KernelClock().Now())
		m := k.server.Chunk(o.State, func(row []float32, _ int) { copy(row[6:], []float32{0.1, 0, 0}) })
		go k.server.Reply(h, &wire.ActionChunk{ChunkModel: m, ChunkRobot: m})
	})
	k.process = runOn(t, k.server, k.bus, append([]string{"--robot", "lekiwi", "--calibration", file, "--fps", "20"},
		args...)...)
	k.Start()
	k.await("the base drives", -1129, 0, 1129) // the wheel velocities that LeRobot computes for 0.1 m/s
	return k
}

func (k *kiwi) await(what string, spins ...int) {
	k.t.Helper()
	rttest.Eventually(k.t, what, func() bool { return slices.Equal(k.spins(), spins) })
}

// stops waits until the base, which has just lost its permission to move, stands still. stops also asks the referee
// whether the base stopped in time.
func (k *kiwi) stops(what string) {
	k.t.Helper()
	k.await(what, 0, 0, 0)
	k.check(what)
}

func (k *kiwi) check(what string) {
	k.t.Helper()
	k.CheckAt(rt.KernelClock().Now())
	if v := k.Verdict(); len(v.Kept) > 0 {
		k.t.Errorf("%s: %v", what, v.Kept)
	}
}

// Goal: a policy drives a LeKiwi. The base stops in a pause, when the server is lost, and at the end of the run.
func TestAPolicyDrivesLeKiwi(t *testing.T) {
	t.Parallel()
	k := startKiwi(t, "--max-offline", "10m", "--fallback", "zero")
	k.wants(0, "", "pause")
	k.Paused(rt.KernelClock().Now(), true)
	k.stops("a pause")
	k.Paused(rt.KernelClock().Now(), false)
	k.ctl("resume")
	k.await("it goes on", -1129, 0, 1129)
	k.server.SetAnswer(func(wire.Sample) {})
	k.stops("no actions are left")
	k.EndsWith(0, syscall.SIGINT)
	k.Ended(rt.KernelClock().Now())
	k.check("the end")
	rttest.Want(t, underTorque(k.bus), 0, "motors under torque")
}

// Goal: soon after a kill of the run, the base is limp. After a run that ends with --on-exit hold, the base stands
// still.
func TestAKilledRunOfLeKiwi(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	k := startKiwi(t, "--on-exit", "hold")
	k.Process.Signal(syscall.SIGTERM)
	k.End()
	if n := underTorque(k.bus); n != 9 || !slices.Equal(k.spins(), []int{0, 0, 0}) {
		t.Errorf("%d motors are under torque, goal velocities %v, want 9 and 0", n, k.spins())
	}
	k = startKiwi(t)
	k.Process.Kill()
	killed := time.Now()
	awaitTorque(t, k.bus, 0)
	k.await("no goal", 0, 0, 0)
	if took := time.Since(killed); took > 300*time.Millisecond {
		t.Errorf("limp %v after the kill, want at most 300 ms", took)
	}
	k.End()
	awaitNoWatchdog(t, k.bus.Path())
	k.CheckSays("off on 9 motors")
}
