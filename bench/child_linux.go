package bench

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}

// ownGroup makes the command the first of a process group. Should this program
// die, a paused group must end, too, so the signal is one that cannot wait.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

const pauseSignal, resumeSignal = syscall.SIGSTOP, syscall.SIGCONT

// signalGroup sends a signal to all processes of the group.
func signalGroup(group int, s syscall.Signal) error { return syscall.Kill(-group, s) }

// shareCPUs lets thread to run on the same CPUs as thread from.
func shareCPUs(from, to int) error {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(from, &cpus); err != nil {
		return err
	}
	return unix.SchedSetaffinity(to, &cpus)
}

// threadUse is what the kernel counted for the calling thread.
func threadUse() (faults, involuntary int64) {
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &use) != nil {
		return 0, 0
	}
	return use.Minflt + use.Majflt, use.Nivcsw
}
