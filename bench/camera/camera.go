// Package camera measures the cost of cameras: the age of a picture when it is in a message, the
// CPU time of capturing and encoding, and how much later the cameras make the tick.
//
// As in the edge, one thread encodes the pictures of all cameras and puts them into messages; but it encodes every
// picture, and so more of them than an edge. In every slice a loop ticks at the edge's priority. Slices with and
// without the cameras alternate, because on a shared machine only adjacent slices can be compared.
package camera

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
)

// Config configures a measurement; its tags are the flags of `bench camera`.
type Config struct {
	Camera   []string      `sep:"none" help:"As edge-rt's --camera; repeat for more. Default: two synthetic cameras of 640x480 at 30 frames a second." placeholder:"NAME=SOURCE"`
	Quality  *int          `range:"0..100;0 is raw pictures" name:"jpeg-quality" help:"As edge-rt's." placeholder:"N"`
	FPS      float64       `range:"1..1000" name:"fps" default:"60" help:"Ticks per second beside the cameras."`
	Duration time.Duration `default:"1m" help:"In all, half of it without the cameras."`
	Slice    time.Duration `range:"1s.." default:"10s" help:"With the cameras and without take turns of this length."`
	RT       string        `name:"rt" default:"auto" enum:"auto,require,off" help:"As edge-rt's."`
	bench.Env
}

// twoCameras are measured when the flags name no camera.
var twoCameras = []string{"left=pattern:640x480@30", "right=pattern:640x480@30"}

var modes = map[string]rt.Mode{"auto": rt.ModeAuto, "require": rt.ModeRequire, "off": rt.ModeOff}

func (c *Config) check() error {
	if c.Duration < 2*c.Slice {
		return exit.Errorf(exit.Usage,
			"--duration %v with slices of %v: want time for one with the cameras and one without", c.Duration, c.Slice)
	}
	return nil
}

// Limits of a measurement.
const (
	headroom = 1 << 30 // memory limit while the collector is off
	sendPoll = time.Millisecond
	niceness = -10
	bodyRoom = 4 << 10 // size of a message without its picture
)

