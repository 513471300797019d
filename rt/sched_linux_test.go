package rt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process cannot take back its requests to the kernel, so each of these tests runs in a new process: the test binary
// starts itself with the role's name in roleVariable.
const (
	roleVariable   = "RT_TEST_ROLE"
	rightsVariable = "RT_TEST_NO_RIGHTS" // if set, the child first gives up its own rights

	emulatedVariable = "EDGERT_EMULATED" // set by tools/pack/arm64.sh
)

// roles are the functions that run in a child, by name. A function prints its result.
var roles = map[string]func() error{
	"require":            func() error { return oneTick(ModeRequire, UnpinnedCPU) },
	"auto":               func() error { return oneTick(ModeAuto, UnpinnedCPU) },
	"nice":               func() error { return NiceProcess(-10) },
	"lock":               LockMemory,
	"nice around a loop": niceAroundALoop,
	"lock and grow":      lockAndGrow,
}

func TestReduceTimerSlack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack := func() int {
		ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	before := slack()
	undo := ReduceTimerSlack()
	if got := slack(); got != fineSlack {
		t.Errorf("slack %d ns, want %d", got, fineSlack)
	}
	undo()
	if got := slack(); got != before || before == fineSlack {
		t.Errorf("slack %d ns afterwards, want %d", got, before)
	}
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(rightsVariable) != "" {
		for limit, value := range map[int]uint64{unix.RLIMIT_RTPRIO: 0, unix.RLIMIT_NICE: 0,
			unix.RLIMIT_MEMLOCK: 64 << 10} {
			if err := unix.Setrlimit(limit, &unix.Rlimit{Cur: value, Max: value}); err != nil {
				fmt.Println(err)
			}
		}
	}
	if err := roles[role](); err != nil {
		fmt.Print(err)
	}
}

// asRole runs the role in a child and returns its output. Without rights the child has neither the
// capabilities nor the limits for any request to the kernel.
func asRole(t *testing.T, role string, rights bool) string {
	t.Helper()
	if os.Getenv(emulatedVariable) != "" {
		t.Skip("QEMU's user emulation: the kernel does not execute a binary of another architecture")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	// A child under -race would linger for a second when it exits.
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	if !rights {
		cmd.Env = append(cmd.Env, rightsVariable+"=1")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	done := make(chan error)
	go func() { // a thread without capabilities must not return to the pool
		runtime.LockOSThread()
		if !rights {
			for _, capability := range []uintptr{unix.CAP_SYS_NICE, unix.CAP_IPC_LOCK, unix.CAP_SYS_RESOURCE} {
				unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0) // EPERM without root
			}
		}
		done <- cmd.Run()
	}()
	if err := <-done; err != nil {
		t.Fatalf("role %s: %v\n%s", role, err, out.String())
	}
	return out.String()
}

// oneTick runs a loop on the kernel's clock for a tick and returns the grant.
func oneTick(mode Mode, cpu int) error {
	loop := NewLoop(LoopConfig{Clock: KernelClock(), Period: time.Millisecond, Mode: mode, CPU: cpu})
	var stop atomic.Bool
	err := loop.Run(&stop, func(Tick) Wait { stop.Store(true); return Wait{} })
	if err != nil {
		return err
	}
	return fmt.Errorf("ran %d, granted %t: %s", loop.Stats().Ticks, loop.Grant().Granted, loop.Grant().Why)
}

func niceAroundALoop() error {
	loop := NewLoop(LoopConfig{Clock: KernelClock(), Period: time.Millisecond, CPU: UnpinnedCPU})
	var stop atomic.Bool
	err := errors.New("no tick")
	loop.Run(&stop, func(Tick) Wait {
		stop.Store(true)
		if err = NiceProcess(7); err == nil {
			err = checkNice(7, unix.Gettid(), loop.Grant().Granted)
		}
		return Wait{}
	})
	return err
}

// checkNice checks that every thread has the nice value want. If the loop has a real-time priority, its thread must
// have another value.
func checkNice(want, loop int, realTime bool) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		id, _ := strconv.Atoi(task.Name())
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, id) // the system call's 20-nice
		nice := 20 - raw
		if spared := id == loop && realTime; err == nil && (nice == want) == spared {
			return fmt.Errorf("thread %d has nice %d, spared %t", id, nice, spared)
		}
	}
	return errors.New("ok")
}

