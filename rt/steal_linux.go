package rt

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ThreadCPU returns the CPU time the calling thread has used so far.
//
//rt:noalloc
func ThreadCPU() time.Duration { return time.Duration(clockTime(unix.CLOCK_THREAD_CPUTIME_ID)) }

// StealTime returns how long this machine's CPUs together were taken away by the
// host so far, in steps of 10 ms. It is 0 where the kernel does not count it, as on
// a machine that is not virtual. It reads a file: not for the tick. It makes no
// garbage.
func StealTime() time.Duration {
	var r stealReader
	return r.read()
}

// stealReader is StealTime with a buffer of its own.
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

// statFile stays open for the life of the process; -1 where there is none.
var statFile = sync.OnceValue(func() int {
	fd, err := unix.Open("/proc/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
})

const (
	statLine   = 256                   // more than the first line, ten numbers of at most 20 digits
	stealField = 8                     // in the "cpu" line, its name counted
	clockTick  = 10 * time.Millisecond // the kernel's USER_HZ is 100 on every Linux ABI in use
)

// parseSteal finds the steal column of the line that sums all CPUs; 0 when there
// is none.
//
// Source: proc_stat(5).
func parseSteal(stat []byte) time.Duration {
	const name = "cpu "
	if len(stat) < len(name) || string(stat[:len(name)]) != name {
		return 0
	}
	field, value, digits := 0, int64(0), 0
	for _, c := range stat[len(name):] {
		switch {
		case c >= '0' && c <= '9' && digits < maxDigits:
			value, digits = value*10+int64(c-'0'), digits+1
		case c == ' ' || c == '\n':
			if digits > 0 {
				if field++; field == stealField {
					return time.Duration(value) * clockTick
				}
			}
			if value, digits = 0, 0; c == '\n' {
				return 0
			}
		default:
			return 0
		}
	}
	return 0
}

// maxDigits of a count keep it, in nanoseconds, inside 63 bits.
const maxDigits = 11
