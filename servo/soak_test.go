package servo_test

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// soakScript damages about three of a hundred replies, with every kind of fault of a bus. A late
// reply may be a whole cycle late.
const soakScript = `
seed: %d
faults:
  - {kind: drop, probability: 0.005}
  - {kind: corrupt, bits: 1, probability: 0.003}
  - {kind: corrupt, bits: 3, probability: 0.003}
  - {kind: truncate, probability: 0.003}
  - {kind: duplicate, probability: 0.003}
  - {kind: late, by: 4ms, probability: 0.002}
  - {kind: late, by: 8ms, probability: 0.002}
  - {kind: stall, by: 3ms, probability: 0.001}
  - {kind: noise, bytes: 12, probability: 0.003}
  - {kind: noise, bytes: 60, probability: 0.001}
  - {kind: wrong_id, probability: 0.001}
  - {kind: reorder, probability: 0.003}
`

// oracle is a plant that repeats a value only after a long time and records when it reported the value: joint j reads
// j, j+6, j+12, ... so that the test recognizes a value of another joint, or of another cycle.
type oracle struct {
	said [soakJoints][1 << 12]atomic.Int64 // by joint and value: time of its last report
	next [soakJoints]int                   // owned by the bus's goroutine
}

const (
	soakJoints = 6
	soakValues = 4092            // a multiple of soakJoints
	soakOld    = 3 * time.Second // a machine may suspend a thread for so long; a value is repeated after 3.4 s
	soakQuiet  = 2 * time.Second // time for opening the arm
	soakOpens  = 10
)

func (o *oracle) Goal(rt.Instant, int, int)    {}
func (o *oracle) Torque(rt.Instant, int, bool) {}
func (o *oracle) Present(_ rt.Instant, joint int) int {
	v := (o.next[joint]*soakJoints + joint) % soakValues
	o.next[joint]++
	// The oracle does not record the instant on the wire, which lags when the machine suspends the bus's thread.
	o.said[joint][v].Store(int64(rt.KernelClock().Now()))
	return v
}

// last returns the time when a motor last sent a value; 0 for a value that no motor can send, as in
// damaged bytes whose checksum fits.
func (o *oracle) last(joint, raw int) rt.Instant {
	if raw < 0 || raw >= len(o.said[joint]) {
		return 0
	}
	return rt.Instant(o.said[joint][raw].Load())
}

// soakTally counts the results of the cycles.
type soakTally struct {
	cycles, values, stale uint64
	old                   uint64 // values from the late reply of an earlier cycle, in a cycle whose own reply was lost
	undetectable          uint64 // wrong values in a cycle with a damaged reply whose checksum fits
	wrong                 uint64
	oldest, worst         time.Duration
}

func (s *soakTally) String() string {
	return fmt.Sprintf("%d cycles, %d values accepted, %d stale, %d of an earlier cycle (at most %v before), %d "+
		"wrong with a checksum that fits, %d wrong; longest read %v",
		s.cycles, s.values, s.stale, s.old, s.oldest.Round(time.Microsecond), s.undetectable, s.wrong,
		s.worst.Round(time.Microsecond))
}

// Goal: no wrong value reaches the tick under any fault of the bus, and no resources leak.
// BUS_SOAK=10m runs the whole test: make soak OF=bus.
func TestBusSoak(t *testing.T) {
	length := 3 * time.Second
	if v := os.Getenv("BUS_SOAK"); v != "" {
		length = rttest.Must(time.ParseDuration(v))(t)
	}
	for i, bus := range []struct {
		robot string
		cfg   servosim.Config
	}{{"so101", servosim.Config{}}, {"koch", servosim.Config{}}, {"koch", servosim.Config{NoFast: true}}} {
		name := bus.robot
		if bus.cfg.NoFast {
			name += ", plain"
		}
		t.Run(name, func(t *testing.T) { soak(t, bus.robot, bus.cfg, uint64(i+1), length/3) })
	}
}