// lockAndGrow locks memory, lets Go map more of it, and then maps a large part without touching it: MCL_ONFAULT must
// not make that part resident.
func lockAndGrow() error {
	const untouched, tolerated = 256 << 10, 64 << 10 // kB
	if err := LockMemory(); err != nil {
		return err
	}
	waste(64 << 20)
	before, err := memoryStatus("VmRSS")
	if err != nil {
		return err
	}
	if _, err := unix.Mmap(-1, 0, untouched<<10, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return err
	}
	after, err := memoryStatus("VmRSS")
	if err != nil {
		return err
	}
	locked, err := memoryStatus("VmLck")
	if err != nil || locked < untouched || after-before > tolerated {
		return fmt.Errorf("locked %d kB, resident %d kB before and %d kB after mapping %d: %v", locked, before, after,
			untouched, err)
	}
	return errors.New("ok")
}

// memoryStatus returns the number of kB in the line of that name in /proc/self/status.
func memoryStatus(name string) (kB int, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), name+":")
	return strconv.Atoi(strings.Fields(rest + " missing")[0])
}

func TestTheKernelsRefusalsNameTheLimit(t *testing.T) {
	for _, tt := range []struct {
		role string
		want []string
	}{
		{"require", []string{"real time refused", "RLIMIT_RTPRIO is 0", "LimitRTPRIO", "ulimit -r", "CAP_SYS_NICE"}},
		{"auto", []string{"ran 1, granted false", "RLIMIT_RTPRIO is 0"}},
		{"nice", []string{"nice -10", "LimitNICE=-10", "ulimit -e 30", "CAP_SYS_NICE"}},
		{"lock", []string{"RLIMIT_MEMLOCK is 65536 bytes", "LimitMEMLOCK=infinity", "CAP_IPC_LOCK"}},
	} {
		t.Run(tt.role, func(t *testing.T) {
			got := asRole(t, tt.role, false)
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s says %q, want it to contain %q", tt.role, got, want)
				}
			}
			if strings.Contains(got, "\n") {
				t.Errorf("%s says %q, want one line", tt.role, got)
			}
		})
	}
}

func TestNiceProcessSparesTheLoop(t *testing.T) {
	if got := asRole(t, "nice around a loop", true); got != "ok" {
		t.Error(got)
	}
}

func TestLockMemoryOnFault(t *testing.T) {
	if !mayLockMemory() {
		t.Skip("locking memory wants CAP_IPC_LOCK")
	}
	if got := asRole(t, "lock and grow", true); got != "ok" {
		t.Error(got)
	}
}

func TestNiceProcessRefusesNonsense(t *testing.T) {
	for _, nice := range []int{-21, 20} {
		if err := NiceProcess(nice); err == nil {
			t.Errorf("NiceProcess(%d) = nil, want an error", nice)
		}
	}
}

func TestPermissionRefusal(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rtprio  uint64
		capable bool
		want    string
	}{
		{"no limit set", 0, false, "LimitRTPRIO=80"},
		{"limit just too low", loopPriority - 1, false, "RLIMIT_RTPRIO is 79"},
		{"limit high enough", loopPriority, false, "cpu.rt_runtime_us"},
		{"root", 0, true, "cpu.rt_runtime_us"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := permissionRefusal(tt.rtprio, tt.capable); !strings.Contains(got, tt.want) {
				t.Errorf("%q, want it to contain %q", got, tt.want)
			}
		})
	}
}

