package recipe

import (
	"context"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/bench"
)

func setNice(tid, nice int) error {
	return unix.SchedSetAttr(tid, &unix.SchedAttr{Policy: unix.SCHED_NORMAL, Nice: int32(nice)}, 0)
}

// setRealTime sets a real-time class without reset-on-fork, as the measured recipe does.
func setRealTime(tid int, policy, priority uint32) error {
	return unix.SchedSetAttr(tid, &unix.SchedAttr{Policy: policy, Priority: priority}, 0)
}

// childClass starts a program from one of the process's threads, as a recorder would start an
// encoder, and returns the scheduling class of the new process.
func childClass(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, "sleep", "10")
	if err := cmd.Start(); err != nil {
		return "unknown: " + err.Error()
	}
	class := strings.TrimPrefix(bench.ClassesOf(bench.ThreadsOf(cmd.Process.Pid)), "1 ")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return class
}
