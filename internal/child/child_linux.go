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
	if cmd.SysProcAttr.Setpgid { // it may be stopped as a whole
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
}
