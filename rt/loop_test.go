package rt_test

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

const period = 10 * time.Millisecond

// runLoop runs the loop until it has called step n times. It does so in a new goroutine, because Run keeps its thread.
func runLoop(l *rt.Loop, n int, step func(rt.Tick) rt.Wait) error {
	var stop atomic.Bool
	done := make(chan error)
	go func() {
		calls := 0
		done <- l.Run(&stop, func(tick rt.Tick) rt.Wait {
			calls++
			if calls == n {
				stop.Store(true)
			}
			return step(tick)
		})
	}()
	return <-done
}

func simulated(start rt.Instant) (*rt.Loop, *rttest.Clock) {
	clock := rttest.NewClock(start)
	return loopOn(clock), clock
}

func loopOn(clock rt.Clock) *rt.Loop {
	return rt.NewLoop(rt.LoopConfig{Clock: clock, Period: period, CPU: rt.UnpinnedCPU})
}

// A tick that ends late costs whole grid points and never shifts the grid.
func TestLoopKeepsTheGridThroughOverruns(t *testing.T) {
	loop, clock := simulated(1000)
	clock.LateAt(1000+20e6, 3*time.Millisecond)
	var got []rt.Tick
	runLoop(loop, 5, func(tick rt.Tick) rt.Wait {
		got = append(got, tick)
		if len(got) == 2 {
			clock.Work(25 * time.Millisecond)
		}
		return rt.Wait{}
	})
	want := []rt.Tick{
		{Index: 0, Deadline: 1000 + 10e6, Woke: 1000 + 10e6},
		{Index: 1, Deadline: 1000 + 20e6, Woke: 1000 + 23e6},
		{Index: 4, Deadline: 1000 + 50e6, Woke: 1000 + 50e6, Skipped: 2},
		{Index: 5, Deadline: 1000 + 60e6, Woke: 1000 + 60e6},
		{Index: 6, Deadline: 1000 + 70e6, Woke: 1000 + 70e6},
	}
	if !slices.Equal(got, want) {
		t.Errorf("ticks = %+v\nwant    %+v", got, want)
	}
	s := loop.Stats()
	if s.Ticks != 5 || s.Skipped != 2 || s.Lateness.Max() != 3*time.Millisecond || s.Lateness.Count() != 5 {
		t.Errorf("Stats = %+v, lateness max %v of %d, want 5 ticks, 2 skipped, 3ms of 5",
			s, s.Lateness.Max(), s.Lateness.Count())
	}
	rttest.Want(t, s.CPU, 25*time.Millisecond, "Stats().CPU")
}

func TestLoopTellsOwnOverrunsFromTheHosts(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		cpu, bus, gone, late time.Duration // times: computed, waited for the bus, taken by the host, woken late
		paused               time.Duration // time that the host took in a wait, booked as CPU time
		wantOwn, wantHost    uint64
	}{
		{name: "idle"},
		{name: "uses the whole period", cpu: 4e6, bus: 6e6},
		{name: "computes too long", cpu: 11e6, wantOwn: 1},
		{name: "waits too long for the bus", bus: 11e6, wantOwn: 1},
		{name: "computes and waits too long together", cpu: 5e6, bus: 6e6, wantOwn: 1},
		{name: "is preempted", cpu: 4e6, bus: 5e6, gone: 2e6, wantHost: 1},
		{name: "uses exactly the period and is preempted", cpu: 4e6, bus: 6e6, gone: 1, wantHost: 1},
		{name: "wakes too late", cpu: 1e6, late: 10e6, wantHost: 1},
		{name: "wakes late and is too slow as well", cpu: 11e6, late: 1e6, wantOwn: 1},
		{name: "is paused as it falls asleep", cpu: 1e6, bus: 1e6, paused: 50e6, wantHost: 1},
		{name: "computes too long and is paused", cpu: 11e6, bus: 1e6, paused: 50e6, wantOwn: 1},
		{name: "is preempted within the period", cpu: 1e6, gone: 8e6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loop, clock := simulated(0)
			clock.LateAt(10e6, tt.late)
			runLoop(loop, 2, func(tick rt.Tick) rt.Wait {
				if tick.Index > 0 {
					return rt.Wait{}
				}
				clock.Work(tt.cpu)
				clock.Advance(tt.bus + tt.gone)
				clock.Work(tt.paused)
				return rt.Wait{Meant: tt.bus, Took: tt.bus + tt.paused}
			})
			if s := loop.Stats(); s.OverrunsOwn != tt.wantOwn || s.OverrunsHost != tt.wantHost {
				t.Errorf("overruns own, host = %d, %d, want %d, %d", s.OverrunsOwn, s.OverrunsHost, tt.wantOwn,
					tt.wantHost)
			}
		})
	}
}

