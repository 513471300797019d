package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/server/status"
	"github.com/edge-rt/edge-rt/wire"
)

// away is a model that another program computes, in a given state.
type away struct {
	*servertest.Model
	now remote.Condition
}

func (a *away) Condition() remote.Condition { return a.now }

// openpi's server closes the connection after an error, so that the server's own run finds it away: the
// program recovers by itself, and is not ended for a robot's observation.
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
	b.clock.Advance(time.Second) // for another event
	r.ask(2)
	r.wantEvent(wire.EventUnavailable, "the connection ended")
	r.ask(3)
	r.wantChunk(3)
	select {
	case <-m.Terminated:
		t.Error("the program was ended because of one observation")
	default:
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
	l := showLive(b.server, status.Query{})
	if l.Program.Errors != 3 || !slices.ContainsFunc(l.Warnings, func(text string) bool {
		return strings.Contains(text, "has failed 2 times") && strings.HasSuffix(text, "connection refused")
	}) {
		t.Errorf("program %+v, warnings %q", l.Program, l.Warnings)
	}
}
