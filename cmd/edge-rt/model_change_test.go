package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// digestOf returns a digest for a fictitious bundle.
func digestOf(digit string) string { return strings.Repeat(digit, 64) }

// serves makes the server serve a bundle with the digest. change may change the server's answers to session requests.
func (s *holdServer) serves(digest string, change func(*wire.SessionAck)) {
	s.SetAck(func(a *wire.SessionAck) {
		a.ModelSHA256 = digest
		if change != nil {
			change(a)
		}
	})
}

// restart makes the server disappear and come back.
func (s *holdServer) restart() {
	s.Token.Undeclare()
	s.Token, _ = s.Net.Token(wire.ServerAliveKey(s.Prefix))
}

// sources returns from the records in dir, for each bundle's digest, the episodes in which actions of that bundle ran.
func sources(t *testing.T, dir string) map[string][]uint32 {
	t.Helper()
	sessions := map[uint32]string{}
	of := map[string][]uint32{}
	rttest.Must(record.ReadFolder(dir, record.Visitor{
		Session: func(m *record.Session) error { sessions[m.Epoch] = m.SHA256; return nil },
		Tick: func(m *record.Tick) error {
			if m.Action.N > 0 {
				if digest := sessions[m.Epoch]; !slices.Contains(of[digest], m.Episode) {
					of[digest] = append(of[digest], m.Episode)
				}
			}
			return nil
		},
	}))(t)
	return of
}

// With --model-change episode, a run continues if its server returns from an absence with another model. The run
// changes to that model at once if no episode is under way, otherwise after the episode. No episode has actions of both
// models.
func TestAnotherModelBeginsBetweenTwoEpisodes(t *testing.T) {
	t.Parallel()
	t.Run("without episodes", func(t *testing.T) {
		t.Parallel()
		r, s, b, dir := recordingRun(t, "--model-change", "episode")
		s.serves(digestOf("a"), nil)
		r.Start()
		awaitTorque(t, b, 6)
		r.awaitChunks()
		s.serves(digestOf("b"), nil)
		s.restart()
		r.Await("the run goes on with another model: had sha256 aaaaaaaaaaaa, takes bbbbbbbbbbbb")
		r.awaitChunks()
		checkChanged(t, r, dir)
	})
	t.Run("in an episode", func(t *testing.T) {
		t.Parallel()
		r, s, _, dir := recordingRun(t, "--model-change", "episode")
		s.serves(digestOf("a"), nil)
		r.Start()
		r.begin()
		r.awaitChunks()
		s.serves(digestOf("b"), nil)
		s.restart()
		r.Await("which this run takes when no episode is under way")
		rttest.Want(t, r.status().Episodes.Phase, "recording", "phase while the episode has not ended")
		r.wants(0, "", "success")
		r.Await("takes bbbbbbbbbbbb")
		r.begin()
		r.awaitChunks()
		checkChanged(t, r, dir)
	})
}

// status returns the reply to edge-rt ctl status.
func (r *process) status() (reply operator.Reply) {
	_, reply, _ = r.ctl("status")
	return reply
}

// awaitChunks waits until the model drives the arm.
func (r *process) awaitChunks() {
	r.t.Helper()
	before := r.status().Chunks
	rttest.Eventually(r.t, "chunks", func() bool { return r.status().Chunks > before+2 })
}

// checkChanged ends a run, and checks that it has changed from model a to model b.
func checkChanged(t *testing.T, r *process, dir string) {
	t.Helper()
	r.EndsWith(0, syscall.SIGINT)
	if got, want := r.summary().Models, []string{digestOf("a"), digestOf("b")}; !slices.Equal(got, want) {
		t.Errorf("models %.20v, want %.20v", got, want)
	}
	of := sources(t, dir)
	a, b := of[digestOf("a")], of[digestOf("b")]
	if len(a) == 0 || len(b) == 0 || slices.Max(a) >= slices.Min(b) || len(of) != 2 {
		t.Errorf("episodes of the models: %v, want both, and none with both", of)
	}
}

// A model that has other sizes or joints, or that --expect-model excludes, ends the run, as at the run's start.
func TestAnotherModelIsCheckedAsAtTheStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, flags string
		change      func(*wire.SessionAck)
		says        string
	}{
		{"refused by default", "", nil, "--model-change episode takes them between two episodes"},
		{"another horizon", "--model-change episode", func(a *wire.SessionAck) { a.ChunkSize = 20 }, "with 20"},
		{"another prefix", "--model-change episode", func(a *wire.SessionAck) { a.RTCExecutionHorizon = 9 },
			"prefix_end 0 and pictures of [], got 10 Hz, 9"},
		{"other joints", "--model-change episode", func(a *wire.SessionAck) { slices.Reverse(a.ActionNames) },
			"wrong model or robot"},
		{"not the expected one", "--model-change episode --expect-model aaaaaaaaaaaa", nil, "(--expect-model)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, b := newHoldServer(t), simBus(t)
			s.serves(digestOf("a"), nil)
			r := startArmed(t, s, b, strings.Fields(tt.flags)...)
			s.serves(digestOf("b"), tt.change)
			s.restart()
			r.ends(b, 3, 0)
			r.CheckSays(tt.says)
		})
	}
}
