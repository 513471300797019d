package rt

import (
	"bytes"
	"math"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ThreadCPU returns the CPU time the calling thread has used so far.
//
//rt:noalloc
func ThreadCPU() time.Duration { return time.Duration(clockTime(unix.CLOCK_THREAD_CPUTIME_ID)) }

// StealTime returns how long the host has taken this machine's CPUs away, in steps of 10
// ms; 0 where the kernel does not count it. It reads a file: not for the tick.
func StealTime() time.Duration {
	var r stealReader
	return r.read()
}

// stealReader reads the steal time into a buffer that it has allocated before.
//
// Owner: one thread.
type stealReader struct{ line [statLine]byte }

//rt:noalloc
func (r *stealReader) read() time.Duration {
	fd := statFile()
	if fd < 0 {
		return 0
	}
	n, err := unix.Pread(fd, r.line[:], 0)
	if err != nil {
		return 0
	}
	return parseSteal(r.line[:n])
}

// statFile returns a descriptor of /proc/stat, which stays open for the life of the process; -1 if the file does not
// exist.
var statFile = sync.OnceValue(func() int {
	fd, err := unix.Open("/proc/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
})

const (
	statLine   = 256                   // bytes, more than the first line: ten numbers of at most 20 digits
	stealField = 8                     // position of the steal time among the numbers after the name "cpu"
	clockTick  = 10 * time.Millisecond // the kernel's USER_HZ is 100 on every Linux ABI in use
)

// parseSteal finds the steal column of the line that sums all CPUs.
//
// Source: proc_stat(5).
//
//rt:noalloc
func parseSteal(stat []byte) time.Duration {
	line, _, whole := bytes.Cut(stat, []byte("\n"))
	fields, isSum := bytes.CutPrefix(line, []byte("cpu  "))
	if !whole || !isSum {
		return 0
	}
	for range stealField - 1 {
		_, fields, _ = bytes.Cut(fields, []byte(" "))
	}
	steal, _, _ := bytes.Cut(fields, []byte(" "))
	ticks, err := strconv.ParseInt(string(steal), 10, 64)
	if err != nil || ticks < 0 || ticks > math.MaxInt64/int64(clockTick) {
		return 0
	}
	return time.Duration(ticks) * clockTick
}