// sleepLog is a Clock that records the requested sleeps and the loop's yields. Its sleeps end late by a given time.
type sleepLog struct {
	*rttest.Clock
	late   time.Duration
	until  []rt.Instant
	yields []rt.Instant
}

func (s *sleepLog) SleepUntil(deadline rt.Instant) {
	s.until = append(s.until, deadline)
	s.Clock.SleepUntil(deadline.Add(s.late))
}

func TestLoopSleepsInTwoStagesWhereThePeriodIsLong(t *testing.T) {
	const early = 12_666_667
	for _, tt := range []struct {
		name   string
		period time.Duration
		late   time.Duration
		want   []rt.Instant
		yields []rt.Instant
	}{
		{"60 Hz", 16_666_667, 0, []rt.Instant{early, 16_666_667}, []rt.Instant{early}},
		{"60 Hz, a little late", 16_666_667, 500_000, []rt.Instant{early, 16_666_667}, []rt.Instant{early + 500_000}},
		{"60 Hz, no time to yield", 16_666_667, 2 * time.Millisecond, []rt.Instant{early, 16_666_667}, nil},
		{"1 kHz", time.Millisecond, 0, []rt.Instant{1_000_000}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := &sleepLog{Clock: rttest.NewClock(0), late: tt.late}
			loop := rt.NewLoop(rt.LoopConfig{Clock: clock, Period: tt.period})
			loop.SetYield(func() { clock.yields = append(clock.yields, clock.Now()) })
			runLoop(loop, 1, func(rt.Tick) rt.Wait { return rt.Wait{} })
			if !slices.Equal(clock.until, tt.want) || !slices.Equal(clock.yields, tt.yields) {
				t.Errorf("slept until %v and yielded at %v, want %v and %v", clock.until, clock.yields, tt.want,
					tt.yields)
			}
		})
	}
}

// A yield waits for an ordinary thread, from which other programs may take the CPU for long. After such a yield the
// loop pauses its yields.
func TestLoopStopsYieldingAfterASlowYield(t *testing.T) {
	clock := rttest.NewClock(0)
	loop := loopOn(clock)
	took := map[int]time.Duration{2: 2 * time.Millisecond, 3: 2*time.Millisecond + 1, 5: 3 * time.Millisecond,
		206: 3 * time.Millisecond}
	ticks := 0
	var yields []int // ticks before each
	loop.SetYield(func() { yields = append(yields, ticks); clock.Advance(took[len(yields)]) })
	runLoop(loop, 5000, func(rt.Tick) rt.Wait { ticks++; return rt.Wait{} })
	at := func(i int) int { return yields[i-1] }
	for _, tt := range []struct {
		name   string
		yields [2]int // the first is slow
		want   int    // ticks without a yield
	}{
		{"quick enough", [2]int{2, 3}, 0},
		{"slow", [2]int{3, 4}, 1024},
		{"slow again soon", [2]int{5, 6}, 2016},
		{"slow after 200 quick ones", [2]int{206, 207}, 1024},
	} {
		rttest.Want(t, at(tt.yields[1])-at(tt.yields[0])-1, tt.want, "%s: ticks without a yield", tt.name)
	}
}

