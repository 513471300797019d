package bus

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// sample is one cycle.
type sample struct {
	took, cpu time.Duration
	frames    int  // sent frames
	in        int  // received bytes
	lost      bool // a reply did not come, or only after a second request
}

// tap is the port with counters of its traffic.
type tap struct {
	servo.Port
	frames, in int
	keep       [keptFrames][keptBytes]byte
	size       [keptFrames]int
}

const (
	keptFrames  = 2
	keptBytes   = 1024
	cleanFrames = 2 // frames of a cycle: sync write, sync read
	warmUp      = 20
	measured    = 100
	// to open and to release: a busy machine is late for longer than the driver waits
	tries     = 5
	busMargin = 3 * time.Millisecond // the driver's deadline before the period's end, as in the edge
)

func (t *tap) Write(p []byte) (int, error) {
	if t.frames < keptFrames {
		t.size[t.frames] = copy(t.keep[t.frames][:], p)
	}
	t.frames++
	return t.Port.Write(p)
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Port.Read(p)
	t.in += n
	return n, err
}

// driverSlice is the driver's result of one slice.
type driverSlice struct {
	samples  []sample
	frames   [][]byte // the frames of a clean cycle
	in       int      // bytes of a clean cycle's replies
	allocs   uint64
	overruns uint64
	granted  rt.Grant
	window   int    // cycles of one window
	calm     []bool // whether the machine was, in each whole window
}

// calmAt reports whether the machine was calm in the window of cycle i and in the next: the kernel
// counts stolen time a little later.
func (s *driverSlice) calmAt(i int) bool {
	w := i / s.window
	return w < len(s.calm) && s.calm[w] && (w+1 == len(s.calm) || s.calm[w+1])
}

// drive opens the arm and runs cycles for a while. Torque stays as it is; the goals are the arm's
// position. It notes by the window whether the machine was calm.
func drive(ctx context.Context, r robot.Robot, path string, fps float64, length, window time.Duration,
	a *awake) (*driverSlice, error) {
	arm, t, err := open(r, path)
	for i := 1; err != nil && i < tries && ctx.Err() == nil; i++ {
		arm, t, err = open(r, path)
	}
	if err != nil {
		return nil, exit.With(exit.Absent, err)
	}
	defer arm.Close()
	limp := len(arm.Unconfigured()) == 0
	s, err := cycles(ctx, arm, t, len(r.Motors), fps, length, window, a)
	if limp { // some firmware switches torque on when it gets a goal
		off := arm.TorqueOff()
		for i := 1; off != nil && i < tries; i++ {
			off = arm.TorqueOff()
		}
		err = errors.Join(err, off)
	}
	return s, err
}

// open opens the arm with the calibration in its motors, on a port with counters.
func open(r robot.Robot, path string) (*servo.Arm, *tap, error) {
	calibration, err := readCalibration(r, path)
	if err != nil {
		return nil, nil, err
	}
	port, err := servo.OpenPort(path, r.Baud)
	if err != nil {
		return nil, nil, err
	}
	t := &tap{Port: port}
	arm, err := servo.OpenArm(servo.ArmConfig{
		Path:        path,
		Robot:       r,
		Calibration: calibration,
		Port:        t,
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := arm.MeasureCycles(measured); err != nil {
		return nil, nil, errors.Join(err, arm.Close())
	}
	return arm, t, nil
}

func cycles(ctx context.Context, arm *servo.Arm, t *tap, motors int, fps float64, length, window time.Duration,
	a *awake) (*driverSlice, error) {
	clock := rt.KernelClock()
	period := time.Duration(float64(time.Second) / fps)
	s := &driverSlice{samples: make([]sample, 0, int(length/period)+warmUp), window: max(1, int(window/period))}
	s.calm = make([]bool, 0, cap(s.samples)/s.window+1)
	machine := a.host()
	kept, sizes := t.keep, t.size
	present, goal := make([]float32, motors), make([]float32, motors)
	arm.Read(present, clock.Now().Add(time.Second))
	arm.Positions(goal)
	var stop atomic.Bool
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	rt.PrefillRuntime() // as in the edge
	heap := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(heap)
	n := 0
	losses := func() uint64 { v := arm.Stats(); return v.Lost + v.Retries }
	lost := losses()
	loop := rt.NewLoop(rt.LoopConfig{Clock: clock, Period: period, CPU: rt.UnpinnedCPU})
	err := loop.Run(&stop, func(rt.Tick) rt.Wait {
		if n++; n == warmUp {
			metrics.Read(heap)
			s.allocs = heap[0].Value.Uint64()
		}
		t.frames, t.in = 0, 0
		cpu, start := rt.ThreadCPU(), clock.Now()
		arm.Write(goal, arm.Joints())
		arm.Read(present, start.Add(replyLimit(fps)))
		took, used := clock.Now().Sub(start), rt.ThreadCPU()-cpu
		arm.Positions(goal) // some servos switch torque on by a goal, so the goal is their position
		now := losses()
		if n > warmUp && len(s.samples) < cap(s.samples) {
			s.samples = append(s.samples, sample{took, used, t.frames, t.in, now != lost})
		}
		if now == lost && t.frames == cleanFrames && (s.in == 0 || t.in < s.in) {
			// late bytes of an earlier cycle only increase it, and so does a plain read after a
			// failed fast one
			s.in = t.in
			kept, sizes = t.keep, t.size
		}
		lost = now
		if len(s.samples) == cap(s.samples)-warmUp {
			metrics.Read(heap)
			s.allocs = heap[0].Value.Uint64() - s.allocs
			stop.Store(true)
		}
		if n > warmUp && len(s.samples)%s.window == 0 { // last in the loop: it allocates
			before := machine
			machine = a.host()
			s.calm = append(s.calm, machine.CalmSince(before))
		}
		return arm.BusWait()
	})
	if err == nil && ctx.Err() != nil {
		err = exit.Errorf(exit.Failure, "stopped before the end")
	}
	for i := range keptFrames {
		s.frames = append(s.frames, slices.Clone(kept[i][:sizes[i]]))
	}
	s.overruns, s.granted = loop.Stats().OverrunsOwn, loop.Grant()
	return s, err
}

// replyLimit returns how long driver and echo wait for a cycle's missing replies.
func replyLimit(fps float64) time.Duration {
	period := time.Duration(float64(time.Second) / fps)
	return period - min(busMargin, period/4)
}

// readCalibration reads the motors' own calibration, so that any arm can be opened.
func readCalibration(r robot.Robot, path string) (servo.Calibration, error) {
	port, err := servo.OpenPort(path, r.Baud)
	if err != nil {
		return nil, exit.With(exit.Absent, err)
	}
	defer port.Close()
	bus := servo.NewBus(port, r.Baud, r.Protocol(), rt.KernelClock())
	c := servo.Calibration{}
	for _, m := range r.Motors {
		k := servo.MotorCalibration{ID: int(m.ID), DriveMode: m.DriveMode}
		for _, v := range []struct {
			register table.Register
			to       *int
		}{{table.HomingOffset, &k.HomingOffset}, {table.MinPositionLimit, &k.RangeMin},
			{table.MaxPositionLimit, &k.RangeMax}} {
			if !m.Model.Has(v.register) {
				continue
			}
			if *v.to, _, err = bus.ReadRegister(m.ID, m.Model.Row(v.register)); err != nil {
				return nil, exit.With(exit.Absent, fmt.Errorf("motor %d (%s) on %s: %w", m.ID, m.Name, path, err))
			}
		}
		c[m.Name] = k
	}
	return c, nil
}
