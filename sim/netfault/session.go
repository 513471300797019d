package netfault

import (
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

const (
	// pollInterval is the resolution of every delay.
	pollInterval = time.Millisecond

	// maxInFlight bounds the messages on their way in each direction; further messages are lost.
	maxInFlight = 256
)

// Session is a robot's wire.Session with the plan's faults, in real time. The faults act on
// published observations and received chunks. Queries and liveliness tokens pass unchanged.
//
// The episode begins with the first observation. A spike holds back every chunk that arrives during
// it.
type Session struct {
	wire.Session
	clock rt.Clock
	plan  *Plan

	mu       sync.Mutex
	started  bool       // guarded by mu
	start    rt.Instant // guarded by mu; instant at which the episode began
	up, down direction  // guarded by mu
	closed   bool       // guarded by mu
	ended    chan struct{}
}

// direction is one line and the messages on their way on it, in order.
type direction struct {
	line        Line[*message]
	inFlight    []*message
	last        time.Duration // instant at which the newest message arrives
	spikesUntil time.Duration // instant until which spikes have been applied
	serverBack  time.Duration // when the server resumes
	scratch     []*message
}

// message is a copy of a received sample or of a publication, and the function that receives it.
type message struct {
	key                 string
	payload, attachment []byte
	due                 time.Duration
	deliver             func(m *message)
}

// Wrap returns a Session that applies the plan's faults to the session s. Close closes both.
func Wrap(s wire.Session, clock rt.Clock, plan *Plan) *Session {
	f := &Session{
		Session: s,
		clock:   clock,
		plan:    plan,
		ended:   make(chan struct{}),
	}
	f.down.spikesUntil = -1
	go f.run()
	return f
}

// Close closes the session. Messages on their way are lost.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	<-s.ended
	return s.Session.Close()
}

// run delivers due messages.
func (s *Session) run() {
	defer close(s.ended)
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return
		}
		s.flush(&s.up)
		s.flush(&s.down)
		s.mu.Unlock()
		s.clock.SleepUntil(s.clock.Now().Add(pollInterval))
	}
}

// now returns the time since the episode began. Called with mu held.
func (s *Session) now() time.Duration {
	if !s.started {
		return 0
	}
	return s.clock.Now().Sub(s.start)
}

// flush delivers the due messages of one direction. It is called with mu held, so callbacks run one at a time.
func (s *Session) flush(w *direction) {
	n := 0
	for n < len(w.inFlight) && w.inFlight[n].due <= s.now() {
		w.inFlight[n].deliver(w.inFlight[n])
		n++
	}
	w.inFlight = slices.Delete(w.inFlight, 0, n)
}

// send adds a message to the messages on their way, with the effect. Called with mu held.
func (s *Session) send(w *direction, effect Effect, at, earliest time.Duration, m *message) {
	effect = w.line.Next(effect)
	w.scratch, _ = w.line.Pass(effect, m, w.scratch[:0])
	for _, p := range w.scratch {
		if len(w.inFlight) >= maxInFlight {
			continue
		}
		w.last = max(w.last, earliest, w.line.Arrival(at, effect, len(p.payload)+len(p.attachment)))
		arriving := *p
		arriving.due = w.last
		w.inFlight = append(w.inFlight, &arriving)
	}
	s.flush(w)
}

// Publisher wraps the publisher of observations.
func (s *Session) Publisher(key string, qos wire.QoS) (wire.Publisher, error) {
	p, err := s.Session.Publisher(key, qos)
	if err != nil {
		return nil, err
	}
	return &publisher{Publisher: p, session: s}, nil
}

type publisher struct {
	wire.Publisher
	session *Session
}

// Put sends the observation with the plan's effect.
func (p *publisher) Put(payload, attachment []byte) error {
	p.send(payload, attachment, func(m *message) { _ = p.Publisher.Put(m.payload, m.attachment) })
	return nil
}

// PutLatest does the same as Put, because a message on its way cannot be replaced.
func (p *publisher) PutLatest(payload, attachment []byte) (replaced bool, err error) {
	p.send(payload, attachment, func(m *message) { _, _ = p.Publisher.PutLatest(m.payload, m.attachment) })
	return false, nil
}

func (p *publisher) send(payload, attachment []byte, deliver func(*message)) {
	s := p.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started, s.start = true, s.clock.Now()
	}
	at := s.now()
	m := &message{payload: slices.Clone(payload), attachment: slices.Clone(attachment), deliver: deliver}
	s.send(&s.up, s.plan.Observation(at), at, 0, m)
}

// Subscribe deposits chunks with the plan's effects.
func (s *Session) Subscribe(keyexpr string, deposit func(wire.Sample)) (wire.Declaration, error) {
	return s.Session.Subscribe(keyexpr, func(in wire.Sample) {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := s.now()
		w := &s.down
		if stop := s.plan.Spikes(w.spikesUntil, at); stop > 0 {
			w.serverBack = max(w.serverBack, at) + stop
		}
		w.spikesUntil = at
		m := &message{
			key:        in.Key,
			payload:    slices.Clone(in.Payload),
			attachment: slices.Clone(in.Attachment),
			deliver: func(m *message) {
				deposit(wire.Sample{Key: m.key, Payload: m.payload, Attachment: m.attachment})
			},
		}
		s.send(w, s.plan.Chunk(at), at, w.serverBack, m)
	})
}