func soak(t *testing.T, name string, cfg servosim.Config, seed uint64, length time.Duration) {
	r, err := robot.ByName(name)
	rttest.Do(t, err)
	r.Safety = robot.Safety{} // faults of the motors are not under test
	goroutines := runtime.NumGoroutine()
	script := rttest.Must(servosim.ParseScript(fmt.Appendf(nil, soakScript, seed)))(t)
	for i := range script.Faults {
		script.Faults[i].From = soakQuiet
	}
	o := new(oracle)
	cfg.Plant, cfg.Faults = o, script
	bus := simOf(t, r, cfg)
	faults := rt.KernelClock().Now().Add(soakQuiet)
	var arm *servo.Arm
	for range soakOpens { // a reply on a busy machine can come later than the driver waits
		if arm, err = servo.OpenArm(config(bus, r)); err == nil {
			break
		}
	}
	rttest.Do(t, err)
	rt.KernelClock().SleepUntil(faults) // the script's faults begin at this time
	var heap runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&heap)
	objects := heap.HeapObjects

	tally := cycleAll(t, arm, bus, o, r, length)
	stats, counters := arm.Stats(), bus.Counters()
	t.Logf("%v, %.0f Hz\n  driver: %d lost, %d corrupt, %d late, %d asked again\n  bus: %d replies, %d faults, %d of "+
		"them with a checksum that fits",
		tally, float64(tally.cycles)/length.Seconds(), stats.Lost, stats.Corrupt, stats.Late, stats.Retries,
		counters.Replies, counters.Faults, counters.Forged)
	if tally.wrong > 0 {
		t.Errorf("%d wrong values were accepted", tally.wrong)
	}
	if tally.values == 0 {
		t.Error("no value was accepted")
	}
	runtime.GC()
	runtime.ReadMemStats(&heap)
	if grown := int64(heap.HeapObjects) - int64(objects); grown > 5000 {
		t.Errorf("%d objects more on the heap than before", grown)
	}
	arm.Close()
	bus.Close()
	rttest.Eventually(t, "the earlier goroutines", func() bool { return runtime.NumGoroutine() <= goroutines })
}

const (
	soakPeriod = 5 * time.Millisecond
	soakBehind = 2 * time.Second // longest delay of the host after which all missed cycles run, without waits
)

// cycleAll reads and writes the arm at 200 Hz for the time length, and compares every accepted value with the values
// that the motor sent.
func cycleAll(t *testing.T, arm *servo.Arm, bus *servosim.Bus, o *oracle, r robot.Robot,
	length time.Duration) *soakTally {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	clock := rt.KernelClock()
	tally := new(soakTally)
	present, goal := make([]float32, soakJoints), make([]float32, soakJoints)
	forged := bus.Counters().Forged
	next := clock.Now()
	for end := next.Add(length); next < end; {
		next = next.Add(soakPeriod)
		clock.SleepUntil(next)
		start := clock.Now()
		next = max(next, start.Add(-soakBehind))
		arm.Write(goal, arm.Joints())
		stale := arm.Read(present, start.Add(soakPeriod-500*time.Microsecond))
		took := clock.Now().Sub(start)
		tally.worst = max(tally.worst, took)
		tally.cycles++
		now := bus.Counters().Forged
		for j := range soakJoints {
			if stale.Has(j) {
				tally.stale++
				continue
			}
			tally.values++
			raw := rawOf(r.Motors[j], present[j])
			said := o.last(j, raw)
			switch {
			case raw%soakJoints == j && said >= start:
			case raw%soakJoints == j && said >= start.Add(-soakOld):
				tally.old++
				tally.oldest = max(tally.oldest, start.Sub(said))
			case now != forged:
				tally.undetectable++
			default:
				tally.wrong++
				t.Logf("cycle %d: joint %d reads %d, last said %v before the cycle", tally.cycles, j, raw,
					start.Sub(said))
			}
		}
		forged = now
		copy(goal, present)
	}
	return tally
}

// rawOf converts a joint's value back to the encoder's count.
func rawOf(m robot.Motor, v float32) int {
	whole := float64(m.Model.MaxRaw())
	switch m.Norm {
	case robot.Degrees:
		return int(math.Round(float64(v)*whole/360 + whole/2))
	case robot.RangeM100:
		return int(math.Round((float64(v) + 100) / 200 * whole))
	}
	return int(math.Round(float64(v) / 100 * whole))
}
