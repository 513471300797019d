package main

import (
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// slowServer returns a server that takes longer for each chunk than --request-timeout, which is 1 s here. If status
// is true, the server answers status queries.
func slowServer(t *testing.T, status bool) *holdServer {
	t.Helper()
	s := newHoldServer(t)
	s.work(t, 2500*time.Millisecond, func(o *wire.Observation) *wire.ActionChunk {
		m := s.Chunk(o.State, func([]float32, int) {})
		return &wire.ActionChunk{ChunkModel: m, ChunkRobot: m}
	})
	if status {
		rttest.Must(s.Net.Queryable(wire.StatusKey(s.Prefix), func(q wire.Query) {
			defer q.Finish()
			q.Reply(q.Key(), wire.Append(nil, &wire.Status{}))
		}))(t)
	}
	return s
}

// Goal: the program moves an arm by a policy that takes longer than --request-timeout. A server that answers status
// queries keeps its session. The run gives up the sessions of a server that answers no status queries, but uses
// that server's late chunks.
func TestASlowServerMovesTheArm(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	good, _, _ := scene(t)
	for _, tt := range []struct {
		name   string
		status bool
	}{{"it says that it lives", true}, {"it says nothing", false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			run, code, _, log := photographed(t, slowServer(t, tt.status), album(t, good)+"@30", "--duration", "9s")
			if code != 0 || run.Actions == 0 || run.Chunks == 0 {
				t.Errorf("exit code %d, %d chunks, %d actions, dropped %v: want some\n%s", code, run.Chunks,
					run.Actions, run.ChunksDropped, log)
			}
			if one := run.Sessions == 1; one != tt.status {
				t.Errorf("%d sessions opened, want one: %v\n%s", run.Sessions, tt.status, log)
			}
		})
	}
}

// Goal: if a flag sets a limit that the policy can never meet, the run ends at its start. The error names the flag and
// a value that works.
func TestALimitThatNoActionMeets(t *testing.T) {
	t.Parallel()
	good, _, _ := scene(t)
	s := newHoldServer(t)
	s.SetAck(func(a *wire.SessionAck) { a.InferenceMsMin, a.InferenceMsP99 = 8000, 8200 })
	run, code, on, log := photographed(t, s, album(t, good)+"@30", "--max-action-age", "3s")
	if code != 3 || on != 0 || !strings.Contains(run.Exit.Reason, "--max-action-age 15s or more") {
		t.Errorf("exit code %d, %d motors under torque, %q; want 3 and a value that works\n%s", code, on,
			run.Exit.Reason, log)
	}
}
