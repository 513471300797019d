package jitter

import "golang.org/x/sys/unix"

func shareCPUs(from, to int) error {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(from, &cpus); err != nil {
		return err
	}
	return unix.SchedSetaffinity(to, &cpus)
}

// threadUse returns the kernel's counters of the calling thread.
func threadUse() (faults, involuntary int64) {
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &use) != nil {
		return 0, 0
	}
	return use.Minflt + use.Majflt, use.Nivcsw
}
