// Package child starts processes that end when this one does, however that ends.
package child

import (
	"os/exec"
	"runtime"
	"sync"
)

// Start is cmd.Start; on Linux the kernel ends the process when this program
// dies, with SIGTERM, or SIGKILL for the first of a process group. The kernel
// ties that to the starting thread, and Go ends threads with locked goroutines,
// so one thread starts all.
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
