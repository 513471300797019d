package rt

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	loopPriority  = 80 // SCHED_FIFO; above the process's other threads and the kernel's interrupt threads (50)
	fineSlack     = 1  // ns of timer slack for a loop without SCHED_FIFO; the default is 50 us
	nicePasses    = 4  // largest number of passes over the threads; threads may start during a pass
	minNice       = -20
	maxNice       = 19
	unlimitedHint = "systemd LimitMEMLOCK=infinity, or `ulimit -l unlimited`"
)

// scheduling describes how the kernel scheduled a thread before the loop began to use it.
type scheduling struct {
	attr *unix.SchedAttr // nil: the attributes are unknown, and are not restored
	cpus unix.CPUSet
}

func saveScheduling() scheduling {
	var s scheduling
	if unix.SchedGetaffinity(0, &s.cpus) != nil {
		return s
	}
	s.attr, _ = unix.SchedGetAttr(0, 0)
	return s
}

// releaseRealTime puts the calling thread back into its class and onto its CPUs. Reset-on-fork
// stays: removing it needs a privilege.
func releaseRealTime(s scheduling) {
	if s.attr == nil {
		return
	}
	s.attr.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
	// Giving privileges up is always allowed.
	unix.SchedSetAttr(0, s.attr, 0)
	unix.SchedSetaffinity(0, &s.cpus)
}

// acquireRealTime asks for SCHED_FIFO and a CPU for the calling thread.
func acquireRealTime(cpu int) Grant {
	c, err := readCPUs()
	pinned := UnpinnedCPU
	if err == nil {
		pinned, err = c.pin(cpu)
	}
	if err != nil {
		return Grant{Why: err.Error(), CPU: UnpinnedCPU}
	}
	err = unix.SchedSetAttr(0, &unix.SchedAttr{
		Policy:   unix.SCHED_FIFO,
		Priority: loopPriority,
		Flags:    unix.SCHED_FLAG_RESET_ON_FORK, // threads and children start as SCHED_OTHER
	}, 0)
	if err != nil {
		unix.Prctl(unix.PR_SET_TIMERSLACK, fineSlack, 0, 0, 0) // best effort: wakes 40 us earlier
		return Grant{Why: refusal(err), CPU: pinned}
	}
	return Grant{Granted: true, CPU: pinned}
}

// ReduceTimerSlack locks the goroutine to its thread and removes the kernel's 50 us of slack from its sleeps, as for a
// loop's thread. undo reverses both.
func ReduceTimerSlack() (undo func()) {
	runtime.LockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_TIMERSLACK, fineSlack, 0, 0, 0)
	}
	return func() {
		if err == nil {
			unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0)
		}
		runtime.UnlockOSThread()
	}
}

// lastCPU returns the highest number in the set, -1 when it is empty.
func lastCPU(set *unix.CPUSet) int {
	for cpu := len(set)*strconv.IntSize - 1; cpu >= 0; cpu-- {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	return -1
}

// refusal returns the sentence for Grant.Why that describes the kernel's error.
func refusal(err error) string {
	var limit unix.Rlimit
	if !errors.Is(err, unix.EPERM) || unix.Getrlimit(unix.RLIMIT_RTPRIO, &limit) != nil {
		return fmt.Sprintf("the kernel refused SCHED_FIFO %d: %v", loopPriority, err)
	}
	var has [2]unix.CapUserData
	_ = unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0]) // an error: no capability
	return permissionRefusal(limit.Cur, has[0].Effective>>unix.CAP_SYS_NICE&1 != 0)
}

// permissionRefusal returns the sentence with the reason why the kernel returned EPERM. The parameter capable is true
// if the process has CAP_SYS_NICE.
func permissionRefusal(rtprio uint64, capable bool) string {
	if rtprio >= loopPriority || capable {
		return fmt.Sprintf("the kernel refused SCHED_FIFO %d despite RLIMIT_RTPRIO or CAP_SYS_NICE: the control group "+
			"has no real-time budget (raise its cpu.rt_runtime_us) or the container forbids it (give it CAP_SYS_NICE, "+
			"or --ulimit rtprio=80 without root)",
			loopPriority)
	}
	return fmt.Sprintf("the kernel refused SCHED_FIFO %d because RLIMIT_RTPRIO is %d: raise it (systemd "+
		"LimitRTPRIO=80, or `ulimit -r 80`) or give the program CAP_SYS_NICE",
		loopPriority, rtprio)
}

// NiceProcess sets the nice value, from -20 (runs first) to 19 (runs last), of every thread that is not in a real-time
// class. Threads that start later inherit it. Its error names the limit to raise.
func NiceProcess(nice int) error {
	if nice < minNice || nice > maxNice {
		return fmt.Errorf("rt: nice %d, want %d to %d", nice, minNice, maxNice)
	}
	done := map[int]bool{}
	for range nicePasses {
		news, err := niceThreads(nice, done)
		if err != nil {
			return err
		}
		if news == 0 {
			break
		}
	}
	return nil
}

// niceThreads sets the nice value of every thread that is not in the map done yet, adds these threads to the map, and
// returns their number.
func niceThreads(nice int, done map[int]bool) (news int, err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, fmt.Errorf("rt: list threads: %w", err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil || done[tid] {
			continue
		}
		done[tid] = true
		news++
		if err := niceThread(tid, nice); err != nil {
			return news, err
		}
	}
	return news, nil
}

func niceThread(tid, nice int) error {
	attr, err := unix.SchedGetAttr(tid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil // the thread has ended
	}
	if err == nil && attr.Policy != unix.SCHED_NORMAL && attr.Policy != unix.SCHED_BATCH {
		return nil
	}
	err = unix.Setpriority(unix.PRIO_PROCESS, tid, nice)
	switch {
	case err == nil, errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("rt: nice %d: %w: raise RLIMIT_NICE (systemd LimitNICE=%d, or `ulimit -e %d`) or give the "+
			"program CAP_SYS_NICE",
			nice, err, nice, 20-nice)
	}
	return fmt.Errorf("rt: nice %d for thread %d: %w", nice, tid, err)
}

// LockMemory makes the kernel keep every page in memory that the process has used or will use. It does not make unused
// pages resident, unlike MCL_FUTURE alone, which multiplies the resident size. It refuses when locked memory is
// limited, because then the runtime's next mapping could fail, which ends the process.
func LockMemory() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("rt: lock memory: %w", err)
	}
	if limit.Cur != unix.RLIM_INFINITY && !mayLockMemory() {
		return fmt.Errorf("rt: lock memory: RLIMIT_MEMLOCK is %d bytes, want unlimited (%s), or give the program "+
			"CAP_IPC_LOCK",
			limit.Cur, unlimitedHint)
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("rt: lock memory: %w; %s", err, unlimitedHint)
	}
	return nil
}

// mayLockMemory reports whether CAP_IPC_LOCK is effective.
func mayLockMemory() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 writes two words
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0
}
