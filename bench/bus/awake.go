package bus

import (
	_ "embed"
	"os/exec"

	"edgert/bench"
	"edgert/internal/exit"
)

//go:embed awake/awake.c
var awakeSource []byte

// awake is a process with a thread of the lowest class on every core, so that no core falls asleep
// or is handed to other machines: the lowest weight where the kernel schedules by groups, the rest
// of a container's quota. nil means no such process.
type awake struct{ child *bench.Child }

func stayAwake(folder string) (*awake, error) {
	program, err := compile(folder, "awake", awakeSource)
	if err != nil {
		return nil, err
	}
	c, err := bench.Start(exec.Command(program))
	if err != nil {
		return nil, err
	}
	return &awake{child: c}, nil
}

// host is a reading of the machine in which the CPU time that kept the cores awake counts as idle:
// all other programs had left it.
func (a *awake) host() bench.Host {
	h := bench.ReadHost()
	if a != nil {
		for _, t := range bench.ThreadsOf(a.child.PID()) {
			h.Idle += t.CPU
		}
	}
	return h
}

// check fails when it has ended.
func (a *awake) check() error {
	if a == nil || a.child.Running() {
		return nil
	}
	why := a.child.LastWords()
	if why == "" {
		why = "somebody ended the program that kept them"
	}
	return exit.Errorf(exit.Failure, "--awake: the cores were left to sleep: %s", why)
}

// stop ends it; it must still be there.
func (a *awake) stop() error {
	if a == nil {
		return nil
	}
	if err := a.check(); err != nil {
		return err
	}
	return a.child.Stop()
}
