package safety

import (
	"context"
	"math"
	"sync"
	"time"

	"edgert/bench"
	"edgert/rt"
	"edgert/wire"
	"edgert/wire/zenoh"
)

// sway is a server that keeps every joint moving: it lifts the arm from where it
// was seen first, and lets it sway there in slow sines. It answers as an old server does, with what the wire demands and
// no more.
type sway struct {
	net       wire.Session
	endpoint  string
	prefix    string
	token     wire.Declaration
	publisher wire.Publisher
	first     func(rt.Instant)            // is told before the first chunk leaves
	grip      func(time.Duration) float64 // where the gripper goes, since the first chunk; nil: it sways too

	mu     sync.Mutex
	silent bool                    // guarded by mu: nothing is answered
	begun  time.Time               // guarded by mu
	from   []float32               // guarded by mu: where the arm was seen first
	chunks int                     // guarded by mu
	spoil  func(*wire.ActionChunk) // guarded by mu: what is done to every chunk; nil: nothing
}

const (
	swayRows   = 50
	swayWidth  = 25. // degrees either way, and percent of the gripper
	swayPeriod = 3.0 // seconds
	swayLift   = 1.5 // seconds from where the arm was to where it sways
	gripMiddle = 50.
	swayModel  = "bench/sway"
)

// robotID is what every robot here is called.
const robotID = "arm"

// openSway listens at endpoint, at a free port when that is "".
func openSway(ctx context.Context, endpoint string, first func(rt.Instant)) (s *sway, err error) {
	s = &sway{first: first, endpoint: endpoint}
	if s.endpoint == "" {
		if s.endpoint, err = bench.FreeEndpoint(); err != nil {
			return nil, err
		}
	}
	if s.net, err = zenoh.Open(ctx, zenoh.Config{Listen: []string{s.endpoint}}); err != nil {
		return nil, err
	}
	if err := s.serve(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sway) serve() (err error) {
	if s.prefix, err = wire.ServicePrefix(swayModel, "main", "sway"); err != nil {
		return err
	}
	if _, err := s.net.Queryable(wire.SessionKey(s.prefix), s.session); err != nil {
		return err
	}
	key, err := wire.ActionKey(s.prefix, robotID)
	if err != nil {
		return err
	}
	if s.publisher, err = s.net.Publisher(key, wire.ActionQoS); err != nil {
		return err
	}
	if _, err := s.net.Subscribe(wire.ObsWildcard(s.prefix), s.observe); err != nil {
		return err
	}
	s.token, err = s.net.Token(wire.ServerAliveKey(s.prefix))
	return err
}

func (s *sway) close() {
	if s.net != nil {
		s.net.Close()
	}
}

// hush makes it answer nothing, or again.
func (s *sway) hush(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = on
}

// since is the time since the first chunk, if there was one.
func (s *sway) since() (t time.Duration, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.begun), s.chunks > 0
}

// ruin sets what becomes of every chunk.
func (s *sway) ruin(how func(*wire.ActionChunk)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoil = how
}

func (s *sway) session(q wire.Query) {
	defer q.Finish()
	var open wire.SessionOpen
	if wire.ParseSessionOpen(&open, q.Payload()) != nil {
		return
	}
	ack := wire.SessionAck{Accepted: true, SchemaVersion: 1, SessionID: "sway"}
	ack.ModelRepo, ack.ActionNames, ack.StateDim, ack.ChunkSize, ack.TrainedFPS, ack.T = swayModel, open.ActionNames, open.StateDim, swayRows, FPS, 1
	_ = q.Reply(q.Key(), wire.AppendSessionAck(nil, &ack))
}

// observe answers one observation. Row i is a tick after row i - 1, and the first
// a tick after now.
func (s *sway) observe(sample wire.Sample) {
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
	m := wire.Matrix{Rows: swayRows, Cols: len(o.State), Data: make([]float32, 0, swayRows*len(o.State))}
	for i := range swayRows {
		t := now.Sub(s.begun) + time.Duration(i+1)*period
		for j := range o.State {
			m.Data = append(m.Data, s.place(j, len(o.State), t))
		}
	}
	chunk := wire.ActionChunk{ChunkModel: m, ChunkRobot: m}
	if s.spoil != nil {
		s.spoil(&chunk)
	}
	body, header := wire.AppendActionChunk(nil, &chunk), wire.AppendHeader(nil, h.Reply(wire.MsgActionChunk))
	go s.publisher.Put(body, header) // a callback must not wait
}

// place is where joint j of n is to be, in degrees or percent.
func (s *sway) place(j, n int, t time.Duration) float32 {
	if j == n-1 && s.grip != nil {
		return float32(s.grip(t))
	}
	phase := 2 * math.Pi * t.Seconds() / swayPeriod
	if j%2 == 1 {
		phase = -phase
	}
	to, share := swayWidth*math.Sin(phase), min(1, t.Seconds()/swayLift)
	if j == n-1 {
		to += gripMiddle
	}
	return s.from[j] + float32(share)*(float32(to)-s.from[j])
}
