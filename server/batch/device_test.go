package batch

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A device returns each run with its buffer, size, instants and error, and does not allocate.
func TestDeviceRunsOneAfterTheOther(t *testing.T) {
	clock, failure := rttest.NewClock(1), errors.New("no")
	d := NewDevice(func(buffer, size int) error {
		clock.Advance(3 * time.Millisecond)
		if size == 2 {
			return failure
		}
		return nil
	}, clock)
	d.Start()
	if e := d.Do(1, 4); e.Buffer != 1 || e.Size != 4 || e.Err != nil || e.At.Sub(e.Begun) != 3*time.Millisecond {
		t.Errorf("Do(1, 4) = %+v, want 3 ms and no error", e)
	}
	if e := d.Do(0, 2); e.Err != failure || e.Panicked {
		t.Errorf("Do(0, 2) = %+v, want its error", e)
	}
	rttest.NoAllocs(t, "a run allocates %v times, want 0", 50, func() { d.Do(0, 1) })
	d.Close()
	<-d.Done()
}

// A panic of the policy is an error, not the end of the process, and a run that was queued after it
// does not block for ever.
func TestDevicePanics(t *testing.T) {
	d := NewDevice(func(int, int) error { panic("bad graph") }, rttest.NewClock(1))
	d.Start()
	if e := d.Do(0, 1); !e.Panicked || !rttest.Says(e.Err, "bad graph") || e.At < e.Begun {
		t.Errorf("Do() = %+v, want the panic, and the time of its end", e)
	}
	if e := d.Do(0, 1); !e.Panicked {
		t.Errorf("the next Do() = %+v, want its panic", e)
	}
	d.Close()
	<-d.Done()
}

// Close waits for the jobs that were handed over.
func TestThreadsDoAllJobs(t *testing.T) {
	var done [2]atomic.Int64
	work := make([]func(int), 2)
	for i := range work {
		work[i] = func(n int) { done[i].Add(int64(n)) }
	}
	c := NewThreads(100, work)
	c.Start()
	for range 100 {
		c.Do(1)
	}
	c.Close()
	rttest.Want(t, done[0].Load()+done[1].Load(), 100, "jobs of two threads")
}
