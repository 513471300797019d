package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/server/status"
)

// away is a model that another program computes, in a given state.
type away struct {
	*servertest.Model
	now remote.Condition
}

func (a *away) Condition() remote.Condition { return a.now }

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
