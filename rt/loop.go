package rt

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// ErrRealTimeRefused means that the kernel refused real time to a loop with ModeRequire.
var ErrRealTimeRefused = errors.New("rt: real time refused by the kernel")

// Mode is the policy of a Loop when the kernel refuses real-time scheduling.
type Mode uint8

// The modes of a Loop.
const (
	ModeAuto    Mode = iota // ask for real time, and continue without it if it is refused
	ModeRequire             // ask for real time, and fail if it is refused
	ModeOff                 // do not ask
)

// UnpinnedCPU as LoopConfig.CPU lets the loop choose: the last isolated CPU (isolcpus=); without one, the last CPU that
// this process may use, if it may use at least 4; otherwise the loop is not pinned.
const UnpinnedCPU = -1

// LoopConfig configures a Loop; Clock and Period have no default.
type LoopConfig struct {
	Clock  Clock
	Period time.Duration
	Mode   Mode
	CPU    int // the CPU to pin the thread to, or UnpinnedCPU
}

// Tick is one call of the step.
type Tick struct {
	Index    uint64  // number of the grid point since the start; skipped ones count, too
	Deadline Instant // instant at which the step was due
	Woke     Instant // instant at which the step began
	Skipped  uint64  // grid points skipped between the last tick and this one

	// time for which the machine was suspended since the last tick, or Run, began; not part of Deadline and Woke
	Suspended time.Duration

	// Overrun is the worst overrun found to be the loop's own since the last tick; Overrun.Own is false without such an
	// overrun. The overrun happened some ticks ago, because the kernel reports the time that the host stole a little
	// later.
	Overrun Overrun

	// Stolen is the time that the host took of this machine's CPUs between the loop's last two readings; 0 without a
	// reading since the last tick. The loop reads about every 100 ms, or every second while the host never took time.
	Stolen time.Duration
}

// Grant is the kernel's answer to the request for real time.
type Grant struct {
	Granted bool
	Why     string // if not granted: one sentence that names the limit to raise
	CPU     int    // the CPU the thread is pinned to, or UnpinnedCPU
}

// LoopStats is a reading of the loop's counters.
type LoopStats struct {
	Ticks        uint64        // steps that were called
	OverrunsOwn  uint64        // ticks past the next deadline by their own CPU time and I/O wait; see Overrun
	OverrunsHost uint64        // other ticks past the next deadline: the machine delayed them
	Excused      time.Duration // time by which OverrunsHost exceeded their periods
	Skipped      uint64        // grid points lost to overruns
	Suspended    time.Duration // total time of suspensions
	CPU          time.Duration // CPU time of the loop's thread in all ticks
	Lateness     *Hist         // waking minus deadline; live, not a copy
}

// earlyWake is how long before the deadline the loop wakes a first time. In a sleep of more than 10 ms the thread
// always loses its P; in the second, short sleep the thread keeps it.
//
// After the first wake-up the loop yields, because Go's monitor preempts a goroutine whose P has scheduled no other
// goroutine for 10 ms, and a locked thread then waits 0.1 to 0.2 ms, possibly in the middle of a tick. The yield takes
// long while other goroutines compute: an earlyWake of 2 ms was too short. Periods of 8 ms and less are too short for
// two sleeps.
const earlyWake = 4 * time.Millisecond

// A yield ends when an ordinary thread hands the P back. If other programs take the CPUs from that thread, a yield
// takes up to hundreds of milliseconds, far longer than the preemption that it prevents. So after a yield of more than
// earlyWake/2 the loop does not yield for minPause ticks, and after each further slow yield for twice as many ticks as
// the last time. Each quick yield makes the next pause shorter by 1/64.
const (
	minPause = 1 << 10 // ticks, 17 s at 60 Hz
	maxPause = 1 << 14
)

