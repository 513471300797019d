package uplink

import (
	"testing"

	"github.com/edge-rt/edge-rt/record"
)

// Goal: a record names only the session that made a request.
func TestSessionsAreFoundByTheirEpoch(t *testing.T) {
	in := newInbox()
	in.Open(&Session{Session: record.Session{Epoch: 4}})
	s := in.Sessions()
	if s.Of(4) == nil || s.Of(4+pastSessions) != nil || s.Of(5) != nil || s.Record(5) != nil {
		t.Errorf("sessions of 4, %d and 5: %v, %v, %v, want only the first", 4+pastSessions, s.Of(4),
			s.Of(4+pastSessions), s.Of(5))
	}
}

// Goal: a reader that holds the sessions of one instant does not see later changes.
func TestSessionsAreImmutable(t *testing.T) {
	in := newInbox()
	before := in.Sessions()
	in.Open(&Session{Session: record.Session{ID: "first", Epoch: 1}})
	open := in.Sessions()
	in.Lose()
	lost := in.Sessions()
	in.Open(&Session{Session: record.Session{ID: "second", Epoch: 2}})
	for _, tt := range []struct {
		name         string
		s            *Sessions
		epoch        uint32
		id           string
		opened, lost uint64
	}{
		{"before", before, 0, "", 0, 0}, {"open", open, 1, "first", 1, 0}, {"lost", lost, 0, "first", 1, 1},
		{"again", in.Sessions(), 2, "second", 2, 1},
	} {
		if s := tt.s; s.Epoch() != tt.epoch || s.ID() != tt.id || s.Opened != tt.opened || s.Lost != tt.lost {
			t.Errorf("%s: epoch %d, id %q, %d opened, %d lost, want %v", tt.name, s.Epoch(), s.ID(), s.Opened, s.Lost,
				tt)
		}
	}
	if in.end(); in.Sessions().Epoch() != 0 || in.Sessions().Lost != 1 || in.end() != nil {
		t.Error("a session that was closed counts as lost, or is closed twice")
	}
}
