package rt

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// minCPUsToPin is the least number of CPUs with which choose pins a loop to a CPU that is not isolated. With fewer
// CPUs, a pinned loop waits for other threads on its CPU.
const minCPUsToPin = 4

// cpus describes the machine's CPUs and which of them the calling thread may use.
type cpus struct {
	allowed  unix.CPUSet // the thread's affinity, by default without isolated CPUs
	present  unix.CPUSet
	online   unix.CPUSet
	isolated unix.CPUSet // CPUs of isolcpus=, on which the kernel itself schedules nothing

	// bind sets the calling thread's affinity. The kernel refuses only CPUs outside the cpuset of the thread's control
	// group.
	bind func(*unix.CPUSet) error
}

// readCPUs reads the machine's CPUs from files. If a file is missing, it assumes that all allowed CPUs are online and
// not isolated.
func readCPUs() (c cpus, err error) {
	if err := unix.SchedGetaffinity(0, &c.allowed); err != nil {
		return c, fmt.Errorf("the CPUs of this process are not readable: %w", err)
	}
	c.bind = func(set *unix.CPUSet) error { return unix.SchedSetaffinity(0, set) }
	c.present, c.online = c.allowed, c.allowed
	for name, set := range map[string]*unix.CPUSet{"present": &c.present, "online": &c.online,
		"isolated": &c.isolated} {
		text, err := os.ReadFile("/sys/devices/system/cpu/" + name)
		if list, ok := ParseCPUs(string(text)); err == nil && ok {
			*set = list
		}
	}
	return c, nil
}

func (c *cpus) bindTo(cpu int) error {
	var one unix.CPUSet
	one.Set(cpu)
	return c.bind(&one)
}

// ParseCPUs reads a list as the kernel prints it, such as 0-2,5; an empty text is the empty set. ok is false for any
// other text.
func ParseCPUs(text string) (set unix.CPUSet, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" {
		return set, true
	}
	for _, part := range strings.Split(text, ",") {
		first, last, span := strings.Cut(part, "-")
		if !span {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || from > to {
			return unix.CPUSet{}, false
		}
		for cpu := from; cpu <= to; cpu++ {
			set.Set(int(cpu))
		}
	}
	return set, true
}

func formatCPUs(set unix.CPUSet) string {
	var parts []string
	for cpu, end := 0, lastCPU(&set); cpu <= end; cpu++ {
		if !set.IsSet(cpu) {
			continue
		}
		from := cpu
		for set.IsSet(cpu + 1) {
			cpu++
		}
		if from == cpu {
			parts = append(parts, strconv.Itoa(cpu))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", from, cpu))
		}
	}
	return strings.Join(parts, ",")
}

// pin binds the calling thread to the CPU; for UnpinnedCPU it calls choose. It returns the CPU, or UnpinnedCPU if the
// thread is bound to none.
func (c *cpus) pin(cpu int) (int, error) {
	if cpu == UnpinnedCPU {
		return c.choose()
	}
	if cpu >= 0 && c.online.IsSet(cpu) {
		err := c.bindTo(cpu)
		if err == nil {
			return cpu, nil
		}
		return UnpinnedCPU, fmt.Errorf("CPU %d is online, but not this process's to use (%w): its control group's "+
			"cpuset leaves it out (systemd AllowedCPUs=, docker --cpuset-cpus); its own are %s",
			cpu, err, formatCPUs(c.allowed))
	}
	if c.present.IsSet(cpu) {
		return UnpinnedCPU, fmt.Errorf("CPU %d is offline, online are %s: echo 1 > "+
			"/sys/devices/system/cpu/cpu%d/online, or give one of those", cpu, formatCPUs(c.online), cpu)
	}
	return UnpinnedCPU, fmt.Errorf("there is no CPU %d here: want one of %s, or -1 to choose", cpu,
		formatCPUs(c.online))
}

// choose binds the calling thread to the last isolated CPU. Without isolated CPUs it binds the thread to the last
// allowed CPU, but only if at least minCPUsToPin are allowed. If taskset or CPUAffinity= limits the process to some
// CPUs, it chooses among these.
func (c *cpus) choose() (int, error) {
	limited := false
	var lone []int // isolated CPUs, the highest first
	for cpu := lastCPU(&c.online); cpu >= 0; cpu-- {
		switch {
		case !c.online.IsSet(cpu):
		case c.isolated.IsSet(cpu):
			lone = append(lone, cpu)
		case !limited && !c.allowed.IsSet(cpu):
			limited = c.bindTo(cpu) == nil // if this works, only the thread's affinity excluded the CPU
		}
	}
	for _, cpu := range lone {
		if (c.allowed.IsSet(cpu) || !limited) && c.bindTo(cpu) == nil {
			return cpu, nil
		}
	}
	cpu := lastCPU(&c.allowed)
	if c.allowed.Count() >= minCPUsToPin {
		if err := c.bindTo(cpu); err != nil {
			return UnpinnedCPU, fmt.Errorf("the loop cannot be pinned to CPU %d: %w", cpu, err)
		}
		return cpu, nil
	}
	if limited { // the attempt in the loop above has moved the thread
		return UnpinnedCPU, c.bind(&c.allowed)
	}
	return UnpinnedCPU, nil
}

// CheckCPU returns nil if cpu is UnpinnedCPU or a Loop can be pinned to it, and otherwise the reason why it cannot.
func CheckCPU(cpu int) error {
	if cpu == UnpinnedCPU {
		return nil
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // pin binds the thread to a CPU, so it stays locked and ends with the goroutine
		c, err := readCPUs()
		if err == nil {
			_, err = c.pin(cpu)
		}
		done <- err
	}()
	return <-done
}
