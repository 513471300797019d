package safety

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// sineServer is a server that keeps every joint moving: it lifts the arm from its first position
// and moves it in slow sines. Like an old server, it answers with only the keys that the wire
// demands.
type sineServer struct {
	session   wire.Session
	endpoint  string
	prefix    string
	publisher wire.Publisher
	first     func(rt.Instant)            // called before a chunk leaves
	grip      func(time.Duration) float64 // the gripper's goal by the time since the first chunk; nil: a sine too

	mu     sync.Mutex
	silent bool                    // guarded by mu: it does not answer
	begun  time.Time               // guarded by mu
	from   []float32               // guarded by mu: the arm's first position
	chunks int                     // guarded by mu
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
	if s.endpoint, err = stage.FreeEndpoint(); err != nil {
		return nil, err
	}
	if s.session, err = zenoh.Open(ctx, zenoh.Config{Listen: []string{s.endpoint}}); err != nil {
		return nil, err
	}
	if err := s.serve(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sineServer) serve() (err error) {
	if s.prefix, err = wire.ServicePrefix(sineModel, "main", "sway"); err != nil {
		return err
	}
	if _, err := s.session.Queryable(wire.SessionKey(s.prefix), s.open); err != nil {
		return err
	}
	key, err := wire.ActionKey(s.prefix, robotID)
	if err != nil {
		return err
	}
	if s.publisher, err = s.session.Publisher(key, wire.ActionQoS); err != nil {
		return err
	}
	if _, err := s.session.Subscribe(wire.ObsWildcard(s.prefix), s.observe); err != nil {
		return err
	}
	_, err = s.session.Token(wire.ServerAliveKey(s.prefix))
	return err
}

func (s *sineServer) close() { s.session.Close() }

func (s *sineServer) setSilent(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = on
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
	return time.Since(s.begun), s.chunks > 0
}

func (s *sineServer) open(q wire.Query) {
	defer q.Finish()
	var open wire.SessionOpen
	if wire.ParseSessionOpen(&open, q.Payload()) != nil {
		return
	}
	ack := wire.SessionAck{Accepted: true, SchemaVersion: 1, SessionID: "sway"}
	ack.ModelRepo = sineModel
	ack.ActionNames = open.ActionNames
	ack.StateDim = open.StateDim
	ack.ChunkSize = sineRows
	ack.TrainedFPS = fps
	ack.T = 1
	_ = q.Reply(q.Key(), wire.AppendSessionAck(nil, &ack))
}

// observe answers one observation; its first row is one tick from now.
func (s *sineServer) observe(sample wire.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := wire.ParseHeader(sample.Attachment)
	var o wire.Observation
	if err != nil || wire.ParseObservation(&o, sample.Payload) != nil || s.silent {
		return
	}
	now := time.Now()
	if s.chunks == 0 {
		s.begun, s.from = now, append([]float32(nil), o.State...)
	}
	s.first(rt.KernelClock().Now())
	s.chunks++
	m := wire.Matrix{Rows: sineRows, Cols: len(o.State), Data: make([]float32, 0, sineRows*len(o.State))}
	for i := range sineRows {
		t := now.Sub(s.begun) + time.Duration(i+1)*period
		for j := range o.State {
			m.Data = append(m.Data, s.place(j, len(o.State), t))
		}
	}
	chunk := wire.ActionChunk{ChunkModel: m, ChunkRobot: m}
	if s.change != nil {
		s.change(&chunk)
	}
	body, header := wire.AppendActionChunk(nil, &chunk), wire.AppendHeader(nil, h.Reply(wire.MsgActionChunk))
	go s.publisher.Put(body, header) // a callback must not wait
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