// Measure runs slices in turn until the time is over.
func Measure(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	clock := rt.KernelClock()
	report := &Report{
		Bench:   "camera",
		Version: cfg.Version,
		FPS:     cfg.FPS,
		Machine: bench.ReadMachine(os.DirFS("/")),
	}
	pipelines, err := cfg.open(clock)
	defer func() {
		for _, p := range pipelines {
			p.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	rt.NiceProcess(niceness) // if the kernel refuses, the figures show it
	defer rt.HoldGC(headroom).Release()
	report.With, report.Without = newTicks(), newTicks()
	host := stage.ReadHost()
	for end := clock.Now().Add(cfg.Duration); clock.Now() < end && ctx.Err() == nil; {
		for _, on := range bench.Turned([]bool{true, false}, report.Slices) {
			ticks := &report.Without
			if on {
				ticks = &report.With
			}
			if err := cfg.slice(ctx, clock, pipelines, on, ticks); err != nil {
				return nil, err
			}
			runtime.GC() // between slices, as an edge does between episodes
		}
		report.Slices++
		cfg.Progress("round %d\n", report.Slices)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	report.StealMS = float64((stage.ReadHost().Stolen - host.Stolen).Microseconds()) / 1e3
	report.With.finish()
	report.Without.finish()
	for _, p := range pipelines {
		report.Cameras = append(report.Cameras, p.summary())
	}
	return report, nil
}

// slice runs the loop for a slice's time, with the cameras or without. It ends early when ctx ends, or with the loop.
func (cfg *Config) slice(ctx context.Context, clock rt.Clock, pipelines []*pipeline, on bool, ticks *Ticks) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.Slice)
	defer cancel()
	var stop, ending atomic.Bool
	var threads sync.WaitGroup
	var failed error
	if on {
		for _, p := range pipelines {
			threads.Go(func() { p.capture(clock, &ending) })
		}
		threads.Go(func() { send(clock, pipelines, &ending) })
	}
	loop := rt.NewLoop(rt.LoopConfig{
		Clock:  clock,
		Period: time.Duration(float64(time.Second) / cfg.FPS),
		Mode:   modes[cfg.RT],
		CPU:    rt.UnpinnedCPU,
	})
	threads.Go(func() {
		defer cancel()
		failed = loop.Run(&stop, func(t rt.Tick) rt.Wait {
			ticks.late.Record(max(0, t.Woke.Sub(t.Deadline)))
			return rt.Wait{}
		})
	})
	<-ctx.Done()
	stop.Store(true)
	ending.Store(true)
	threads.Wait()
	ticks.add(loop.Stats(), loop.Grant())
	if errors.Is(failed, rt.ErrRealTimeRefused) {
		return exit.With(exit.RealTime, failed)
	}
	return failed
}

// pipeline is one camera and the code that turns its pictures into messages.
type pipeline struct {
	camera  *capture.Camera
	encoder *capture.Encoder
	picked  string
	images  [1]wire.Image
	body    []byte

	last     rt.Instant // instant of the picture that was sent last
	latency  *rt.Hist
	pictures uint64
	bytes    uint64
	seconds  float64

	captureCPU, encodeCPU time.Duration
	allocs                uint64
}

// open opens all cameras, without a policy.
func (cfg *Config) open(clock rt.Clock) (all []*pipeline, err error) {
	world := func() *sim.Live { return sim.NewLive(sim.NewWorld(0, 1), clock, clock.Now()) }
	encoding := capture.Encoding{Quality: capture.DefaultQuality}
	if cfg.Quality != nil {
		encoding = capture.Encoding{Quality: *cfg.Quality, Reencode: true}
	}
	cameras := cfg.Camera
	if len(cameras) == 0 {
		cameras = twoCameras
	}
	for _, text := range cameras {
		c, err := capture.Parse(text)
		if err != nil {
			return all, err
		}
		source, picked, err := capture.Open(&c, capture.Options{Clock: clock, World: world,
			Decoded: encoding.Reencode || encoding.Quality == 0})
		if err != nil {
			return all, err
		}
		p := &pipeline{camera: capture.New(c.Name, source, c.MaxAge), picked: picked, latency: rt.NewHist()}
		all = append(all, p)
		if p.encoder, err = capture.NewEncoder(p.camera, &c, encoding); err != nil {
			return all, err
		}
		p.body = make([]byte, 0, p.encoder.MaxBytes()+bodyRoom)
	}
	return all, nil
}

func (p *pipeline) close() {
	if p.encoder != nil {
		p.encoder.Close()
	}
	p.camera.Source.Close()
}

func (p *pipeline) capture(clock rt.Clock, stop *atomic.Bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := rt.ThreadCPU()
	var blind atomic.Int32
	p.camera.Run(clock, stop, &blind)
	p.captureCPU += rt.ThreadCPU() - before
}

// send is the edge's sender thread: every new picture becomes a message.
func send(clock rt.Clock, pipelines []*pipeline, stop *atomic.Bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, heap := clock.Now(), rt.ReadHeap()
	for _, p := range pipelines {
		p.last = 0
	}
	for !stop.Load() {
		idle := true
		for _, p := range pipelines {
			if p.encode(clock) {
				idle = false
			}
		}
		if idle {
			clock.SleepUntil(clock.Now().Add(sendPoll))
		}
	}
	for _, p := range pipelines {
		p.allocs += rt.ReadHeap().Allocs - heap.Allocs
		p.seconds += clock.Now().Sub(began).Seconds()
	}
}

// encode puts the newest picture into a message, unless an earlier message has this picture.
func (p *pipeline) encode(clock rt.Clock) (fresh bool) {
	before := rt.ThreadCPU()
	_, key, _ := p.camera.Newest.Front()
	if rt.Instant(key) == p.last || key == rt.NoKey {
		return false
	}
	at, err := p.encoder.Picture(&p.images[0])
	if err != nil { // the camera counts the error
		p.last = rt.Instant(key)
		return false
	}
	p.body = wire.AppendObservation(p.body[:0], &wire.Observation{Images: p.images[:]})
	if p.last != 0 { // the first picture may have waited since the last slice, so it is not measured
		p.latency.Record(max(0, clock.Now().Sub(at)))
		p.pictures++
		p.bytes += uint64(len(p.body))
		p.encodeCPU += rt.ThreadCPU() - before
	}
	p.last = at
	return true
}
