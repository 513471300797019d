package safety

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
)

// sineServer is a server that keeps every joint moving: it lifts the arm from its first position
// and moves it in slow sines.
type sineServer struct {
	*stage.FakeServer
	first func(rt.Instant)            // called before a chunk leaves
	grip  func(time.Duration) float64 // the gripper's goal by the time since the first chunk; nil: a sine too

	mu     sync.Mutex
	begun  time.Time               // guarded by mu
	from   []float32               // guarded by mu: the arm's first position; nil: no chunk yet
	change func(*wire.ActionChunk) // guarded by mu: changes every chunk; nil: no change
}

const (
	sineRows   = 50
	sineWidth  = 25. // degrees either way, and percent of the gripper
	sinePeriod = 3.0 // seconds
	sineLift   = 1.5 // seconds from the arm's position to its sine
	gripMiddle = 50.
	sineModel  = "bench/sway"
)

// robotID is the id of every robot here.
const robotID = "arm"

func openSineServer(ctx context.Context, grip func(time.Duration) float64, first func(rt.Instant)) (s *sineServer,
	err error) {
	s = &sineServer{first: first, grip: grip}
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

// observe answers one observation; its first row is one tick from now.
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
			row[j] = s.place(j, len(row), t)
		}
	})
	chunk := wire.ActionChunk{ChunkModel: m, ChunkRobot: m}
	if s.change != nil {
		s.change(&chunk)
	}
	go s.Reply(h, &chunk) // a callback must not wait
}

// place returns the goal of joint j of n, in degrees or percent.
func (s *sineServer) place(j, n int, t time.Duration) float32 {
	if j == n-1 && s.grip != nil {
		return float32(s.grip(t))
	}
	phase := 2 * math.Pi * t.Seconds() / sinePeriod
	if j%2 == 1 {
		phase = -phase
	}
	to, share := sineWidth*math.Sin(phase), min(1, t.Seconds()/sineLift)
	if j == n-1 {
		to += gripMiddle
	}
	return s.from[j] + float32(share)*(float32(to)-s.from[j])
}
