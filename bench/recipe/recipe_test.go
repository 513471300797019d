package recipe

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

func TestCellsOf(t *testing.T) {
	want := []Cell{{"nice0", "off", "none"}, {"rr40", "off", "none"}, {"nice0", "off", "alloc"},
		{"rr40", "off", "alloc"}}
	got := cellsOf([]string{"nice0", "rr40"}, []string{"off"}, []string{"none", "alloc"})
	rttest.Equal(t, got, want, "cellsOf")
}

func TestTotalOf(t *testing.T) {
	cell, other := Cell{"rr40", "off", "none"}, Cell{"nice0", "off", "none"}
	run := func(ticks uint64, late string, worst, bus float64) *Result {
		e := new(edge.Summary)
		e.Ticks, e.OverrunsOwn = ticks, 1
		e.LatenessUS.Max = worst
		e.LatenessHist, e.Bus = map[string]uint64{late: ticks}, drive.BusSummary{Cycles: ticks, Lost: 3, P99: bus}
		return &Result{
			Edge:    e,
			RTShare: 0.25, RTPeak: bus / 10000, Children: "RR 40",
		}
	}
	got := totalOf(cell, []Slice{
		{Cell: cell, Result: run(100, "20.5", 29, 2000)},
		{Cell: other, Result: run(1, "1", 1, 1)},
		{Cell: cell, Failed: "no bus"},
		{Cell: cell, Result: run(100, "90", 99.5, 1000)},
	})
	if got.Rounds != 2 || got.Ticks != 200 || got.OverrunsOwn != 2 || got.BusLost != 6 || got.BusP99 != 2000 ||
		len(got.Failed) != 1 || got.RTShare != 0.25 || got.RTPeak != 0.2 {
		t.Errorf("totalOf = %+v", got)
	}
	if q := got.Lateness; q.P50 != 20 || q.P99 != 90 || q.Max != 99.5 {
		t.Errorf("lateness %+v, want p50 20, p99 90, max 99.5", q)
	}
	var table strings.Builder
	r := &Report{FPS: 60, SliceS: 5, Machine: bench.Machine{Cores: 2}, Cells: []Total{got}}
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "RR 40") ||
		!strings.Contains(table.String(), "no bus") {
		t.Errorf("table %v:\n%s", err, &table)
	}
}

// The threads of this process have the class that schedule gave them.
func TestScheduleGivesTheClass(t *testing.T) {
	ready, leave := make(chan int), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine and its class
		ready <- unix.Gettid()
		<-leave
	})
	defer all.Wait()
	defer close(leave)
	tid := <-ready
	class := func() string {
		for _, th := range bench.ThreadsOf(os.Getpid()) {
			if th.TID == tid {
				return bench.ClassesOf([]bench.Thread{th})
			}
		}
		return "gone"
	}
	one := []bench.Thread{{TID: tid}}
	if err := setNice(tid, 3); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	rttest.Want(t, class(), "1 OTHER nice 3", "after setNice(3) the thread")
	rttest.Want(t, len((Part{Cell: Cell{Others: "rr40"}}).schedule(one, map[int]bool{})), 1, "new threads")
	// where the kernel refuses the real-time class, the thread keeps its class
	if got := class(); got != "1 RR 40" && got != "1 OTHER nice 3" {
		t.Errorf("after rr40 the thread is %s", got)
	}
}
