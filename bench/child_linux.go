package bench

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the command the first of a process group. Should this program
// die, a paused group must end, too, so the signal is one that cannot wait.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

const pauseSignal, resumeSignal = syscall.SIGSTOP, syscall.SIGCONT

// signalGroup sends a signal to all processes of the group.
func signalGroup(group int, s syscall.Signal) error { return syscall.Kill(-group, s) }
