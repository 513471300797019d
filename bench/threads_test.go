package bench

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
)

func TestClassesOf(t *testing.T) {
	threads := []Thread{{1, 0, 0, -10, 0}, {2, 1, 80, 0, 0}, {3, 0, 0, -10, 0}, {4, 0, 0, 0, 0}, {5, 9, 0, 0, 0}}
	rttest.Want(t, ClassesOf(threads), "1 FIFO 80, 1 OTHER, 2 OTHER nice -10, 1 policy 9", "ClassesOf")
	if tid, ok := TickThread(threads, 80); tid != 2 || !ok {
		t.Errorf("TickThread = %d, %t, want 2", tid, ok)
	}
	if _, ok := TickThread([]Thread{{1, 1, 40, 0, 0}, {2, 2, 80, 0, 0}}, 80); ok {
		t.Error("TickThread takes a thread of another priority or policy")
	}
}

// The threads of this process have their times and classes.
func TestThreadsOfThisProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	for begin := time.Now(); time.Since(begin) < 3*stage.StatTick; {
	}
	var spent time.Duration
	main := slices.ContainsFunc(ThreadsOf(os.Getpid()), func(th Thread) bool {
		spent += th.CPU
		return th.TID == os.Getpid() && policies[th.Policy] != ""
	})
	if !main {
		t.Errorf("ThreadsOf(%d) lacks the first thread", os.Getpid())
	}
	ran := time.Duration(0)
	for _, d := range RunTimes(os.Getpid()) {
		ran += d
	}
	if ran < 2*stage.StatTick {
		t.Errorf("RunTimes are %v together, want some 30 ms", ran)
	}
	if n, err := SleepsOf(os.Getpid()); n == 0 || err != nil {
		t.Errorf("SleepsOf(%d) = %d, %v, want some", os.Getpid(), n, err)
	}
	rttest.Fails(t, rttest.Err(SleepsOf(1<<30)))
	if all := ThreadsOf(1 << 30); all != nil {
		t.Errorf("a process that does not exist has the threads %v", all)
	}
}
