package safety

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
)

// sineServer is a server that keeps every joint moving: it lifts the arms from their first position
// and moves them in slow sines, and drives a base in curves.
type sineServer struct {
	*stage.FakeServer
	robot robot.Robot
	first func(rt.Instant)            // called before a chunk leaves
	grip  func(time.Duration) float64 // goal of the grippers in grips, by the time since the first chunk
	grips robot.Joints                // grippers whose goal is that of grip; all others move in a sine

	mu     sync.Mutex
	begun  time.Time               // guarded by mu
	from   []float32               // guarded by mu: the arm's first position; nil: no chunk yet
	change func(*wire.ActionChunk) // guarded by mu: changes each chunk; nil: no change
}

const (
	sineRows   = 50
	sineWidth  = 25. // amplitude in degrees, or in percent for the gripper
	sinePeriod = 3.0 // seconds
	sineLift   = 1.5 // seconds from the arm's position to its sine
	gripMiddle = 50.
	sineModel  = "bench/sway"
)

// robotID is the id of every robot here.
const robotID = "arm"

// cruise holds a base's mean velocities on its axes, in m/s, m/s and degrees/s.
var cruise = [robot.Axes]float64{0.08, 0.04, 10}

// openSineServer opens a server for a robot. The function grip returns the goal of the grippers in the set grips.
func openSineServer(ctx context.Context, r robot.Robot, grip func(time.Duration) float64, grips robot.Joints,
	first func(rt.Instant)) (s *sineServer, err error) {
	s = &sineServer{
		robot: r,
		first: first,
		grip:  grip,
		grips: grips,
	}
	if s.FakeServer, err = stage.OpenFakeServer(ctx, stage.FakeConfig{
		Model:   sineModel,
		Service: "sway",
		Robot:   robotID,
		Rows:    sineRows,
	}); err != nil {
		return nil, err
	}
	s.SetAck(func(ack *wire.SessionAck) { ack.TrainedFPS = fps })
	s.SetAnswer(s.observe)
	return s, nil
}

func (s *sineServer) setChange(change func(*wire.ActionChunk)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change = change
}

// sinceFirst returns the time since the first chunk, if there was one.
func (s *sineServer) sinceFirst() (t time.Duration, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.begun), s.from != nil
}

// observe answers one observation. The first row of the chunk is for the next tick.
func (s *sineServer) observe(sample wire.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, o, ok := stage.ParseRequest(sample)
	if !ok {
		return
	}
	now := time.Now()
	if s.from == nil {
		s.begun, s.from = now, slices.Clone(o.State)
	}
	s.first(rt.KernelClock().Now())
	m := s.Chunk(o.State, func(row []float32, i int) {
		t := now.Sub(s.begun) + time.Duration(i+1)*period
		for j := range row {
			row[j] = s.place(j, t)
		}
	})
	chunk := wire.ActionChunk{ChunkModel: m, ChunkRobot: m}
	if s.change != nil {
		s.change(&chunk)
	}
	go s.Reply(h, &chunk) // the callback itself must not wait
}

// place returns the goal of joint j, in the joint's unit, at the time t after the first chunk.
func (s *sineServer) place(j int, t time.Duration) float32 {
	if s.grips.Has(j) {
		return float32(s.grip(t))
	}
	phase := 2 * math.Pi * t.Seconds() / sinePeriod
	if j%2 == 1 {
		phase = -phase
	}
	to, share := sineWidth*math.Sin(phase), min(1, t.Seconds()/sineLift)
	switch s.robot.Motors[j].Norm {
	case robot.Range0100:
		to += gripMiddle
	case robot.Velocity:
		to = cruise[j-s.robot.Wheels().First()] * (1 + math.Sin(phase)/2)
	}
	return s.from[j] + float32(share)*(float32(to)-s.from[j])
}
