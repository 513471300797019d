package bus

import (
	"context"
	"errors"
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
	extra     bool // the cycle contained another exchange
	in        int  // received bytes
	lost      bool // a reply did not come, or came only after a second request
}

// place is a bus to be measured.
type place struct {
	robot robot.Robot
	port  string
}

// cleanFrames returns how many frames the driver sends in a clean cycle: a sync write of the
// positions, a sync write of a base's velocities, and a sync read.
func (p place) cleanFrames() int {
	if p.robot.Base != nil {
		return 3
	}
	return 2
}

// driven is an open arm and its port.
type driven struct {
	*servo.Arm
	*tap
	clean         int
	present, goal []float32
}

// traffic holds the bytes that a clean cycle sends and receives on one bus.
type traffic struct {
	frames [][]byte
	in     int // bytes of the replies
}

// tap is a port that counts the frames that pass through it, and keeps the first ones.
type tap struct {
	servo.Port
	frames int
	exchange
}

// exchange holds the first frames of a cycle on one bus, and the number of bytes that arrived.
type exchange struct {
	in   int
	keep [keptFrames][keptBytes]byte
	size [keptFrames]int
}

const (
	keptFrames = 3
	keptBytes  = 1024
	warmUp     = 20
	measured   = 100
	// tries is the number of attempts to open and to release an arm. On a busy machine a reply may
	// come after the driver has stopped waiting for it.
	tries     = 5
	busMargin = 3 * time.Millisecond // time between the driver's deadline and the period's end, as in the edge
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
	buses    []traffic
	allocs   uint64
	overruns uint64
	granted  rt.Grant
	window   int    // number of cycles in a window
	calm     []bool // for each whole window: whether the machine was calm
}

// calmAt reports whether the machine was calm in the window of cycle i and in the next window. The
// next window matters because the kernel counts stolen time a little late.
func (s *driverSlice) calmAt(i int) bool {
	w := i / s.window
	return w < len(s.calm) && s.calm[w] && (w+1 == len(s.calm) || s.calm[w+1])
}

// drive opens the arms and runs cycles on all buses at the same time, for the time length. It sends the arms' own
// positions as goals. At the end it switches torque off, except that of an arm with an unconfigured motor. For each
// window it notes whether the machine was calm.
func drive(ctx context.Context, places []place, fps float64, length, window time.Duration, a *awake) (s *driverSlice,
	err error) {
	var arms []driven
	for _, p := range places {
		arm, t, err := open(p.robot, p.port)
		for i := 1; err != nil && i < tries && ctx.Err() == nil; i++ {
			arm, t, err = open(p.robot, p.port)
		}
		if err != nil {
			return nil, exit.With(exit.Absent, err)
		}
		defer arm.Close()
		n := len(p.robot.Motors)
		arms = append(arms, driven{
			Arm:     arm,
			tap:     t,
			clean:   p.cleanFrames(),
			present: make([]float32, n),
			goal:    make([]float32, n),
		})
		if len(arm.Unconfigured()) == 0 { // released at the end, because some motors switch torque on at a goal
			defer func() { err = errors.Join(err, release(arm)) }()
		}
	}
	return cycles(ctx, arms, fps, length, window, a)
}

func release(arm *servo.Arm) error {
	off := arm.TorqueOff()
	for i := 1; off != nil && i < tries; i++ {
		off = arm.TorqueOff()
	}
	return off
}

// open opens the arm at path with the calibration that its motors contain; the tap counts the port's traffic.
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

// cycle is the measured cycle: it writes and reads all buses at the same time.
type cycle struct {
	arms     []driven
	overlap  *rt.Overlap // nil: one bus
	deadline rt.Instant
}

func newCycle(arms []driven, clock rt.Clock) *cycle {
	c := &cycle{arms: arms}
	if len(arms) == 1 {
		return c
	}
	c.overlap = rt.NewOverlap(clock)
	for i := range arms {
		d := &arms[i]
		c.overlap.Add(func() { d.Arm.Read(d.present, c.deadline) }, d.SetPause)
	}
	return c
}

// run writes the goals of all arms and reads all arms, until deadline at the latest.
func (c *cycle) run(deadline rt.Instant) {
	for i := range c.arms {
		d := &c.arms[i]
		d.Arm.Write(d.goal, d.Joints())
	}
	c.deadline = deadline
	if c.overlap != nil {
		c.overlap.Run()
	} else {
		c.arms[0].Arm.Read(c.arms[0].present, deadline)
	}
}

func (c *cycle) waited() (w rt.Wait) {
	if c.overlap != nil {
		w = c.overlap.Waited()
	}
	for i := range c.arms {
		w.Add(c.arms[i].BusWait())
	}
	return w
}

