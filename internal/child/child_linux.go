package child

import (
	"os/exec"
	"syscall"
)

func endWithUs(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	if cmd.SysProcAttr.Setpgid { // the whole group may be stopped, and then SIGTERM has no effect
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
}
