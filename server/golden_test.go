package server

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The vectors were recorded from LeRobot's draft server; provenance is in the
// file. Where ours refuses or answers differently on purpose,
// deviations_server.json names the vector and the reason.
const (
	goldenFile     = "../testdata/golden/draft_server.json"
	deviationsFile = "../testdata/golden/deviations_server.json"
	sharedFile     = "../../shared/vectors/draft_goldens.json"
)

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// golden decodes one section of the vectors.
func golden[T any](t *testing.T, section string) []T {
	t.Helper()
	var all map[string]json.RawMessage
	readJSON(t, goldenFile, &all)
	var rows []T
	if err := json.Unmarshal(all[section], &rows); err != nil || len(rows) == 0 {
		t.Fatalf("section %s: %d rows, %v", section, len(rows), err)
	}
	return rows
}

// deviation returns the reason why we differ from the vector "section/name".
func deviation(t *testing.T, vector string) (reason string, ok bool) {
	t.Helper()
	var list []struct{ Vector, Reason string }
	readJSON(t, deviationsFile, &list)
	for _, d := range list {
		if d.Vector == vector {
			return d.Reason, true
		}
	}
	return "", false
}

func TestGoldenVectorsAreTheSharedOnes(t *testing.T) {
	if _, err := os.Stat(filepath.Dir(sharedFile)); err != nil {
		t.Skip("../shared/vectors is not here; the copy in testdata/golden is what the other tests use")
	}
	var ours, shared map[string]any
	readJSON(t, goldenFile, &ours)
	readJSON(t, sharedFile, &shared)
	for section, rows := range ours {
		if !strings.HasPrefix(section, "_") && !reflect.DeepEqual(rows, shared[section]) {
			t.Errorf("section %s differs from %s", section, sharedFile)
		}
	}
}

func TestRoundRobinGolden(t *testing.T) {
	for _, row := range golden[struct {
		Name          string
		Ready, Picked [][]string
	}](t, "scheduler") {
		var rr roundRobin
		for i, ready := range row.Ready {
			reg := newRegistry()
			for _, uuid := range ready {
				s := newSession(uuid)
				s.deposit(obsHeader(0, 1), nil, 0)
				reg.add(s)
			}
			got := []string{}
			if s := rr.next(reg.all()); s != nil {
				got = append(got, s.uuid)
			}
			if !reflect.DeepEqual(got, row.Picked[i]) {
				t.Errorf("%s: next(%v) in round %d = %v, want %v", row.Name, ready, i, got, row.Picked[i])
			}
		}
	}
}

// The trace of one session of the draft, event by event. Its episode starts at
// 0 where ours starts at -1, which is what the draft's server sets at open.
func TestSessionGolden(t *testing.T) {
	s := newSession("robot")
	s.episode.Store(0)
	seq := uint64(0)
	deposit := func() { seq++; s.deposit(obsHeader(0, seq), []byte{1}, 0) }
	for _, row := range golden[struct {
		Event        string
		Pending      bool
		Superseded   uint64
		SinceReply   uint64 `json:"since_reply"`
		Episode      int64
		Alive        bool
		TokenDropped bool `json:"token_dropped"`
		Seq          uint64
		Ret          uint64
	}](t, "session_trace") {
		switch row.Event {
		case "new", "close":
		case "deposit1", "deposit2", "deposit3_after_take", "deposit4_revives":
			deposit()
		case "take":
			if r, ok := s.box.take(); !ok || r.header.SeqID != row.Seq {
				t.Errorf("take() = %v, %v, want seq %d", r, ok, row.Seq)
			}
		case "take_superseded":
			if got := s.box.takeSuperseded(); got != row.Ret {
				t.Errorf("takeSuperseded() = %d, want %d", got, row.Ret)
			}
		case "token_drop":
			s.tokenChanged(false, 5)
		case "reset_no_id":
			s.reset(s.episode.Load() + 1)
		case "reset_9":
			s.reset(9)
		default:
			t.Fatalf("unknown event %q", row.Event)
		}
		superseded, _ := s.box.counts()
		s.box.mu.Lock()
		since := s.box.sinceReply
		s.box.mu.Unlock()
		if s.box.pending() != row.Pending || superseded != row.Superseded || since != row.SinceReply ||
			s.episode.Load() != row.Episode || s.alive() != row.Alive || s.alive() == row.TokenDropped {
			t.Errorf("after %s: pending %v superseded %d since %d episode %d alive %v, want %+v",
				row.Event, s.box.pending(), superseded, since, s.episode.Load(), s.alive(), row)
		}
	}
}
