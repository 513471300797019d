package bus

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"edgert/bench"
	"edgert/rt"
)

// host is what the machine's cores have done since it started, and when that was
// read.
type host struct {
	at           rt.Instant
	stolen, idle time.Duration // of all cores
}

const idleLeft = 0.2 // of the cores' time, for a calm machine

// readHost reads the kernel's account; where there is none no machine is calm.
// What keeps the cores awake, if anything does, counts as idle.
func readHost(a *awake) host {
	stat, _ := os.ReadFile("/proc/stat")
	h := host{at: rt.KernelClock().Now()}
	h.stolen, h.idle = parseHost(stat)
	h.idle += a.spent()
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
		return time.Duration(n) * bench.StatTick
	}
	return ticks(8), ticks(4) + ticks(5)
}

// calm reports whether, between two readings, the hypervisor took nothing from
// any core, and other programs left some of the cores' time idle. What a cycle
// takes then is the program's and the port's.
func calm(from, to host) bool {
	share := idleLeft * float64(runtime.NumCPU())
	return to.stolen == from.stolen && to.at > from.at && float64(to.idle-from.idle) >= share*float64(to.at.Sub(from.at))
}
