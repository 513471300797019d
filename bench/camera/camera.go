// Package camera measures what cameras cost: how old a picture is when it stands
// in a message, the CPU time of capturing and of encoding, and whether the tick
// notices.
//
// Every picture of every camera is captured, developed and put into a message, as
// the edge does it, by one sender for all, only more often: an edge asks a few
// times a second. Slices
// with the cameras and without take turns, each with a 60 Hz loop of its own at
// the edge's priority beside them, because on a shared machine only neighbours
// can be compared.
package camera

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"edgert/bench"
	"edgert/edge/capture"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/sim"
	"edgert/wire"
)

// Config says what to measure.
type Config struct {
	Cameras  []capture.Config
	Quality  int  // 0: raw
	Asked    bool // a camera's own JPEG is encoded anew
	FPS      float64
	Duration time.Duration // in all
	Slice    time.Duration
	RT       rt.Mode
	Version  string
	Log      io.Writer
}

// Limits of a measurement.
const (
	minSlice = time.Second
	headroom = 1 << 30 // the collector's safety net while it is off
	sendPoll = time.Millisecond
	niceness = -10
	bodyRoom = 4 << 10 // of a message beside its picture
)

// Measure runs slices in turn until the time is over.
func Measure(ctx context.Context, cfg Config) (*Report, error) {
	switch {
	case len(cfg.Cameras) == 0:
		return nil, exit.Errorf(exit.Usage, "no --camera")
	case !(cfg.FPS >= 1 && cfg.FPS <= 1000):
		return nil, exit.Errorf(exit.Usage, "--fps is %v, want 1 to 1000", cfg.FPS)
	case cfg.Slice < minSlice || cfg.Duration < 2*cfg.Slice:
		return nil, exit.Errorf(exit.Usage, "--duration %v with slices of %v: want slices of %v or more, and time for one with the cameras and one without", cfg.Duration, cfg.Slice, minSlice)
	}
	clock := rt.KernelClock()
	report := &Report{Bench: "camera", Version: cfg.Version, FPS: cfg.FPS, Machine: bench.ReadMachine(os.DirFS("/"))}
	stations, err := open(&cfg, clock)
	defer func() {
		for _, s := range stations {
			s.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	rt.NiceProcess(niceness) // refused: the figures say so by themselves
	defer rt.HoldGC(headroom).Release()
	with, without := newTicks(), newTicks()
	steal := rt.StealTime()
	for end := clock.Now().Add(cfg.Duration); clock.Now() < end && ctx.Err() == nil; {
		for _, on := range []bool{report.Slices%2 == 0, report.Slices%2 != 0} {
			ticks := without
			if on {
				ticks = with
			}
			if err := slice(&cfg, clock, stations, on, ticks); err != nil {
				return nil, err
			}
			runtime.GC() // between slices, as an edge does between episodes
		}
		report.Slices++
		fmt.Fprintf(cfg.Log, "round %d\n", report.Slices)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	report.StealMS = float64((rt.StealTime() - steal).Microseconds()) / 1e3
	report.With, report.Without = with.summary(), without.summary()
	for _, s := range stations {
		report.Cameras = append(report.Cameras, s.summary())
	}
	return report, nil
}

// slice runs the loop for a slice's time, with the cameras or without.
func slice(cfg *Config, clock rt.Clock, stations []*station, on bool, ticks *ticks) error {
	var stop, ending atomic.Bool
	var threads sync.WaitGroup
	failed := make(chan error, 2)
	if on {
		for _, s := range stations {
			threads.Go(func() { s.capture(clock, &ending) })
		}
		threads.Go(func() { failed <- send(clock, stations, &ending) })
	}
	loop := rt.NewLoop(rt.LoopConfig{Clock: clock, Period: time.Duration(float64(time.Second) / cfg.FPS), Mode: cfg.RT, CPU: rt.UnpinnedCPU})
	threads.Go(func() {
		failed <- loop.Run(&stop, func(t rt.Tick) rt.Wait {
			ticks.late.Record(max(0, t.Woke.Sub(t.Deadline)))
			return rt.Wait{}
		})
	})
	clock.SleepUntil(clock.Now().Add(cfg.Slice))
	stop.Store(true)
	ending.Store(true)
	threads.Wait()
	close(failed)
	ticks.add(loop.Stats(), loop.Grant())
	for err := range failed {
		if errors.Is(err, rt.ErrRealTimeRefused) {
			return exit.With(exit.RealTime, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// station is one camera on its way into messages.
type station struct {
	eye       *capture.Camera
	developer *capture.Encoder
	picked    string
	images    [1]wire.Image
	body      []byte

	last     rt.Instant // of the picture that was sent last
	latency  *rt.Hist
	pictures uint64
	bytes    uint64
	seconds  float64

	captureCPU, developCPU time.Duration
	allocs                 uint64
}

// open opens all cameras, without a policy.
func open(cfg *Config, clock rt.Clock) (all []*station, err error) {
	world := func() capture.World { return sim.NewLive(sim.NewWorld(0, 1), clock, clock.Now()) }
	for i := range cfg.Cameras {
		c := &cfg.Cameras[i]
		source, picked, err := capture.Open(c, capture.Options{Clock: clock, World: world, Decoded: cfg.Asked || cfg.Quality == 0})
		if err != nil {
			return all, err
		}
		s := &station{eye: capture.New(c.Name, source, c.MaxAge), picked: picked, latency: rt.NewHist()}
		all = append(all, s)
		if s.developer, err = capture.NewEncoder(s.eye, c, capture.Encoding{Quality: cfg.Quality, Reencode: cfg.Asked}); err != nil {
			return all, err
		}
		s.body = make([]byte, 0, s.developer.MaxBytes()+bodyRoom)
	}
	return all, nil
}

func (s *station) close() {
	if s.developer != nil {
		s.developer.Close()
	}
	s.eye.Source.Close()
}

// capture is the camera's capture thread.
func (s *station) capture(clock rt.Clock, stop *atomic.Bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := rt.ThreadCPU()
	var blind atomic.Int32
	s.eye.Run(clock, stop, &blind)
	s.captureCPU += rt.ThreadCPU() - before
}

// send is the edge's sender thread: it puts every new picture of every camera into
// a message.
func send(clock rt.Clock, stations []*station, stop *atomic.Bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, heap := clock.Now(), rt.ReadHeap()
	for _, s := range stations {
		s.last = 0
	}
	for !stop.Load() {
		idle := true
		for _, s := range stations {
			fresh, err := s.develop(clock)
			if err != nil {
				return err
			}
			idle = idle && !fresh
		}
		if idle {
			clock.SleepUntil(clock.Now().Add(sendPoll))
		}
	}
	for _, s := range stations {
		s.allocs += rt.ReadHeap().Allocs - heap.Allocs
		s.seconds += clock.Now().Sub(began).Seconds()
	}
	return nil
}

// develop puts the newest picture into a message, if it is new.
func (s *station) develop(clock rt.Clock) (fresh bool, err error) {
	before := rt.ThreadCPU()
	_, key, _ := s.eye.Newest.Front()
	if rt.Instant(key) == s.last || key == rt.NoKey {
		return false, nil
	}
	at, err := s.developer.Picture(&s.images[0])
	if err != nil { // counted by the eye
		s.last = rt.Instant(key)
		return false, nil
	}
	s.body = wire.AppendObservation(s.body[:0], &wire.Observation{Images: s.images[:]})
	if s.last != 0 { // the first may have waited since the last slice
		s.latency.Record(max(0, clock.Now().Sub(at)))
		s.pictures++
		s.bytes += uint64(len(s.body))
		s.developCPU += rt.ThreadCPU() - before
	}
	s.last = at
	return true, nil
}

// ticks are the slices of one kind added up.
type ticks struct {
	late       *rt.Hist
	own, host  uint64
	count      uint64
	granted    bool
	grantedWhy string
}

func newTicks() *ticks { return &ticks{late: rt.NewHist(), granted: true} }

func (t *ticks) add(s rt.LoopStats, g rt.Grant) {
	t.count += s.Ticks
	t.own += s.OverrunsOwn
	t.host += s.OverrunsHost
	t.granted = t.granted && g.Granted
	t.grantedWhy = g.Why
}
