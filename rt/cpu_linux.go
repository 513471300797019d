package rt

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ThreadCPU returns the CPU time the calling thread has used so far.
//
//rt:noalloc
func ThreadCPU() time.Duration { return time.Duration(clockTime(unix.CLOCK_THREAD_CPUTIME_ID)) }

// StealTime returns how long this machine's CPUs together were taken away by the
// host so far, in steps of 10 ms. It is 0 where the kernel does not tell, as on
// a machine that is not virtual. It reads a file: not for the tick.
func StealTime() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return parseSteal(stat)
}

const (
	stealField = 8                     // in the "cpu" line, its name counted
	clockTick  = 10 * time.Millisecond // the kernel's USER_HZ is 100 on every Linux ABI in use
)

// parseSteal finds the steal column of the line that sums all CPUs; 0 when there
// is none.
//
// Source: proc_stat(5).
func parseSteal(stat []byte) time.Duration {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) <= stealField || string(fields[0]) != "cpu" {
		return 0
	}
	ticks, err := strconv.ParseInt(string(fields[stealField]), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(ticks) * clockTick
}
