package rt

import (
	"os"
	"strconv"
	"strings"
)

// ResidentSize returns how many bytes of memory the process occupies, 0 where the
// kernel does not tell. It reads a file: not for the tick.
//
// Source: proc_pid_statm(5), the second field, in pages.
func ResidentSize() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
