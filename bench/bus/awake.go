package bus

import (
	_ "embed"
	"os/exec"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage"
)

//go:embed awake/awake.c
var awakeSource []byte

// awake is a process with a thread of the lowest class on every core, so that no core falls asleep
// or is given to other machines. The thread has the lowest weight where the kernel schedules by
// groups, and the rest of a container's quota. nil means no such process.
type awake struct{ child *stage.Child }

func stayAwake(folder string) (*awake, error) {
	program, err := compile(folder, "awake", awakeSource)
	if err != nil {
		return nil, err
	}
	c, err := stage.Start(exec.Command(program))
	if err != nil {
		return nil, err
	}
	return &awake{child: c}, nil
}

// host returns a reading of the machine in which the CPU time of this process counts as idle: all
// other programs had left it.
func (a *awake) host() stage.Host {
	h := stage.ReadHost()
	if a != nil {
		for _, t := range bench.ThreadsOf(a.child.PID()) {
			h.Idle += t.CPU
		}
	}
	return h
}

// check returns an error when the process has ended.
func (a *awake) check() error {
	if a == nil || a.child.Running() {
		return nil
	}
	why := a.child.LastWords()
	if why == "" {
		why = "the program that kept them was ended from outside"
	}
	return exit.Errorf(exit.Failure, "--awake: the cores were left to sleep: %s", why)
}

// stop ends the process; it is an error if it has ended before.
func (a *awake) stop() error {
	if a == nil {
		return nil
	}
	if err := a.check(); err != nil {
		return err
	}
	return a.child.Stop()
}
