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

// loop is a session that receives its own samples at once.
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

// wrapped is a Session with the faults of a script, around a loop. It records the chunks that arrive.
type wrapped struct {
	*Session
	inner *loop
	robot wire.Publisher

	mu    sync.Mutex
	got   []string     // guarded by mu
	times []rt.Instant // guarded by mu
}

func wrap(t *testing.T, script string) *wrapped {
	t.Helper()
	w := &wrapped{inner: new(loop)}
	w.Session = Wrap(w.inner, rt.KernelClock(), mustParse(t, script).Plan(1, tick))
	rttest.Must(w.Subscribe("k", func(in wire.Sample) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.got, w.times = append(w.got, string(in.Payload)), append(w.times, w.clock.Now())
	}))(t)
	w.robot = rttest.Must(w.Publisher("k", wire.QoS{}))(t)
	return w
}

// observe publishes an observation.
func (w *wrapped) observe(text string) { rttest.OrPanic(w.robot.PutLatest([]byte(text), nil)) }

// arrive makes a chunk arrive at the session.
func (w *wrapped) arrive(text string) { w.inner.deposit(wire.Sample{Payload: []byte(text)}) }

// want waits until exactly these chunks have come, and returns the instant at which the last of them came.
func (w *wrapped) want(t *testing.T, chunks ...string) rt.Instant {
	t.Helper()
	rttest.Eventually(t, "the chunks", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.got) >= len(chunks)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	rttest.Equal(t, w.got, chunks, "chunks came")
	return w.times[len(w.times)-1]
}

// A script's effects act on the messages of both directions. Each delay lasts at least as long as
// the script demands, and the order of messages stays.
func TestSession(t *testing.T) {
	w := wrap(t, `
faults:
  - {kind: duplicate_observation}
  - {kind: latency, delay: 40ms}
  - {kind: drop_chunk, at: 100ms, for: 10s}
`)
	defer w.Close()
	began := w.clock.Now()
	w.observe("a")
	w.observe("b")
	if w.inner.mu.Lock(); !slices.Equal(w.inner.sent, []string{"a", "a", "b", "b"}) {
		t.Errorf("sent %q, want each twice", w.inner.sent)
	}
	w.inner.mu.Unlock()
	w.arrive("x")
	w.arrive("y")
	w.want(t, "x", "y")
	w.clock.SleepUntil(began.Add(150 * time.Millisecond))
	w.arrive("lost")
	w.clock.SleepUntil(w.clock.Now().Add(60 * time.Millisecond))
	if w.want(t, "x", "y"); w.times[0].Sub(began) < 40*time.Millisecond {
		t.Errorf("the first came after %v, want at least 40ms", w.times[0].Sub(began))
	}
}

// A session loses every third chunk, and no other message.
func TestSessionLosesEveryThird(t *testing.T) {
	w := wrap(t, "faults: [{kind: drop_chunk, nth: 3}]")
	defer w.Close()
	for _, text := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		w.observe(text)
		w.arrive(text)
	}
	if w.want(t, "a", "b", "d", "e", "g"); len(w.inner.sent) != 7 {
		t.Errorf("%d observations left, want 7", len(w.inner.sent))
	}
}

// A closed session delivers no more messages, and its goroutine has ended.
func TestSessionCloses(t *testing.T) {
	w := wrap(t, "faults: [{kind: latency, delay: 1s}]")
	w.arrive("x")
	if err := w.Close(); err != nil || len(w.got) != 0 {
		t.Errorf("Close() = %v with chunks %q", err, w.got)
	}
	<-w.ended
}
