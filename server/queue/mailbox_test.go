package queue

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/wire"
)

// box is a mailbox with a pool that no other mailbox uses.
type box struct{ Mailbox }

func newBox() *box { return &box{NewMailbox(NewPool(memory.New(1<<20)), 1<<20)} }

func (b *box) put(epoch uint32, seq uint64, body []byte) Put {
	h := wire.Header{SchemaVersion: 1, MsgType: wire.MsgObservation, SeqID: seq, SessionEpoch: epoch}
	return b.Put(&h, body, 7, Schedule{Deadline: NoDeadline})
}

// The mailbox keeps the observation with the largest (epoch, seq), in whatever order observations arrive.
func TestMailboxKeepsNewestByKey(t *testing.T) {
	type k = key
	for _, tt := range []struct {
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newBox()
			superseded := 0
			late := 0
			for _, key := range tt.arrive {
				put := m.put(key.Epoch, key.Seq, fmt.Append(nil, key))
				late += count(put == Late)
				superseded += count(put == Replaced)
			}
			r := m.Take()
			if r == nil {
				t.Fatal("Take() = nil, want an observation")
			}
			got := key{r.Header.SessionEpoch, r.Header.SeqID}
			if got != tt.want || superseded != tt.superseded || late != tt.late ||
				string(r.Body) != fmt.Sprint(tt.want) {
				t.Errorf("deposits %v: take = %v %q, superseded %d, late %d, want %v, %d, %d",
					tt.arrive, got, r.Body, superseded, late, tt.want, tt.superseded, tt.late)
			}
			if m.Take() != nil {
				t.Error("second Take() is not nil, want the mailbox empty")
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

// An observation that arrives after a newer one has been served is dropped.
func TestMailboxRefusesWhatIsOlderThanTheServed(t *testing.T) {
	m := newBox()
	m.put(0, 5, nil)
	m.Take()
	if m.put(0, 4, nil) != Late || m.Take() != nil {
		t.Error("deposit of seq 4 after seq 5 was taken = true, want false")
	}
}

func TestMailboxLendsTheFrontWhileDeposited(t *testing.T) {
	m := newBox()
	m.put(0, 1, []byte("one"))
	r := m.Take()
	for seq := uint64(2); seq < 6; seq++ {
		m.put(0, seq, []byte("xxxxx"))
	}
	rttest.Want(t, string(r.Body), "one", "the lent body")
}

// While two links deliver the same robot's observations at once, the worker takes observations. No body is a mixture of
// two, and each taken observation is newer than the last.
func TestMailboxFromTwoLinks(t *testing.T) {
	m := newBox()
	var wg sync.WaitGroup
	for link := range 2 {
		wg.Go(func() {
			for seq := uint64(1); seq <= 2000; seq++ {
				m.put(0, 2*seq+uint64(link), bytes.Repeat([]byte{byte(2*seq) + byte(link)}, 64))
			}
		})
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
		r := m.Take()
		if r == nil {
			continue
		}
		if r.Header.SeqID <= last {
			t.Fatalf("took seq %d after %d", r.Header.SeqID, last)
		}
		last = r.Header.SeqID
		if !bytes.Equal(r.Body, bytes.Repeat([]byte{byte(last)}, 64)) {
			t.Fatalf("seq %d: torn body % x", last, r.Body)
		}
		m.pool.Return(r)
	}
	rttest.Want(t, last, 4001, "seq of the last request that was taken")
}

func TestMailboxNoAlloc(t *testing.T) {
	m, seq := newBox(), uint64(0)
	small, large := make([]byte, 50_000), make([]byte, 60_000)
	cycle := func() {
		seq += 2
		m.put(0, seq, small)
		m.put(0, seq+1, large)
		m.pool.Return(m.Take())
		m.TakeSuperseded()
	}
	for range 3 {
		cycle()
	}
	rttest.NoAllocs(t, "deposit and take allocate %v times, want 0", 100, cycle)
}

// A newer observation takes over the place in the queue of the one that it replaces.
func TestMailboxKeepsThePlace(t *testing.T) {
	m := newBox()
	h := wire.Header{SeqID: 1}
	m.Put(&h, nil, 10, Schedule{Deadline: 500})
	h.SeqID = 2
	m.Put(&h, nil, 20, Schedule{Deadline: 900})
	if since, deadline, ok := m.Waiting(); since != 10 || deadline != 900 || !ok {
		t.Errorf("Waiting = %d, %d, %v, want 10, 900, true", since, deadline, ok)
	}
	if got, ok := m.PassOver(); got.SeqID != 2 || !ok {
		t.Errorf("PassOver = %d, %v, want 2, true", got.SeqID, ok)
	}
	if _, ok := m.PassOver(); ok {
		t.Error("one observation gives way twice, want once")
	}
}

// Goal: the server does not answer a repeated request again that the robot sent while the answer was on the way. It
// answers a request that the robot repeats because the answer was lost.
func TestMailboxDropsWhatWasAnswered(t *testing.T) {
	put := func(b *box, seq uint64, episode uint32, n int64, at rt.Instant) Put {
		h := wire.Header{
			SchemaVersion: 1,
			MsgType:       wire.MsgObservation,
			SeqID:         seq,
			SessionEpoch:  1,
			EpisodeID:     episode,
		}
		return b.Put(&h, []byte{1}, at, Schedule{Deadline: NoDeadline, HasN: true, N: n})
	}
	for _, tt := range []struct {
		name    string
		episode uint32
		n       int64
		at      rt.Instant
		want    Put
	}{
		{"on the way", 1, 40, 199, Answered},
		{"later: the answer got lost", 1, 40, 200, Waits},
		{"the arm went on", 1, 41, 150, Waits},
		{"another episode", 2, 40, 150, Waits},
	} {
		b := newBox()
		put(b, 1, 1, 40, 10)
		answered := b.Take()
		put(b, 2, 1, 40, 20)
		if !b.DropAnswered(answered, 200) || b.Take() != nil {
			t.Fatal("what waited for the same steps stays")
		}
		rttest.Want(t, put(b, 3, tt.episode, tt.n, tt.at), tt.want, "%s: Put", tt.name)
		if n := b.TakeSuperseded(); n == 0 {
			t.Errorf("%s: nothing counts as superseded", tt.name)
		}
		b.pool.Return(answered)
	}
	b := newBox()
	b.put(1, 1, nil) // this client omits the field n
	answered := b.Take()
	b.put(1, 2, nil)
	if b.DropAnswered(answered, 200) {
		t.Error("a robot that does not name its step loses its request")
	}
}
