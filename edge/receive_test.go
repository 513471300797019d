package edge

import (
	"testing"

	"edgert/wire"
)

func sample(h wire.Header, body []byte) wire.Sample {
	return wire.Sample{Key: "k", Payload: body, Attachment: wire.AppendHeader(nil, h)}
}

func chunkBody(rows, cols int) []byte {
	m := wire.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	return wire.AppendActionChunk(nil, &wire.ActionChunk{ChunkModel: m, ChunkRobot: m})
}

func newReceiver() *receiver {
	r := &receiver{link: &linkFlags{}, inbox: newInbox(), stats: newTickStats()}
	r.link.epoch.Store(2)
	r.link.sentKey.Store(5)
	return r
}

func goodHeader(seq uint64) wire.Header {
	return wire.Header{SchemaVersion: 1, MsgType: wire.MsgActionChunk, SeqID: seq, EpisodeID: 1, SessionEpoch: 2}
}

func TestReceiverDropsByReason(t *testing.T) {
	with := func(change func(*wire.Header)) wire.Sample {
		h := goodHeader(5)
		change(&h)
		return sample(h, chunkBody(3, 2))
	}
	tests := []struct {
		name   string
		sample wire.Sample
		reason int
	}{
		{"no attachment", wire.Sample{Payload: chunkBody(3, 2)}, dropHeader},
		{"26 bytes of header", wire.Sample{Attachment: make([]byte, 26), Payload: chunkBody(3, 2)}, dropHeader},
		{"another schema", with(func(h *wire.Header) { h.SchemaVersion = 2 }), dropHeader},
		{"an observation", with(func(h *wire.Header) { h.MsgType = wire.MsgObservation }), dropHeader},
		{"an earlier session", with(func(h *wire.Header) { h.SessionEpoch = 1 }), dropEpoch},
		{"a request that was never sent", with(func(h *wire.Header) { h.SeqID = 6 }), dropUnknown},
		{"a key that would shut out all others", with(func(h *wire.Header) { h.SeqID = 1 << 63 }), dropUnknown},
		{"request 0", with(func(h *wire.Header) { h.SeqID = 0 }), dropUnknown},
		{"a body that is no map", sample(goodHeader(5), []byte{0x93, 1, 2, 3}), dropBody},
		{"an empty body", sample(goodHeader(5), nil), dropBody},
		{"half a body", sample(goodHeader(5), chunkBody(3, 2)[:20]), dropBody},
		{"an event that does not decode", sample(wire.Header{SchemaVersion: 1, MsgType: wire.MsgEvent}, []byte{0xc1}), dropBody},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newReceiver()
			r.deposit(tt.sample)
			if got := r.stats.dropped[tt.reason].Load(); got != 1 {
				t.Errorf("deposit(%s): dropped %v, want 1 as %q", tt.name, r.stats.dropTotals(), dropNames[tt.reason])
			}
			if _, _, fresh := r.inbox.Front(); fresh {
				t.Error("it reached the tick")
			}
			// And the next good one still gets through.
			r.deposit(sample(goodHeader(5), chunkBody(3, 2)))
			if a, key, fresh := r.inbox.Front(); !fresh || key != 5 || a.body.ChunkRobot.Rows != 3 {
				t.Errorf("a good chunk afterwards: fresh %v key %d", fresh, key)
			}
		})
	}
}

func TestReceiverKeepsTheNewest(t *testing.T) {
	r := newReceiver()
	r.deposit(sample(goodHeader(3), chunkBody(3, 2)))
	r.deposit(sample(goodHeader(5), chunkBody(4, 2)))
	r.deposit(sample(goodHeader(4), chunkBody(5, 2)))
	a, key, fresh := r.inbox.Front()
	if !fresh || key != 5 || a.body.ChunkRobot.Rows != 4 {
		t.Errorf("front = key %d rows %d fresh %v, want 5, 4, true", key, a.body.ChunkRobot.Rows, fresh)
	}
	if got := r.stats.dropped[dropNewer].Load(); got != 2 {
		t.Errorf("superseded %d, want 2", got)
	}
}

func TestReceiverTellsEvents(t *testing.T) {
	r := newReceiver()
	var got wire.Event
	r.told = func(e wire.Event) { got = e }
	want := wire.Event{Code: wire.EventBadObservation, Text: "camera top is 10x10", Seq: 4}
	r.deposit(sample(wire.Header{SchemaVersion: 1, MsgType: wire.MsgEvent}, wire.AppendEvent(nil, &want)))
	if got != want || r.stats.notices.Load() != 1 {
		t.Errorf("event %+v (%d notices), want %+v", got, r.stats.notices.Load(), want)
	}
}

func TestReceiverNoAlloc(t *testing.T) {
	r := newReceiver()
	r.link.sentKey.Store(1 << 40)
	bodies := chunkBody(50, 6)
	seq := uint64(0)
	header := make([]byte, 0, wire.HeaderSize)
	deposit := func() {
		seq++
		header = wire.AppendHeader(header[:0], goodHeader(seq))
		r.deposit(wire.Sample{Payload: bodies, Attachment: header})
		r.inbox.Front()
	}
	for range 4 { // each of the three slots grows once
		deposit()
	}
	if n := testing.AllocsPerRun(200, deposit); n != 0 {
		t.Errorf("deposit allocates %v times, want 0", n)
	}
}
