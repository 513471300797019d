package jitter

import "golang.org/x/sys/unix"

func shareCPUs(from, to int) error {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(from, &cpus); err != nil {
		return err
	}
	return unix.SchedSetaffinity(to, &cpus)
}
