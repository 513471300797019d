// Package child starts processes that end when this one does, however that ends.
package child

import (
	"os/exec"
	"runtime"
	"sync"
)

// Start is cmd.Start, and asks the kernel to end the process (SIGTERM, or SIGKILL
// where it is the first of a process group) should this program die: also when
// nothing of it can run any more. Linux only; elsewhere it is cmd.Start.
//
// The kernel ties that to the thread that starts the process, and Go ends threads
// with goroutines that have locked them; so one thread starts all.
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
