package zenohtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// MemoryBound is how much a listener may take above its idle size, whatever
// hostile nodes do to it.
const MemoryBound = 64 << 20

// Resident is a process's resident memory in bytes, and the most that it ever was.
func Resident(t testing.TB, pid int) (now, peak int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	read := func(key string) int {
		_, after, _ := strings.Cut(string(text), key+":")
		n, _ := strconv.Atoi(strings.Fields(after)[0])
		return n << 10
	}
	return read("VmRSS"), read("VmHWM")
}
