package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/server/status"
	"github.com/edge-rt/edge-rt/wire"
)

// away is a model that another program computes. The test sets the program's state.
type away struct {
	*servertest.Model
	now    remote.Condition
	failed atomic.Pointer[error] // the reason with which Fail ended the program
}

func (a *away) Condition() remote.Condition { return a.now }
func (a *away) Fail(why error)              { a.failed.Store(&why) }

// openpi's server closes the connection after an error, so that lean-server's own run fails with policy.ErrAway. The
// connection recovers by itself, and lean-server does not call Fail because of a robot's observation.
func TestAnErrorThatEndsTheConnection(t *testing.T) {
	runs, m := 0, &away{Model: servertest.NewModel(), now: remote.Condition{Ready: true}}
	m.Before = func() error {
		switch runs++; runs {
		case 1:
			return fmt.Errorf("%w: KeyError: 'state'", policy.ErrRun)
		case 2, 3:
			return fmt.Errorf("%w: %w: the connection ended", policy.ErrRun, policy.ErrAway)
		}
		return nil
	}
	cfg := config()
	cfg.WarmupInferences = 0
	b := newBench(t, cfg, func(d *Deps) { d.Model = m })
	b.start()
	t.Cleanup(b.end)
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	r.ask(1)
	r.wantEvent(wire.EventBadObservation, "KeyError: 'state'")
	b.clock.Advance(time.Second) // after this time another event is allowed
	r.ask(2)
	r.wantEvent(wire.EventUnavailable, "the connection ended")
	r.ask(3)
	r.wantChunk(3)
	if why := m.failed.Load(); why != nil {
		t.Errorf("the program was ended because of one observation: %v", *why)
	}
}

// If a program also fails with blank inputs, the program is at fault, not the robot's observation.
func TestAProgramThatFailsAlways(t *testing.T) {
	m := &away{Model: servertest.NewModel(), now: remote.Condition{Ready: true}}
	b := newBench(t, config(), func(d *Deps) { d.Model = m })
	b.start()
	t.Cleanup(b.end)
	m.NotFinite.Store(true)
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	r.ask(1)
	r.wantEvent(wire.EventUnavailable, "fails blank inputs, too")
	if why := m.failed.Load(); why == nil || !errors.Is(*why, errNotFinite) {
		t.Error("the program goes on")
	}
}

// The server refuses a policy that answers blank inputs with values that are not finite, as with NaN in its weights.
func TestAPolicyThatDiverged(t *testing.T) {
	m := &away{Model: servertest.NewModel(), now: remote.Condition{Ready: true}}
	m.NotFinite.Store(true)
	b := newBench(t, config(), func(d *Deps) { d.Model = m })
	rttest.FailsAs(t, b.server.Serve(t.Context()), policy.ErrBundle, "NaN")
}

// On a busy machine, a worker that was killed may take seconds to end. The server does not end meanwhile.
func TestAProgramMayTakeItsTimeToEnd(t *testing.T) {
	m := &away{Model: servertest.NewModel(), now: remote.Condition{Ready: true}}
	e := newBench(t, config(), func(d *Deps) { d.Model = m }).server.worker.engine
	begun := e.clock.Now()
	e.busySince.Store(int64(begun))
	for _, after := range []time.Duration{20, 21, 30} {
		e.endHang(begun.Add(after * time.Second))
	}
	if e.hang.lost || e.failure() != nil {
		t.Errorf("given up after 9 s: %v", e.failure())
	}
	<-m.Terminated
	if e.endHang(begun.Add(40 * time.Second)); !e.hang.lost {
		t.Error("the server has not given up after 19 s")
	}
}

// The page has the state of the program that computes the policy, and a warning with its last reason.
func TestThePageShowsThePoliciesProgram(t *testing.T) {
	m := &away{Model: servertest.NewModel(), now: remote.Condition{Ready: true, State: "serving"}}
	b := newBench(t, config(), func(d *Deps) { d.Model = m })
	b.start()
	t.Cleanup(b.end)
	if l := showLive(b.server, status.Query{}); l.Program.State != "serving" || len(l.Warnings) > 0 {
		t.Errorf("program %+v, warnings %q", l.Program, l.Warnings)
	}
	m.now = remote.Condition{
		State:    "waiting to reconnect",
		Why:      "connection refused",
		Failures: 2,
		Errors:   3,
	}
	b.server.stats.probes[probeFailed].Add(1)
	l := showLive(b.server, status.Query{})
	if l.Program.Errors != 3 || len(l.Warnings) != 1 || !slices.ContainsFunc(l.Warnings, func(text string) bool {
		return strings.Contains(text, "has failed 2 times") && strings.HasSuffix(text, "connection refused")
	}) {
		t.Errorf("program %+v, warnings %q", l.Program, l.Warnings)
	}
}
