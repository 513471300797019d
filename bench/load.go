package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage"
)

// Load is a process group that keeps the machine busy at nice 0, beside all subjects; nil means no load.
type Load struct {
	child  *stage.Child
	paused bool
}

// StartLoad starts the load of that name; the calling program must have a command `part load NAME`
// that is a LoadPart.
func StartLoad(name string) (*Load, error) {
	var cmd *exec.Cmd
	switch name {
	case "none":
		return nil, nil
	case "stress":
		path, err := exec.LookPath("stress-ng")
		if err != nil {
			return nil, exit.Errorf(exit.Usage,
				"--load stress wants stress-ng: `apt-get install stress-ng`, or take --load cpu")
		}
		cmd = exec.Command(path, "--cpu", strconv.Itoa(runtime.NumCPU()), "--quiet")
	case "cpu", "alloc":
		cmd = Part("load", name)
	default:
		return nil, exit.Errorf(exit.Usage, "--load is %q, want none, cpu, alloc or stress", name)
	}
	c, err := stage.StartGroup(cmd)
	if err != nil {
		return nil, err
	}
	return &Load{child: c}, nil
}

// Pause stops the load.
func (l *Load) Pause() {
	if l != nil && !l.paused {
		l.paused = l.child.Pause() == nil
	}
}

// Resume continues a paused load.
func (l *Load) Resume() {
	if l != nil && l.paused {
		l.paused = l.child.Resume() != nil
	}
}

// Stop ends the load. If the load had ended before, it returns an error, because the measurement
// then ran without its load.
func (l *Load) Stop() error {
	if l == nil {
		return nil
	}
	l.Resume()
	if !l.child.Running() {
		return fmt.Errorf("the load ended on its way: %s", l.child.LastWords())
	}
	return l.child.Stop()
}

// Part returns the command that runs a part of this program, such as a load, as a process of its
// own.
func Part(args ...string) *exec.Cmd {
	self, _ := os.Executable()
	return stage.Command(self, append([]string{"part"}, args...)...)
}

// LoadPart is a load in a process of its own, `bench part load`.
type LoadPart struct {
	Name string `arg:"" enum:"cpu,alloc"`
}

// Run keeps the machine busy until ctx ends.
func (p LoadPart) Run(ctx context.Context) error {
	work, workers := spin, runtime.NumCPU()
	if p.Name == "alloc" {
		// the garbage is collected about twice a second
		work, workers = func(ctx context.Context) { Allocate(ctx, 100e6, 64<<20) }, 1
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { work(ctx) })
	}
	all.Wait()
	return nil
}

func spin(ctx context.Context) {
	x := uint64(1)
	for ctx.Err() == nil {
		for range 1 << 16 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
	}
	if x == 0 {
		panic("unreachable: xorshift has no zero") // this use of x keeps the compiler from removing the loop
	}
}

// Sizes in bytes of the smallest and of the largest garbage object. Half of an object is pointers,
// so that the collector has work.
const (
	allocMin, allocMax = 64, 16 << 10
	allocPause         = time.Millisecond
)

type allocation struct {
	bytes []byte
	links []*allocation
}

// Allocate makes garbage at a steady rate, beside a live heap of liveBytes, until ctx ends.
func Allocate(ctx context.Context, bytesPerSecond float64, liveBytes int) {
	live := make([]*allocation, 2*liveBytes/(allocMin+allocMax))
	for began, done := time.Now(), 0.0; ctx.Err() == nil; time.Sleep(allocPause) {
		for done < bytesPerSecond*time.Since(began).Seconds() {
			size := allocMin + rand.IntN(allocMax-allocMin)
			a := &allocation{bytes: make([]byte, size/2), links: make([]*allocation, size/16)}
			for i := range a.links {
				a.links[i] = a // a cycle of pointers: work for the collector
			}
			live[rand.IntN(len(live))] = a
			done += float64(size)
		}
	}
}
