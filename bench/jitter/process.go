package jitter

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/stage"
)

// process is a measured program, or the reference program beside it.
type process struct {
	*stage.Child
	threads string // scheduling classes of its threads during the measurement, in the form of bench.ClassesOf
}

func start(cmd *exec.Cmd) (*process, error) {
	c, err := stage.Start(cmd)
	return &process{Child: c}, err
}

const tickLimit = 15 * time.Second // longest time until a program's tick thread appears

// minCPUsToPin is the least number of CPUs with which rt pins a tick to the last CPU.
const minCPUsToPin = 4

func pinnedBy(wish, cpus int) int {
	if wish < 0 && cpus >= minCPUsToPin {
		return cpus - 1
	}
	return max(wish, -1)
}

// waitTick waits up to limit until the process's tick thread is real-time and returns its id. It
// records the scheduling classes of all threads of the process.
func (c *process) waitTick(ctx context.Context, limit time.Duration) (tid int, err error) {
	found := false
	stage.Until(limit, func() bool {
		threads := bench.ThreadsOf(c.PID())
		if tid, found = bench.TickThread(threads, subjectPriority); found {
			c.threads = bench.ClassesOf(threads)
		}
		return found || ctx.Err() != nil || !c.Running()
	})
	switch {
	case found:
		return tid, nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case !c.Running():
		return 0, errors.New(c.Name + " ended before it ticked")
	}
	return 0, errors.New(c.Name + " got no real-time thread within " + limit.String())
}

// waitExit returns when the process has ended, after d, or when ctx ends.
func (c *process) waitExit(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-c.Exited():
	case <-ctx.Done():
	}
}
