package uplink

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

func sample(h wire.Header, body []byte) wire.Sample {
	return wire.Sample{Key: "k", Payload: body, Attachment: wire.AppendHeader(nil, h)}
}

func chunkBody(rows, cols int, nonce int64) []byte {
	m := wire.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	return wire.AppendActionChunk(nil, &wire.ActionChunk{ChunkModel: m, ChunkRobot: m, Nonce: nonce})
}

// notice is a server's event in a header without an epoch.
func notice(h wire.Header, e wire.Event) wire.Sample {
	h.SchemaVersion, h.MsgType = 1, wire.MsgEvent
	return sample(h, wire.Append(nil, &e))
}

func testReceiver() *receiver {
	r := New(Config{Clock: rttest.NewClock(0)}).receiver
	r.session(Session{})
	r.sent(5)
	return r
}

// session opens a session in epoch 2.
func (r *receiver) session(s Session) {
	s.Epoch = 2
	r.in.Open(&s)
}

// sent makes seq the newest request.
func (r *receiver) sent(seq uint64) {
	for k := r.out.SentKey.Load() + 1; k <= int64(seq); k++ {
		r.stamps.issue(uint64(k), testStamp(uint64(k)))
	}
	r.out.SentKey.Store(int64(seq))
}

func testStamp(seq uint64) int64 { return 1000 + int64(seq) }

func goodHeader(seq uint64) wire.Header {
	return wire.Header{
		SchemaVersion: 1,
		MsgType:       wire.MsgActionChunk,
		SeqID:         seq,
		EpisodeID:     1,
		SessionEpoch:  2,
		ClientMonoNs:  testStamp(seq),
	}
}

func TestReceiverDropsByReason(t *testing.T) {
	with := func(change func(*wire.Header)) wire.Sample {
		h := goodHeader(5)
		change(&h)
		return sample(h, chunkBody(3, 2, 0))
	}
	for _, tt := range []struct {
		name   string
		sample wire.Sample
		reason int
	}{
		{"no attachment", wire.Sample{Payload: chunkBody(3, 2, 0)}, dropHeader},
		{"26 bytes of header", wire.Sample{Attachment: make([]byte, 26), Payload: chunkBody(3, 2, 0)}, dropHeader},
		{"another schema", with(func(h *wire.Header) { h.SchemaVersion = 2 }), dropHeader},
		{"an observation", with(func(h *wire.Header) { h.MsgType = wire.MsgObservation }), dropHeader},
		{"an earlier session", with(func(h *wire.Header) { h.SessionEpoch = 1 }), DropEpoch},
		{"a request that was never sent", with(func(h *wire.Header) { h.SeqID = 6 }), DropUnknown},
		{"a key that would shut out all others", with(func(h *wire.Header) { h.SeqID = 1 << 63 }), DropUnknown},
		{"request 0", with(func(h *wire.Header) { h.SeqID = 0 }), DropUnknown},
		{"the answer to another robot of this name", with(func(h *wire.Header) { h.ClientMonoNs++ }), dropForeign},
		{"the stamp of another request", with(func(h *wire.Header) { h.ClientMonoNs = testStamp(4) }), dropForeign},
		{"no stamp", with(func(h *wire.Header) { h.ClientMonoNs = 0 }), dropForeign},
		{"an event about another robot's request", notice(wire.Header{SeqID: 5, ClientMonoNs: 7},
			wire.Event{Code: wire.EventUnknownSession, Seq: 5}), dropForeign},
		{"a nonce that no session has", sample(goodHeader(5), chunkBody(3, 2, 7)), dropForeign},
		{"a body that is no map", sample(goodHeader(5), []byte{0x93, 1, 2, 3}), dropBody},
		{"an empty body", sample(goodHeader(5), nil), dropBody},
		{"half a body", sample(goodHeader(5), chunkBody(3, 2, 0)[:20]), dropBody},
		{"an event that does not decode", sample(wire.Header{SchemaVersion: 1, MsgType: wire.MsgEvent}, []byte{0xc1}),
			dropBody},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := testReceiver()
			r.deposit(tt.sample)
			if got := r.stats.Dropped[tt.reason].Load(); got != 1 {
				t.Errorf("deposit(%s): dropped %v, want 1 as %q", tt.name, r.stats.Drops(), DropNames[tt.reason])
			}
			if _, _, fresh := r.in.Answers.Front(); fresh || r.evicted.Load() != 0 {
				t.Error("it reached the tick, or the link")
			}
			rttest.Want(t, r.duplicate.Load(), tt.reason == dropForeign, "another robot has this name")
			// The next valid answer is still accepted.
			r.deposit(sample(goodHeader(5), chunkBody(3, 2, 0)))
			if a, key, fresh := r.in.Answers.Front(); !fresh || key != 5 || a.Body.ChunkRobot.Rows != 3 {
				t.Errorf("a good chunk afterwards: fresh %v key %d", fresh, key)
			}
		})
	}
}

