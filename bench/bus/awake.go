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

// awake is a process with a thread of the lowest class for each core. It keeps every core busy, so
// that no core sleeps and the host gives no core to another machine. Where the kernel schedules by
// groups, the process makes a group of the lowest weight. In a container the process may use up the
// CPU quota. A nil awake means that there is no such process.
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

// host returns a reading of the machine in which the CPU time of the awake process counts as idle,
// since no other program wanted that time.
func (a *awake) host() stage.Host {
	h := stage.ReadHost()
	if a != nil {
		for _, t := range bench.ThreadsOf(a.child.PID()) {
			h.Idle += t.CPU
		}
	}
	return h
}

// check returns an error if the awake process has ended.
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

// stop ends the process, and returns an error if the process had ended before.
func (a *awake) stop() error {
	if a == nil {
		return nil
	}
	if err := a.check(); err != nil {
		return err
	}
	return a.child.Stop()
}
