package batch

import (
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: Read returns the last runs as they were added, oldest first: at most PastMax-1 runs, because Add may be
// overwriting one.
func TestPastKeepsTheLastRuns(t *testing.T) {
	p := new(Past)
	rttest.Want(t, len(p.Read(nil)), 0, "runs before the first run")
	run := func(i int) Run {
		return Run{
			Begun:    rt.Instant(i),
			Took:     time.Duration(i) * time.Microsecond,
			Size:     i % 17,
			Requests: i % 16,
			Failed:   i%3 == 0,
		}
	}
	for i := range PastMax + 10 {
		p.Add(run(i))
		if i < PastMax-1 {
			if got := p.Read(nil); len(got) != i+1 || got[i] != run(i) {
				t.Fatalf("after %d runs there are %d, the last %+v", i+1, len(got), got[len(got)-1])
			}
		}
	}
	got := p.Read(nil)
	if len(got) != PastMax-1 || got[len(got)-1] != run(PastMax+9) || got[0] != run(PastMax+10-len(got)) {
		t.Errorf("%d runs from %+v to %+v, want the last ones", len(got), got[0], got[len(got)-1])
	}
	rttest.NoAllocs(t, "Add allocates %v times, want 0", 100, func() { p.Add(run(1)) })
}

// Goal: a concurrent reader never sees a mixture of two runs.
func TestPastIsReadBesideTheWriter(t *testing.T) {
	p, stop := new(Past), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				p.Add(Run{Begun: rt.Instant(i), Took: time.Duration(i%1000) * time.Microsecond})
			}
		}
	})
	var runs []Run
	for range 2000 {
		runs = p.Read(runs[:0])
		for i, r := range runs {
			if want := time.Duration(int(r.Begun)%1000) * time.Microsecond; r.Took != want || i > 0 &&
				r.Begun != runs[i-1].Begun+1 {
				t.Fatalf("run %d of a read is %+v, want one of the writer's, in order", i, r)
			}
		}
	}
	close(stop)
	wg.Wait()
}
