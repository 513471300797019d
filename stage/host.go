package stage

import (
	"runtime"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/prometheus/procfs"
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
	proc, _ := procfs.NewDefaultFS()
	stat, _ := proc.Stat()
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	all := stat.CPUTotal
	return Host{rt.KernelClock().Now(), seconds(all.Steal), seconds(all.Idle + all.Iowait)}
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