// On the kernel's clock the loop wakes at or after deadlines that stay on the grid. It runs in the class and on the CPU
// of its Grant, and restores the thread at the end.
func TestLoopOnTheKernel(t *testing.T) {
	const n, period = 50, 2 * time.Millisecond
	loop := NewLoop(LoopConfig{Clock: KernelClock(), Period: period, CPU: UnpinnedCPU})
	var stop atomic.Bool
	var ticks []Tick
	var during, before, after scheduling
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the readings are of the thread
		before = saveScheduling()
		err := loop.Run(&stop, func(tick Tick) Wait {
			ticks = append(ticks, tick)
			during = saveScheduling()
			stop.Store(len(ticks) == n)
			return Wait{}
		})
		after = saveScheduling()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("Run = %v", err)
	}
	for i, tick := range ticks {
		if tick.Woke < tick.Deadline {
			t.Errorf("tick %d woke %v early", i, tick.Deadline.Sub(tick.Woke))
		}
		if grid := ticks[0].Deadline.Add(time.Duration(tick.Index) * period); tick.Deadline != grid {
			t.Errorf("tick %d of index %d is due at %d, want %d", i, tick.Index, tick.Deadline, grid)
		}
	}
	g := loop.Grant()
	if fifo := during.attr.Policy == unix.SCHED_FIFO && during.attr.Priority == loopPriority; fifo != g.Granted {
		t.Errorf("class %d, priority %d during Run, but Grant = %+v", during.attr.Policy, during.attr.Priority, g)
	}
	if reset := during.attr.Flags&unix.SCHED_FLAG_RESET_ON_FORK != 0; reset != g.Granted {
		t.Errorf("reset-on-fork %t during Run, but Grant = %+v", reset, g)
	}
	if pinned := during.cpus.Count() == 1; pinned != (g.CPU != UnpinnedCPU) && before.cpus.Count() > 1 {
		t.Errorf("%d CPUs during Run, but Grant = %+v", during.cpus.Count(), g)
	}
	if after.attr.Policy != before.attr.Policy || after.cpus != before.cpus {
		t.Errorf("thread left with class %d, CPUs %v, found with %d, %v",
			after.attr.Policy, after.cpus.Count(), before.attr.Policy, before.cpus.Count())
	}
	if s := loop.Stats(); s.Ticks != n || s.Lateness.Count() != n {
		t.Errorf("Stats = %d ticks, %d latenesses, want %d", s.Ticks, s.Lateness.Count(), n)
	}
	t.Logf("granted %t, lateness p50 %v, max %v", g.Granted, loop.Stats().Lateness.Quantile(0.5),
		loop.Stats().Lateness.Max())
}

// A yield parks a locked thread: for a tick that woke in time, the kernel counts three waits with the yield, and two
// without it.
func TestLoopYieldsOnTheKernel(t *testing.T) {
	realTime(t)
	const n, period = 40, 12 * time.Millisecond
	loop := NewLoop(LoopConfig{Clock: KernelClock(), Period: period, CPU: UnpinnedCPU})
	var stop atomic.Bool
	var usage unix.Rusage
	var parked, inTime int
	done := make(chan error)
	go func() {
		done <- loop.Run(&stop, func(tick Tick) Wait {
			before := usage.Nvcsw
			if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
				t.Error(err)
			}
			if before != 0 && tick.Woke.Sub(tick.Deadline) < time.Millisecond {
				inTime++
				if usage.Nvcsw-before > 2 {
					parked++
				}
			}
			loop.passes = 0 // also after a slow yield
			stop.Store(tick.Index >= n)
			return Wait{}
		})
	}()
	if err := <-done; err != nil {
		t.Fatalf("Run = %v", err)
	}
	if parked < inTime/2 {
		t.Errorf("the thread was parked ahead of %d of %d ticks, want most", parked, inTime)
	}
}
