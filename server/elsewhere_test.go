package server

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

// elsewhere is a policy that another program computes.
type elsewhere struct {
	*servertest.Model
	away atomic.Bool // true: the program does not answer

	mu   sync.Mutex
	last policy.Request
}

func (m *elsewhere) Condition() remote.Condition {
	if m.away.Load() {
		return remote.Condition{State: "loading", Why: "it was killed", Failures: 1}
	}
	return remote.Condition{Ready: true}
}

func (m *elsewhere) Fail(error) {}

func (m *elsewhere) SetRequest(_ int, r policy.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Session != "" {
		m.last = r
	}
}

// When the policy's program dies, each of its robots loses a chunk and gets an event, but keeps its session, and the
// server does not end. The model gets the session of each request, and the task that the observation names.
func TestAProgramThatIsAway(t *testing.T) {
	m := &elsewhere{Model: servertest.NewModel()}
	b := newBench(t, config(), func(d *Deps) { d.Model, d.ReadsTask = m, true })
	b.model = m.Model
	b.start(func(b *bench) {
		b.beforeRuns(func(int) error {
			if m.away.Load() {
				return fmt.Errorf("%w: %w: it was killed", policy.ErrRun, policy.ErrAway)
			}
			return nil
		})
	})
	session := b.open(fakeOpen("arm"))
	r, seq := b.robot("arm"), uint64(0)
	ask := func(task string) {
		seq++
		o := fakeObs(t)
		o.Task = task
		r.send(obsHeader(0, seq), o)
	}
	m.away.Store(true)
	for range 3 {
		b.clock.Advance(eventInterval)
		ask("")
		rttest.Contains(t, r.wantEvent(wire.EventUnavailable, "").event.Text, "it was killed")
	}
	rttest.Eventually(t, "the server loads while the program is away", func() bool { // after its declarations
		ok, why := b.server.ready()
		return !ok && why == "loading: it was killed"
	})
	if ok, why := b.server.healthy(); !ok {
		t.Errorf("not healthy: %s", why)
	}
	m.away.Store(false)
	ask("close the drawer")
	r.wantChunk(seq)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.Session != session.SessionID || m.last.Task != "close the drawer" || m.last.Seed == 0 {
		t.Errorf("the model got the request %+v, want session %s and its task", m.last, session.SessionID)
	}
	rttest.Want(t, b.server.stats.failures[failureRun].Load(), 0, "failures of the device")
}
