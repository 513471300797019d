package stage

import (
	"context"
	"sync"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// fakeTries is how many ports a fake server tries, since another program may take a port that was
// free just before.
const fakeTries = 5

// FakeConfig describes a fake server.
type FakeConfig struct {
	Model   string // repository of the model
	Service string
	Robot   string // id of the robot that gets the chunks
	Rows    int    // rows of each chunk
}

// FakeServer is a server without a policy: over a real transport, it answers every observation with a chunk that keeps
// the arm where it is, or calls the function that SetAnswer has set. Its messages have only the keys that the protocol
// demands, as those of an old server.
type FakeServer struct {
	FakeConfig
	Endpoint, Prefix string
	Net              wire.Session
	Token            wire.Declaration // token that shows the server as alive

	mu        sync.Mutex
	answer    func(wire.Sample)      // guarded by mu; nil: Hold
	ack       func(*wire.SessionAck) // guarded by mu; nil: no change
	publisher wire.Publisher
}

// OpenFakeServer opens a fake server at a free port.
func OpenFakeServer(ctx context.Context, cfg FakeConfig) (s *FakeServer, err error) {
	s = &FakeServer{FakeConfig: cfg}
	if s.Prefix, err = wire.ServicePrefix(cfg.Model, "main", cfg.Service); err != nil {
		return nil, err
	}
	for range fakeTries {
		if s.Endpoint, err = FreeEndpoint(); err != nil {
			return nil, err
		}
		if s.Net, err = zenoh.Open(ctx, zenoh.Config{Listen: []string{s.Endpoint}}); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.declare(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *FakeServer) declare() (err error) {
	if _, err := s.Net.Queryable(wire.SessionKey(s.Prefix), s.open); err != nil {
		return err
	}
	key, err := wire.ActionKey(s.Prefix, s.Robot)
	if err != nil {
		return err
	}
	if s.publisher, err = s.Net.Publisher(key, wire.ActionQoS); err != nil {
		return err
	}
	if _, err := s.Net.Subscribe(wire.ObsWildcard(s.Prefix), s.observe); err != nil {
		return err
	}
	s.Token, err = s.Net.Token(wire.ServerAliveKey(s.Prefix))
	return err
}

// Close ends the server.
func (s *FakeServer) Close() { s.Net.Close() }

// SetAnswer sets the function that the server calls for every observation, on the transport's thread; nil means Hold.
func (s *FakeServer) SetAnswer(answer func(wire.Sample)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// SetAck sets a function that may change each answer to the open of a session.
func (s *FakeServer) SetAck(change func(*wire.SessionAck)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ack = change
}

func (s *FakeServer) open(q wire.Query) {
	defer q.Finish()
	var open wire.SessionOpen
	if wire.Parse(&open, q.Payload()) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ack := wire.SessionAck{
		Accepted:      true,
		SchemaVersion: 1,
		SessionID:     s.Service,
	}
	ack.ModelRepo = s.Model
	ack.ActionNames = open.ActionNames
	ack.StateDim = open.StateDim
	ack.ChunkSize = s.Rows
	ack.WarmedUp = true
	ack.T = 1
	if s.ack != nil {
		s.ack(&ack)
	}
	_ = q.Reply(q.Key(), wire.Append(nil, &ack))
}

func (s *FakeServer) observe(sample wire.Sample) {
	s.mu.Lock()
	answer := s.answer
	s.mu.Unlock()
	if answer == nil {
		answer = s.Hold
	}
	answer(sample)
}

// Hold answers an observation with a chunk that keeps the arm where it is.
func (s *FakeServer) Hold(sample wire.Sample) {
	if h, o, ok := ParseRequest(sample); ok {
		m := s.Chunk(o.State, func(row []float32, i int) {})
		go s.Reply(h, &wire.ActionChunk{ChunkModel: m, ChunkRobot: m})
	}
}

// ParseRequest reads an observation and its header; ok is false for other messages.
func ParseRequest(sample wire.Sample) (h wire.Header, o wire.Observation, ok bool) {
	h, err := wire.ParseHeader(sample.Attachment)
	return h, o, err == nil && wire.ParseObservation(&o, sample.Payload) == nil
}

// Chunk returns the rows of a chunk: each is a copy of state to which change is applied; i is the index of the row.
func (s *FakeServer) Chunk(state []float32, change func(row []float32, i int)) wire.Matrix {
	m := wire.Matrix{Rows: s.Rows, Cols: len(state), Data: make([]float32, 0, s.Rows*len(state))}
	for i := range s.Rows {
		m.Data = append(m.Data, state...)
		change(m.Data[i*m.Cols:], i)
	}
	return m
}

// Reply publishes the chunk that answers a request. It may wait, so a callback of the transport
// must call it in another goroutine.
func (s *FakeServer) Reply(h wire.Header, chunk *wire.ActionChunk) error {
	return s.publisher.Put(wire.AppendActionChunk(nil, chunk), wire.AppendHeader(nil, h.Reply(wire.MsgActionChunk)))
}
