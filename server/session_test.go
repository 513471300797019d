package server

import (
	"math"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestRegistryFindsSortedSessions(t *testing.T) {
	r := newRegistry(0)
	for _, uuid := range []string{"r2", "r10", "B", "a", "r1"} {
		rttest.Want(t, r.add(newSession(uuid, nil, 0)), nil, "displaced by %s", uuid)
	}
	got := ""
	for _, s := range r.all() {
		got += s.uuid + " "
	}
	rttest.Want(t, got, "B a r1 r10 r2 ", "all()")
	for _, uuid := range []string{"B", "a", "r1", "r10", "r2"} {
		if s := r.find(uuid); s == nil || s.uuid != uuid {
			t.Errorf("find(%s) = %v", uuid, s)
		}
	}
	for _, uuid := range []string{"", "A", "r11", "z"} {
		rttest.Want(t, r.find(uuid), nil, "find(%s)", uuid)
	}
	rttest.Want(t, r.others("a"), 4, "others(a)")
	rttest.Want(t, r.others("new"), 5, "others(new)")
}

// A late close of an old session must not remove the new session of a robot that came back.
func TestRegistryRemovesOnlyTheVerySession(t *testing.T) {
	r := newRegistry(0)
	old, fresh := newSession("a", nil, 0), newSession("a", nil, 0)
	r.add(old)
	rttest.Want(t, r.add(fresh), old, "the session that add displaced")
	if r.remove(old) {
		t.Error("remove(old) = true, want false: it is not there any more")
	}
	if r.find("a") != fresh || !r.remove(fresh) || r.find("a") != nil {
		t.Error("the fresh session is not the one registered")
	}
}

// A session's presence depends only on the token with the open's epoch, because any client may declare a token with
// another epoch.
func TestSessionPresence(t *testing.T) {
	type step struct {
		what  string
		epoch uint32
		alive bool // the expected result after the step
	}
	for _, tt := range []struct {
		name  string
		epoch int64 // epoch of the open; -1: the open has no epoch
		steps []step
	}{
		{"plain token of a stock client", -1, []step{{"put", 0, true}, {"drop", 0, false}, {"put", 0, true}}},
		{"an observation revives", -1, []step{{"drop", 0, false}, {"obs", 0, true}}},
		{"a token with an epoch says nothing of a stock client", -1,
			[]step{{"put", 0, true}, {"eput", math.MaxUint32, true}, {"edrop", math.MaxUint32, true},
				{"drop", 0, false}}},
		{"epoch token goes", 1, []step{{"eput", 1, true}, {"edrop", 1, false}, {"eput", 1, true}}},
		{"an old epoch dies", 2, []step{{"eput", 1, true}, {"eput", 2, true}, {"edrop", 1, true}, {"edrop", 2, false}}},
		{"an old epoch comes late", 3, []step{{"eput", 3, true}, {"eput", 2, true}, {"edrop", 2, true},
			{"edrop", 3, false}, {"eput", 2, false}}},
		{"a later epoch, which is nobody's, pins nothing", 3,
			[]step{{"eput", 3, true}, {"eput", math.MaxUint32, true}, {"edrop", 3, false}, {"eput", 3, true},
				{"edrop", math.MaxUint32, true}}},
		{"plain token says nothing beside epochs", 3,
			[]step{{"eput", 3, true}, {"drop", 0, true}, {"edrop", 3, false}, {"put", 0, false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSession("arm", nil, 0)
			s.tokenEpoch.Store(tt.epoch)
			for i, st := range tt.steps {
				switch st.what {
				case "put", "drop":
					s.tokenChanged(st.what == "put", 5)
				case "eput", "edrop":
					s.epochTokenChanged(st.epoch, st.what == "eput", 5)
				case "obs":
					s.seen(5)
				}
				if s.alive() != st.alive {
					t.Fatalf("step %d %v: alive() = %v, want %v", i, st, s.alive(), st.alive)
				}
			}
		})
	}
}