func TestLoopModes(t *testing.T) {
	refuse := rt.Grant{Why: "raise the limit", CPU: rt.UnpinnedCPU}
	allow := rt.Grant{Granted: true, CPU: 3}
	for _, tt := range []struct {
		name      string
		mode      rt.Mode
		answer    rt.Grant
		wantAsked bool
		wantTicks uint64
		wantErr   error
	}{
		{"auto, granted", rt.ModeAuto, allow, true, 1, nil},
		{"auto, refused, goes on", rt.ModeAuto, refuse, true, 1, nil},
		{"require, granted", rt.ModeRequire, allow, true, 1, nil},
		{"require, refused, fails before the first step", rt.ModeRequire, refuse, true, 0, rt.ErrRealTimeRefused},
		{"off, does not ask", rt.ModeOff, allow, false, 1, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loop := rt.NewLoop(rt.LoopConfig{Clock: rttest.NewClock(0), Period: period, Mode: tt.mode, CPU: 3})
			asked := false
			loop.SetAcquire(func(cpu int) rt.Grant { asked = cpu == 3; return tt.answer })
			err := runLoop(loop, 1, func(rt.Tick) rt.Wait { return rt.Wait{} })
			if !errors.Is(err, tt.wantErr) || (err == nil) != (tt.wantErr == nil) {
				t.Errorf("Run = %v, want %v", err, tt.wantErr)
			}
			if err != nil && !rttest.Says(err, refuse.Why) {
				t.Errorf("Run = %q, want it to say %q", err, refuse.Why)
			}
			if got := loop.Stats().Ticks; got != tt.wantTicks || asked != tt.wantAsked {
				t.Errorf("ticks %d, asked for CPU 3 %t, want %d, %t", got, asked, tt.wantTicks, tt.wantAsked)
			}
			if g := loop.Grant(); asked && g != tt.answer || !asked && (g.Granted || g.Why == "") {
				t.Errorf("Grant = %+v after the answer %+v", g, tt.answer)
			}
		})
	}
}

// A loop in simulated time refuses real-time priority: it never sleeps, so at SCHED_FIFO it would take a CPU from
// everything else.
func TestLoopInSimulatedTimeDoesNotAskTheKernel(t *testing.T) {
	loop := rt.NewLoop(rt.LoopConfig{Clock: rttest.NewClock(0), Period: period, Mode: rt.ModeRequire})
	err := runLoop(loop, 1, func(rt.Tick) rt.Wait { return rt.Wait{} })
	rttest.FailsAs(t, err, rt.ErrRealTimeRefused, "simulated")
}

// Allocations are counted for the whole process, and the Go runtime allocates a handful of objects
// when it starts a thread, for the loop or for the test. So one window without an allocation is
// enough: a loop that allocates does so in all of them.
func TestLoopDoesNotAllocate(t *testing.T) {
	const warmup, ticks, windows = 100, 10_000, 5
	loop, clock := simulated(0)
	var counts [windows + 1]uint64
	var m runtime.MemStats
	calls := 0
	runLoop(loop, warmup+windows*ticks, func(rt.Tick) rt.Wait {
		if calls++; calls >= warmup && (calls-warmup)%ticks == 0 {
			runtime.ReadMemStats(&m)
			counts[(calls-warmup)/ticks] = m.Mallocs
		}
		clock.Work(time.Duration(calls%12) * time.Millisecond) // some overrun
		return rt.Wait{}
	})
	least := counts[1] - counts[0]
	for i := range windows {
		least = min(least, counts[i+1]-counts[i])
	}
	if least != 0 {
		t.Errorf("%d ticks allocate at least %d objects in each of %d windows, want 0 in one; in all so far %v", ticks,
			least, windows, counts)
	}
}

func TestNewLoopPanicsWithout(t *testing.T) {
	for name, cfg := range map[string]rt.LoopConfig{
		"a clock":  {Period: period},
		"a period": {Clock: rttest.NewClock(0)},
	} {
		if !rt.Panics(func() { rt.NewLoop(cfg) }) {
			t.Errorf("NewLoop without %s did not panic", name)
		}
	}
}