// Goal: an answer whose request is no longer remembered counts as late, and not as an answer to another robot.
func TestALateAnswerIsNotForeign(t *testing.T) {
	for seq, want := range map[uint64]int{5 + stampSlots - 1: NumDrops, 5 + stampSlots: DropUnknown} {
		r := testReceiver()
		r.sent(seq)
		r.deposit(sample(goodHeader(5), chunkBody(3, 2, 0)))
		for reason := range NumDrops {
			if got := r.stats.Dropped[reason].Load(); (got != 0) != (reason == want) {
				t.Errorf("with request %d under way: dropped %v", seq, r.stats.Drops())
			}
		}
		if r.duplicate.Load() {
			t.Error("people are told of another robot")
		}
	}
}

func TestReceiverTellsEvents(t *testing.T) {
	r := testReceiver()
	var got wire.Event
	r.onEvent = func(e wire.Event) { got = e }
	want := wire.Event{Code: wire.EventBadObservation, Text: "camera top is 10x10", Seq: 4}
	r.deposit(notice(wire.Header{}, want))
	rttest.Want(t, got, want, "event")
}

// Goal: only events of the open session's server end the session. Old servers send no id.
func TestReceiverObeysItsOwnServer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		event  wire.Event
		epoch  uint32
		obeyed bool
	}{
		{"its server drains", wire.Event{Code: wire.EventDraining, ServerID: "a", Nonce: 7}, 2, true},
		{"its server has forgotten it", wire.Event{Code: wire.EventUnknownSession, ServerID: "a", Nonce: 7}, 2, true},
		{"a client ends the session in its server's name", wire.Event{Code: wire.EventUnknownSession, ServerID: "a"}, 2,
			false},
		{"an old server beside it drains", wire.Event{Code: wire.EventDraining}, 2, false},
		{"the same, without an epoch", wire.Event{Code: wire.EventDraining}, 0, false},
		{"another server has no session of it", wire.Event{Code: wire.EventUnknownSession, ServerID: "b"}, 2, false},
		{"another server drains", wire.Event{Code: wire.EventDraining, ServerID: "b", Nonce: 7}, 2, false},
		{"its server drains, for the session before", wire.Event{Code: wire.EventDraining, ServerID: "a", Nonce: 6}, 1,
			false},
		{"its server drains, without an epoch", wire.Event{Code: wire.EventDraining, ServerID: "a", Nonce: 7}, 0,
			false},
		{"another session's nonce", wire.Event{Code: wire.EventUnknownSession, ServerID: "a", Nonce: 6}, 2, false},
		{"no nonce", wire.Event{Code: wire.EventDraining, ServerID: "a"}, 2, false},
		{"an old server has forgotten the session before", wire.Event{Code: wire.EventUnknownSession}, 1, false},
	} {
		r := testReceiver()
		r.session(Session{Session: record.Session{ServerID: "a"}, Nonce: 7})
		r.deposit(notice(wire.Header{SessionEpoch: tt.epoch}, tt.event))
		if got := r.evicted.Load() == 2; got != tt.obeyed {
			t.Errorf("%s: obeyed %v, want %v (dropped %v)", tt.name, got, tt.obeyed, r.stats.Drops())
		}
	}
	r := testReceiver() // the session of an old server
	if r.deposit(notice(wire.Header{}, wire.Event{Code: wire.EventDraining})); r.evicted.Load() != 2 {
		t.Error("an old server drains, and its session goes on")
	}
}

