package server

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"edgert/wire"
)

func obsHeader(epoch uint32, seq uint64) wire.Header {
	return wire.Header{SchemaVersion: 1, MsgType: wire.MsgObservation, SeqID: seq, SessionEpoch: epoch}
}

// The newest observation is the one with the largest (epoch, seq), in whatever
// order they arrive.
func TestMailboxKeepsNewestByKey(t *testing.T) {
	type k = requestKey
	tests := []struct {
		name       string
		arrive     []k
		want       k
		superseded int
		late       int
	}{
		{"one", []k{{0, 1}}, k{0, 1}, 0, 0},
		{"in order", []k{{0, 1}, {0, 2}, {0, 3}}, k{0, 3}, 2, 0},
		{"overtaken on the way", []k{{0, 2}, {0, 1}}, k{0, 2}, 0, 1},
		{"duplicate", []k{{0, 2}, {0, 2}}, k{0, 2}, 0, 1},
		{"new epoch with a smaller number", []k{{0, 900}, {1, 1}}, k{1, 1}, 1, 0},
		{"old epoch after the new one", []k{{1, 1}, {0, 900}}, k{1, 1}, 0, 1},
		{"largest values", []k{{1<<32 - 1, 1<<64 - 1}, {0, 1}}, k{1<<32 - 1, 1<<64 - 1}, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, superseded, late := newMailbox(), 0, 0
			for _, key := range tt.arrive {
				newest, replaced := m.put(obsHeader(key.epoch, key.seq), fmt.Append(nil, key), 7)
				late += count(!newest)
				superseded += count(replaced)
			}
			r, ok := m.take()
			if !ok {
				t.Fatal("take() = false, want an observation")
			}
			got := requestKey{r.header.SessionEpoch, r.header.SeqID}
			if got != tt.want || superseded != tt.superseded || late != tt.late || string(r.body) != fmt.Sprint(tt.want) {
				t.Errorf("deposits %v: take = %v %q, superseded %d, late %d, want %v, %d, %d",
					tt.arrive, got, r.body, superseded, late, tt.want, tt.superseded, tt.late)
			}
			if _, again := m.take(); again {
				t.Error("second take() = true, want the mailbox empty")
			}
		})
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// An observation that arrives after a newer one was served is not served.
func TestMailboxRefusesWhatIsOlderThanTheServed(t *testing.T) {
	m := newMailbox()
	m.put(obsHeader(0, 5), nil, 0)
	m.take()
	if newest, _ := m.put(obsHeader(0, 4), nil, 0); newest || m.pending() {
		t.Error("deposit of seq 4 after seq 5 was taken = true, want false")
	}
}

func TestMailboxLendsTheFrontWhileDeposited(t *testing.T) {
	m := newMailbox()
	m.put(obsHeader(0, 1), []byte("one"), 0)
	r, _ := m.take()
	for seq := uint64(2); seq < 6; seq++ {
		m.put(obsHeader(0, seq), []byte("xxxxx"), 0)
	}
	if string(r.body) != "one" {
		t.Errorf("the lent body became %q, want one", r.body)
	}
}

// Two links deliver the same robot at once while the worker takes: no torn
// body, and what is taken never goes back in time.
func TestMailboxFromTwoLinks(t *testing.T) {
	m := newMailbox()
	var wg sync.WaitGroup
	for link := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for seq := uint64(1); seq <= 2000; seq++ {
				m.put(obsHeader(0, 2*seq+uint64(link)), bytes.Repeat([]byte{byte(2*seq) + byte(link)}, 64), 0)
			}
		}()
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	last := uint64(0)
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
		}
		r, ok := m.take()
		if !ok {
			continue
		}
		if r.header.SeqID <= last {
			t.Fatalf("took seq %d after %d", r.header.SeqID, last)
		}
		last = r.header.SeqID
		if !bytes.Equal(r.body, bytes.Repeat([]byte{byte(last)}, 64)) {
			t.Fatalf("seq %d: torn body % x", last, r.body)
		}
	}
	if last != 4001 {
		t.Errorf("last seq taken = %d, want 4001", last)
	}
}

