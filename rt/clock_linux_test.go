package rt

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// realTime marks a test as rttest.RealTime does, which this package's own tests
// cannot import.
func realTime(t *testing.T) {
	t.Helper()
	t.Attr("real-time", "true")
}

// The clock must be the kernel's own CLOCK_MONOTONIC: the deadlines of absolute sleeps and the time stamps of drivers
// are instants of that clock.
func TestKernelClockIsTheKernels(t *testing.T) {
	realTime(t)
	const slack = 100 * time.Microsecond // error of calibrate on a busy machine; typically below 1 us
	clock := KernelClock()
	for range 100 {
		before := monotonic()
		now := clock.Now()
		after := monotonic()
		if now < before || now > after.Add(slack) {
			t.Fatalf("Now = %d, want within the kernel's %d and %d", now, before, after)
		}
	}
}

func TestKernelClockSleepsToAbsoluteDeadlines(t *testing.T) {
	clock := KernelClock()
	start := clock.Now()
	for i := range 5 {
		deadline := start.Add(time.Duration(i+1) * 5 * time.Millisecond)
		clock.SleepUntil(deadline)
		if now := clock.Now(); now < deadline {
			t.Fatalf("woke %v before the deadline", deadline.Sub(now))
		}
	}
	clock.SleepUntil(start) // the instant has passed, so SleepUntil returns
}

// interrupt sends signals to the thread until stop is set. SIGURG is Go's own preemption signal: the runtime also
// handles a SIGURG that it has not sent.
func interrupt(tid int, stop *atomic.Bool) (sent int) {
	for !stop.Load() {
		if unix.Tgkill(unix.Getpid(), tid, unix.SIGURG) == nil {
			sent++
		}
		time.Sleep(time.Millisecond) // before the next signal, the thread must sleep again
	}
	return sent
}

// signalled calls sleep on a thread that gets a signal about every millisecond.
func signalled(t *testing.T, sleep func()) {
	t.Helper()
	var stop atomic.Bool
	tid, sent := make(chan int), make(chan int)
	go func() { sent <- interrupt(<-tid, &stop) }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid <- unix.Gettid()
	sleep()
	stop.Store(true)
	if n := <-sent; n == 0 {
		t.Error("no signal was sent, so nothing was tested")
	}
}

func TestSleepUntilSurvivesSignals(t *testing.T) {
	signalled(t, func() {
		clock := KernelClock()
		deadline := clock.Now().Add(50 * time.Millisecond)
		clock.SleepUntil(deadline)
		if now := clock.Now(); now < deadline {
			t.Errorf("a signal ended the sleep %v early", deadline.Sub(now))
		}
	})
}

func TestKernelClockNoAlloc(t *testing.T) {
	clock := KernelClock()
	if n := testing.AllocsPerRun(100, func() {
		clock.SleepUntil(clock.Now().Add(100 * time.Microsecond))
		ThreadCPU()
	}); n != 0 {
		t.Errorf("Now, SleepUntil and ThreadCPU allocate %v times, want 0", n)
	}
}

func TestThreadCPUCountsWorkAndNotSleep(t *testing.T) {
	realTime(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	clock := KernelClock()
	before := ThreadCPU()
	clock.SleepUntil(clock.Now().Add(30 * time.Millisecond))
	slept := ThreadCPU() - before
	if slept > 10*time.Millisecond {
		t.Errorf("a sleep of 30ms cost %v of CPU time", slept)
	}
	for before = ThreadCPU(); ThreadCPU()-before < 5*time.Millisecond; { // the loop ends only if ThreadCPU counts
	}
}

func TestParseSteal(t *testing.T) {
	for _, tt := range []struct {
		name, stat string
		want       time.Duration
	}{
		{"of all CPUs", "cpu  10 20 30 40 50 60 70 123 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n", 1230 * time.Millisecond},
		{"an even older kernel", "cpu  10 20 30 40\n", 0},
		{"a kernel without the column", "cpu  1 2 3 4 5 6 7\n", 0},
		{"not a number", "cpu  1 2 3 4 5 6 7 x 0 0\n", 0},
		{"a number no machine reaches", "cpu  1 2 3 4 5 6 7 999999999999999 0 0\n", 0},
		{"cut short", "cpu  1 2 3 4 5 6 7 8", 0},
		{"another line first", "intr 1 2 3 4 5 6 7 8 9\n", 0},
		{"empty", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseSteal([]byte(tt.stat)); got != tt.want {
				t.Errorf("parseSteal(%q) = %v, want %v", tt.stat, got, tt.want)
			}
		})
	}
	if first, second := StealTime(), StealTime(); second < first {
		t.Errorf("StealTime went from %v to %v", first, second)
	}
	// The race detector moves the buffer of StealTime to the heap.
	if n := testing.AllocsPerRun(100, func() { StealTime() }); n != 0 && !raced {
		t.Errorf("StealTime allocates %v times, want 0", n)
	}
}