func TestReceiverNoAlloc(t *testing.T) {
	r := testReceiver()
	r.out.SentKey.Store(1 << 40)
	bodies := chunkBody(50, 6, 0)
	seq := uint64(0)
	header := make([]byte, 0, wire.HeaderSize)
	deposit := func() {
		seq++
		r.stamps.issue(seq, testStamp(seq))
		header = wire.AppendHeader(header[:0], goodHeader(seq))
		r.deposit(wire.Sample{Payload: bodies, Attachment: header})
		r.in.Answers.Front()
	}
	for range 4 { // each of the three slots grows once
		deposit()
	}
	rttest.NoAllocs(t, "deposit allocates %v times, want 0", 200, deposit)
}

// Goal: two processes that make the same requests at the same instants send different stamps, each
// of which is the instant to a millisecond.
func TestStampsOfTwoProcessesDiffer(t *testing.T) {
	const requests = 2000
	one := newNoise()
	two := newNoise()
	same := 0
	for i := range requests {
		at := rt.Instant(time.Hour + time.Duration(i)*time.Second/60)
		a, b := newStamp(at, one), newStamp(at, two)
		if a == b {
			same++
		}
		if off := time.Duration(a) - time.Duration(at); off.Abs() > 1100*time.Microsecond {
			t.Fatalf("stamp %d is %v from its request", a, off)
		}
	}
	if same > 2 { // one pair of the half million is expected to be equal by chance
		t.Errorf("%d of %d stamps are the same in both", same, requests)
	}
	if newStamp(0, one) == 0 {
		t.Error("a stamp is 0, which stands for none")
	}
}

func TestStampsForgetWhatIsLongAgo(t *testing.T) {
	var s stamps
	if s.ours(1, 0) {
		t.Error("without a request, no stamp counts as ours")
	}
	for seq := uint64(1); seq <= stampSlots+1; seq++ {
		s.issue(seq, int64(seq)*10)
	}
	for seq, want := range map[uint64]bool{1: false, 2: true, stampSlots: true, stampSlots + 1: true,
		stampSlots + 2: false} {
		if s.ours(seq, int64(seq)*10) != want {
			t.Errorf("request %d counts as ours: %v, want %v", seq, !want, want)
		}
	}
}

// Goal: of several answers between two ticks, the tick gets the newest, and the others are counted and recorded,
// whatever their order of arrival.
func TestTheReplacedAnswerIsRecorded(t *testing.T) {
	for _, order := range [][]uint64{{3, 4, 5}, {5, 4, 3}, {3, 5, 4}} {
		r, dir := testReceiver(), t.TempDir()
		r.clock = rt.KernelClock()
		r.record = rttest.Must(record.New(record.Config{
			Mode:  record.All,
			Dir:   dir,
			Size:  1 << 30,
			ID:    "arm",
			Clock: r.clock,
		}))(t)
		for _, seq := range order {
			r.deposit(sample(goodHeader(seq), chunkBody(int(seq), 2, 0)))
		}
		if a, key, fresh := r.in.Answers.Front(); !fresh || key != 5 || a.Body.ChunkRobot.Rows != 5 ||
			r.stats.Dropped[dropNewer].Load() != 2 {
			t.Errorf("answers in the order %v: the tick gets %d, dropped %v; want 5 and 2", order, key, r.stats.Drops())
		}
		r.record.Collect()
		var stop atomic.Bool
		stop.Store(true)
		r.record.Write(&stop)
		var got []uint64
		rttest.Must(record.ReadFolder(dir, record.Visitor{Chunk: func(m *record.Chunk) error {
			if m.Outcome == DropNames[dropNewer] {
				got = append(got, m.Seq)
			}
			return nil
		}}))(t)
		if slices.Sort(got); !slices.Equal(got, []uint64{3, 4}) {
			t.Errorf("answers in the order %v: %v are on record as replaced, want 3 and 4", order, got)
		}
	}
}