func (c *cycle) losses() (n uint64) {
	for i := range c.arms {
		v := c.arms[i].Stats()
		n += v.Lost + v.Retries
	}
	return n
}

func cycles(ctx context.Context, arms []driven, fps float64, length, window time.Duration, a *awake) (*driverSlice,
	error) {
	clock := rt.KernelClock()
	period := time.Duration(float64(time.Second) / fps)
	s := &driverSlice{samples: make([]sample, 0, int(length/period)+warmUp), window: max(1, int(window/period))}
	s.calm = make([]bool, 0, cap(s.samples)/s.window+1)
	machine := a.host()
	kept := kept{buses: make([]exchange, len(arms))}
	for i := range arms {
		arms[i].Arm.Read(arms[i].present, clock.Now().Add(time.Second))
		arms[i].Positions(arms[i].goal)
	}
	c := newCycle(arms, clock)
	var stop atomic.Bool
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	rt.PrefillRuntime() // as in the edge
	heap := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(heap)
	n, lost := 0, c.losses()
	loop := rt.NewLoop(rt.LoopConfig{Clock: clock, Period: period, CPU: rt.UnpinnedCPU})
	err := loop.Run(&stop, func(rt.Tick) rt.Wait {
		if n++; n == warmUp {
			metrics.Read(heap)
			s.allocs = heap[0].Value.Uint64()
		}
		for i := range arms {
			arms[i].frames, arms[i].in = 0, 0
		}
		cpu, start := rt.ThreadCPU(), clock.Now()
		c.run(start.Add(replyLimit(fps)))
		took, used := clock.Now().Sub(start), rt.ThreadCPU()-cpu
		for i := range arms {
			// some servos switch torque on when they get a goal, so the goal is their present
			// position
			arms[i].Positions(arms[i].goal)
		}
		now := c.losses()
		extra, in := kept.add(arms, now != lost)
		if n > warmUp && len(s.samples) < cap(s.samples) {
			s.samples = append(s.samples, sample{took, used, extra, in, now != lost})
		}
		lost = now
		if len(s.samples) == cap(s.samples)-warmUp {
			metrics.Read(heap)
			s.allocs = heap[0].Value.Uint64() - s.allocs
			stop.Store(true)
		}
		if n > warmUp && len(s.samples)%s.window == 0 { // last in the loop, because this reading allocates
			before := machine
			machine = a.host()
			s.calm = append(s.calm, machine.CalmSince(before))
		}
		return c.waited()
	})
	if err == nil && ctx.Err() != nil {
		err = exit.Errorf(exit.Failure, "stopped before the end")
	}
	s.buses = kept.traffic(arms)
	s.overruns, s.granted = loop.Stats().OverrunsOwn, loop.Grant()
	return s, err
}

// kept holds the frames of the clean cycle in which the fewest bytes arrived. Other clean cycles
// may have more: late bytes of an earlier cycle, or those of a plain read after a failed fast read.
type kept struct {
	in    int // bytes of all buses; 0: there was no clean cycle yet
	buses []exchange
}

// add keeps the frames of the last cycle if the cycle is clean and had fewer bytes than the kept cycle. The parameter
// lost means that the cycle lost a reply. The result extra reports that the cycle had more or fewer frames than a clean
// cycle, and the result in is the number of bytes that arrived.
func (k *kept) add(arms []driven, lost bool) (extra bool, in int) {
	for i := range arms {
		extra = extra || arms[i].frames != arms[i].clean
		in += arms[i].in
	}
	if lost || extra || k.in != 0 && in >= k.in {
		return extra, in
	}
	k.in = in
	for i := range arms {
		k.buses[i] = arms[i].exchange
	}
	return extra, in
}

func (k *kept) traffic(arms []driven) (all []traffic) {
	for i := range k.buses {
		b := &k.buses[i]
		one := traffic{in: b.in}
		for f := range arms[i].clean {
			one.frames = append(one.frames, slices.Clone(b.keep[f][:b.size[f]]))
		}
		all = append(all, one)
	}
	return all
}

// replyLimit returns how long the driver and the echo wait for the replies of a cycle.
func replyLimit(fps float64) time.Duration {
	period := time.Duration(float64(time.Second) / fps)
	return period - min(busMargin, period/4)
}

// readCalibration reads the calibration from the motors, so that an arm can be opened without its file.
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
				return nil, exit.Errorf(exit.Absent, "motor %d (%s) on %s: %w", m.ID, m.Name, path, err)
			}
		}
		c[m.Name] = k
	}
	return c, nil
}