// Loop calls a step once a period on a thread of its own.
//
// Owner: one goroutine calls Run, once; any goroutine may call Grant and Stats.
type Loop struct {
	// Constant after NewLoop.
	cfg      LoopConfig
	acquire  func(cpu int) Grant // asks the kernel for real time for the calling thread
	cpuTime  func() time.Duration
	yield    func() // yield does nothing in simulated time
	lateness *Hist

	// Owner: the loop's thread.
	overruns   overrunClassifier
	suspension *Suspension
	heartbeat  *Heartbeat
	pause      int // ticks without a yield that follow a slow yield
	passes     int // ticks of the current pause that are still ahead

	// Atomic.
	grant        atomic.Pointer[Grant]
	ticks        atomic.Uint64
	overrunsOwn  atomic.Uint64
	overrunsHost atomic.Uint64
	excused      atomic.Int64 // ns
	skipped      atomic.Uint64
	cpu          atomic.Int64 // ns
	suspended    atomic.Int64 // ns
}

// cpuMeter is a simulated Clock that also simulates the CPU time of the calling thread. rttest.Clock is one; package rt
// cannot import rttest.
type cpuMeter interface{ ThreadCPU() time.Duration }

// stealMeter is a simulated Clock that also simulates a host's steal time; only tests have one.
type stealMeter interface{ StealTime() time.Duration }

// NewLoop panics on a nil Clock and on a period that is not positive.
func NewLoop(cfg LoopConfig) *Loop {
	if cfg.Clock == nil || cfg.Period <= 0 {
		panic("rt: NewLoop wants a clock and a period above 0")
	}
	l := &Loop{
		cfg:      cfg,
		acquire:  acquireRealTime,
		cpuTime:  ThreadCPU,
		yield:    runtime.Gosched,
		lateness: NewHist(),
	}
	l.overruns = overrunClassifier{period: cfg.Period, steal: new(stealReader).read}
	if m, ok := cfg.Clock.(cpuMeter); ok {
		l.cpuTime = m.ThreadCPU
	}
	if cfg.Clock != KernelClock() {
		// A loop in simulated time never sleeps, so with SCHED_FIFO it would leave no time to the rest of the machine.
		l.acquire = func(int) Grant {
			return Grant{Why: "simulated time needs no real-time scheduling", CPU: UnpinnedCPU}
		}
		l.yield = func() {}
		l.overruns.steal = func() time.Duration { return 0 }
		if m, ok := cfg.Clock.(stealMeter); ok {
			l.overruns.steal = m.StealTime
		}
	}
	l.grant.Store(&Grant{Why: "the loop has not started", CPU: UnpinnedCPU})
	return l
}

// Run calls step once a period until stop is set; the first call is one period after Run began. The function step
// returns how long it waited for I/O, which separates our overruns from the host's.
//
// Deadlines are absolute: a tick that ends after the next deadline skips to the first grid point
// still ahead instead of catching up in a burst.
//
// Run locks its goroutine to the OS thread for good: a thread with a real-time class must not join the pool. Before Run
// returns, it puts the thread back into its original class.
//
// With ModeRequire, if the kernel refuses, Run returns an error wrapping ErrRealTimeRefused before the first step. It
// has no other error.
func (l *Loop) Run(stop *atomic.Bool, step func(Tick) Wait) error {
	runtime.LockOSThread()
	if l.cfg.Mode != ModeOff {
		defer releaseRealTime(saveScheduling())
	}
	if err := l.schedule(); err != nil {
		return err
	}
	prefaultStack()
	l.heartbeat = LoopHeartbeat(l.cfg.Clock)
	l.heartbeat.Start(l.cfg.Period)
	defer l.heartbeat.Stop() // no tick follows, even after a panic
	l.run(stop, step)
	return nil
}

func (l *Loop) schedule() error {
	g := Grant{Why: "real-time scheduling is switched off", CPU: UnpinnedCPU}
	if l.cfg.Mode != ModeOff {
		g = l.acquire(l.cfg.CPU)
	}
	l.grant.Store(&g)
	if l.cfg.Mode == ModeRequire && !g.Granted {
		return fmt.Errorf("%w: %s", ErrRealTimeRefused, g.Why)
	}
	return nil
}

