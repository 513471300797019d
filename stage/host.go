package stage

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Host is a reading of the kernel's account of all cores since the machine started: how much time
// the host of a virtual machine took, and how much time the cores were idle. Both are 0 if the
// kernel keeps no account. Reports use the difference of two readings.
type Host struct {
	at           rt.Instant
	Stolen, Idle time.Duration
}

// StatTick is the unit of times in /proc: USER_HZ is 100 everywhere.
const StatTick = 10 * time.Millisecond

// idleMin is the least idle share of the cores' time on a calm machine.
const idleMin = 0.2

// ReadHost reads the kernel's account.
func ReadHost() Host {
	stat, _ := os.ReadFile("/proc/stat")
	h := Host{at: rt.KernelClock().Now()}
	h.Stolen, h.Idle = parseHost(stat)
	return h
}

// parseHost reads the line of all cores: user, nice, system, idle, iowait, irq,
// softirq, steal.
//
// Source: proc_stat(5).
func parseHost(stat []byte) (stolen, idle time.Duration) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	const least = 9
	if len(fields) < least || string(fields[0]) != "cpu" {
		return 0, 0
	}
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
		return time.Duration(n) * StatTick
	}
	return ticks(8), ticks(4) + ticks(5)
}

// StealShare returns the share of all cores' time that the host took since an earlier reading.
func (h Host) StealShare(from Host) float64 {
	return ShareOfCPUs(h.Stolen-from.Stolen, h.at.Sub(from.at))
}

// CalmSince reports whether, since an earlier reading, the host took no time and the cores had
// enough idle time, so that other programs did not disturb the measured program.
func (h Host) CalmSince(from Host) bool {
	return h.Stolen == from.Stolen && h.at > from.at && ShareOfCPUs(h.Idle-from.Idle, h.at.Sub(from.at)) >= idleMin
}

// ShareOfCPUs returns the CPU time used as a share of all cores' time in the duration elapsed.
func ShareOfCPUs(used, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return used.Seconds() / elapsed.Seconds() / float64(runtime.NumCPU())
}