func TestMailboxNoAlloc(t *testing.T) {
	m, seq := newMailbox(), uint64(0)
	small, large := make([]byte, 50_000), make([]byte, 60_000)
	cycle := func() {
		seq += 2
		m.put(obsHeader(0, seq), small, 0)
		m.put(obsHeader(0, seq+1), large, 0)
		m.take()
		m.takeSuperseded()
	}
	for range 3 {
		cycle()
	}
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("deposit and take allocate %v times, want 0", n)
	}
}

func TestRegistryFindsSortedSessions(t *testing.T) {
	r := newRegistry()
	for _, uuid := range []string{"r2", "r10", "B", "a", "r1"} {
		if d := r.add(newSession(uuid)); d != nil {
			t.Errorf("add(%s) displaced %s, want nobody", uuid, d.uuid)
		}
	}
	got := ""
	for _, s := range r.all() {
		got += s.uuid + " "
	}
	if want := "B a r1 r10 r2 "; got != want {
		t.Errorf("all() = %q, want %q", got, want)
	}
	for _, uuid := range []string{"B", "a", "r1", "r10", "r2"} {
		if s := r.find(uuid); s == nil || s.uuid != uuid {
			t.Errorf("find(%s) = %v", uuid, s)
		}
	}
	for _, uuid := range []string{"", "A", "r11", "z"} {
		if s := r.find(uuid); s != nil {
			t.Errorf("find(%s) = %s, want nil", uuid, s.uuid)
		}
	}
	if n := r.others("a"); n != 4 {
		t.Errorf("others(a) = %d, want 4", n)
	}
	if n := r.others("new"); n != 5 {
		t.Errorf("others(new) = %d, want 5", n)
	}
}

// A stale close must not take the session of a robot that came back.
func TestRegistryRemovesOnlyTheVerySession(t *testing.T) {
	r := newRegistry()
	old, fresh := newSession("a"), newSession("a")
	r.add(old)
	if d := r.add(fresh); d != old {
		t.Errorf("add displaced %v, want the old session", d)
	}
	if r.remove(old) {
		t.Error("remove(old) = true, want false: it is not there any more")
	}
	if r.find("a") != fresh || !r.remove(fresh) || r.find("a") != nil {
		t.Error("the fresh session is not the one registered")
	}
}

func TestRegistryNoAlloc(t *testing.T) {
	r, rr, key := newRegistry(), roundRobin{}, "arm-03"
	for i := range 8 {
		s := newSession(fmt.Sprintf("arm-%02d", i))
		s.mailbox.put(obsHeader(0, 1), nil, 0)
		r.add(s)
	}
	if n := testing.AllocsPerRun(100, func() {
		if r.find(key) == nil || rr.next(r.all()) == nil {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Errorf("find and next allocate %v times, want 0", n)
	}
}

// Presence is keyed by (uuid, epoch).
func TestSessionPresence(t *testing.T) {
	type step struct {
		what  string
		epoch uint32
		alive bool // wanted after the step
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"plain token of a stock client", []step{{"put", 0, true}, {"drop", 0, false}, {"put", 0, true}}},
		{"an observation revives", []step{{"drop", 0, false}, {"obs", 0, true}}},
		{"epoch token goes", []step{{"eput", 1, true}, {"edrop", 1, false}, {"eput", 2, true}}},
		{"old epoch dies after the new one came", []step{{"eput", 1, true}, {"eput", 2, true}, {"edrop", 1, true}, {"edrop", 2, false}}},
		{"old epoch dies before the new one came", []step{{"edrop", 0, true}, {"eput", 1, true}}},
		{"plain token says nothing beside epochs", []step{{"eput", 3, true}, {"drop", 0, true}, {"edrop", 3, false}}},
		{"late put of an old epoch", []step{{"eput", 3, true}, {"eput", 2, true}, {"edrop", 2, true}, {"edrop", 3, false}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSession("arm")
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