//rt:noalloc
func (l *Loop) run(stop *atomic.Bool, step func(Tick) Wait) {
	period := l.cfg.Period
	tick := Tick{Deadline: l.cfg.Clock.Now().Add(period)}
	spent := l.cpuTime()
	l.overruns.start(l.cfg.Clock.Now())
	l.suspension = NewSuspension(l.cfg.Clock)
	for !stop.Load() {
		l.sleepUntil(tick.Deadline)
		tick.Woke = l.cfg.Clock.Now()
		l.lateness.Record(tick.Woke.Sub(tick.Deadline))
		if tick.Suspended = l.suspension.Passed(); tick.Suspended > 0 {
			l.suspended.Add(int64(tick.Suspended))
		}
		// If the host takes the CPU away while the thread wakes up, the kernel accounts that time as the thread's CPU
		// time. So the CPU time of the tick counts from here.
		woke := l.cpuTime()

		wait := step(tick)

		now, before := l.cfg.Clock.Now(), spent
		spent = l.cpuTime()
		tick.Deadline, tick.Skipped = nextDeadline(tick.Deadline, now, period)
		tick.Index += 1 + tick.Skipped
		l.cpu.Add(int64(spent - before))
		if tick.Skipped > 0 {
			l.overruns.add(Overrun{CPU: min(spent-woke, now.Sub(tick.Woke)-wait.Took), IOWait: wait.Meant}, now)
		}
		tick.Overrun, tick.Stolen = Overrun{}, 0
		if l.overruns.due(now) {
			v := l.classifyOverruns(now)
			tick.Overrun, tick.Stolen = v.worst, v.stolen
		}
		l.ticks.Add(1)
		l.heartbeat.Beat()
		l.skipped.Add(tick.Skipped)
	}
	if l.overruns.n > 0 {
		l.cfg.Clock.SleepUntil(l.overruns.newest.Add(stealLag))
	}
	l.classifyOverruns(l.cfg.Clock.Now())
}

// sleepUntil sleeps in two stages where the period is long enough, see earlyWake.
//
//rt:noalloc
func (l *Loop) sleepUntil(deadline Instant) {
	if l.cfg.Period > 2*earlyWake {
		l.cfg.Clock.SleepUntil(deadline.Add(-earlyWake))
		l.yieldAhead(deadline)
	}
	l.cfg.Clock.SleepUntil(deadline)
}

//rt:noalloc
func (l *Loop) yieldAhead(deadline Instant) {
	before := l.cfg.Clock.Now()
	switch {
	case l.passes > 0:
		l.passes--
	case deadline.Sub(before) > earlyWake/2:
		l.yield()
		if l.cfg.Clock.Now().Sub(before) <= earlyWake/2 {
			l.pause -= l.pause / 64
			break
		}
		l.pause = min(max(2*l.pause, minPause), maxPause)
		l.passes = l.pause
	}
}

//rt:noalloc
func (l *Loop) classifyOverruns(now Instant) overrunCounts {
	v := l.overruns.classify(now)
	l.overrunsOwn.Add(v.own)
	l.overrunsHost.Add(v.host)
	l.excused.Add(int64(v.excused))
	return v
}

// nextDeadline returns the first deadline of the grid after prev that is not past, and how many deadlines it has
// skipped. So a late wake-up does not shift the grid.
//
//rt:noalloc
func nextDeadline(prev, now Instant, period time.Duration) (next Instant, skipped uint64) {
	next = prev.Add(period)
	if late := now.Sub(next); late > 0 {
		skipped = uint64((late + period - 1) / period)
		next = next.Add(time.Duration(skipped) * period)
	}
	return next, skipped
}

// Grant returns the kernel's grants. The result is final once the first step runs.
func (l *Loop) Grant() Grant { return *l.grant.Load() }

// Stats returns the current counters.
func (l *Loop) Stats() LoopStats {
	return LoopStats{
		Ticks:        l.ticks.Load(),
		OverrunsOwn:  l.overrunsOwn.Load(),
		OverrunsHost: l.overrunsHost.Load(),
		Excused:      time.Duration(l.excused.Load()),
		Skipped:      l.skipped.Load(),
		Suspended:    time.Duration(l.suspended.Load()),
		CPU:          time.Duration(l.cpu.Load()),
		Lateness:     l.lateness,
	}
}

// stackReserve is more than the deepest step needs, in bytes.
const stackReserve = 64 << 10

// prefaultStack grows the goroutine's stack before the first tick.
//
//go:noinline
func prefaultStack() byte {
	var reserve [stackReserve]byte
	for i := 0; i < len(reserve); i += 4096 {
		reserve[i] = 1
	}
	return reserve[len(reserve)-1]
}
