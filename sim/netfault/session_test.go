package netfault

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// loop is a network of one session: a published sample is received at once.
type loop struct {
	wire.Session
	mu      sync.Mutex
	deposit func(wire.Sample)
	sent    []string
}

func (l *loop) Publisher(string, wire.QoS) (wire.Publisher, error) {
	return &loopPublisher{loop: l}, nil
}
func (l *loop) Close() error { return nil }
func (l *loop) Subscribe(_ string, deposit func(wire.Sample)) (wire.Declaration, error) {
	l.deposit = deposit
	return nil, nil
}

type loopPublisher struct {
	wire.Publisher
	loop *loop
}

func (p *loopPublisher) PutLatest(payload, _ []byte) (bool, error) {
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	p.loop.sent = append(p.loop.sent, string(payload))
	return false, nil
}

func (p *loopPublisher) Put(payload, attachment []byte) error {
	_, err := p.PutLatest(payload, attachment)
	return err
}

// The effects of a script reach the messages of both directions; each delay lasts at least as long
// as the script demands, and order is kept.
func TestSession(t *testing.T) {
	inner := new(loop)
	plan := mustParse(t, `
faults:
  - {kind: duplicate_observation}
  - {kind: latency, delay: 40ms}
  - {kind: drop_chunk, at: 100ms, for: 10s}
`).Plan(1, tick)
	clock := rt.KernelClock()
	s := Wrap(inner, clock, plan)
	defer s.Close()
	var mu sync.Mutex
	var got []string
	var times []rt.Instant
	if _, err := s.Subscribe("k", func(in wire.Sample) {
		mu.Lock()
		defer mu.Unlock()
		got, times = append(got, string(in.Payload)), append(times, clock.Now())
	}); err != nil {
		t.Fatal(err)
	}
	p := rttest.Must(s.Publisher("k", wire.QoS{}))
	began := clock.Now()
	for _, text := range []string{"a", "b"} {
		rttest.Must(p.PutLatest([]byte(text), nil))
	}
	if inner.mu.Lock(); !slices.Equal(inner.sent, []string{"a", "a", "b", "b"}) {
		t.Errorf("sent %q, want each twice", inner.sent)
	}
	inner.mu.Unlock()
	inner.deposit(wire.Sample{Payload: []byte("x")})
	inner.deposit(wire.Sample{Payload: []byte("y")})
	for range 1000 {
		mu.Lock()
		done := len(got) == 2
		mu.Unlock()
		if done {
			break
		}
		clock.SleepUntil(clock.Now().Add(5 * time.Millisecond))
	}
	clock.SleepUntil(began.Add(150 * time.Millisecond))
	inner.deposit(wire.Sample{Payload: []byte("lost")})
	clock.SleepUntil(clock.Now().Add(60 * time.Millisecond))
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(got, []string{"x", "y"}) || times[0].Sub(began) < 40*time.Millisecond {
		t.Errorf("received %q, the first after %v, want x and y after at least 40ms", got, times[0].Sub(began))
	}
}

// Every third chunk is lost in a session, and no other message.
func TestSessionLosesEveryThird(t *testing.T) {
	inner := new(loop)
	s := Wrap(inner, rt.KernelClock(), mustParse(t, "faults: [{kind: drop_chunk, nth: 3}]").Plan(1, tick))
	defer s.Close()
	var got []string
	rttest.Must(s.Subscribe("k", func(in wire.Sample) { got = append(got, string(in.Payload)) }))
	p := rttest.Must(s.Publisher("k", wire.QoS{}))
	for _, text := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		rttest.Must(p.PutLatest([]byte(text), nil))
		inner.deposit(wire.Sample{Payload: []byte(text)})
	}
	s.mu.Lock() // nothing is delivered meanwhile
	defer s.mu.Unlock()
	if want := []string{"a", "b", "d", "e", "g"}; !slices.Equal(got, want) || len(inner.sent) != 7 {
		t.Errorf("chunks %q and %d observations came, want %q and 7", got, len(inner.sent), want)
	}
}

// A closed session delivers no more messages, and its goroutine has ended.
func TestSessionCloses(t *testing.T) {
	inner := new(loop)
	s := Wrap(inner, rt.KernelClock(), mustParse(t, "faults: [{kind: latency, delay: 1s}]").Plan(1, tick))
	calls := 0
	rttest.Must(s.Subscribe("k", func(wire.Sample) { calls++ }))
	inner.deposit(wire.Sample{Payload: []byte("x")})
	if err := s.Close(); err != nil || calls != 0 {
		t.Errorf("Close() = %v with %d calls", err, calls)
	}
	<-s.ended
}
