// Package child starts processes that end when this process ends for any reason (child.go), and locks files
// between processes (lock.go).
package child

import (
	"os/exec"
	"runtime"
	"sync"
)

// Start does the same as cmd.Start. In addition, on Linux, the kernel ends the process when this
// program dies: with SIGTERM, or with SIGKILL for the first process of a process group. The kernel
// ties that signal to the starting thread, and Go ends a thread when a goroutine that is locked to
// it ends. So a single thread, which never ends, starts all processes.
func Start(cmd *exec.Cmd) error {
	endWithUs(cmd)
	once.Do(func() { go serve() })
	r := request{cmd, make(chan error, 1)}
	requests <- r
	return <-r.done
}

type request struct {
	cmd  *exec.Cmd
	done chan error
}

var (
	once     sync.Once
	requests = make(chan request)
)

func serve() {
	runtime.LockOSThread()
	for r := range requests {
		r.done <- r.cmd.Start()
	}
}
