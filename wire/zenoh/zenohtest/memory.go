package zenohtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// MemoryBound is the largest memory, in bytes above its idle size, that a listener may take under
// any attack.
const MemoryBound = 64 << 20

// Resident returns a process's resident memory in bytes: the present size and the largest so far.
func Resident(t testing.TB, pid int) (now, peak int) {
	t.Helper()
	text := rttest.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	read := func(key string) int {
		_, after, _ := strings.Cut(string(text), key+":")
		n, _ := strconv.Atoi(strings.Fields(after)[0])
		return n << 10
	}
	return read("VmRSS"), read("VmHWM")
}
