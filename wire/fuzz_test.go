package wire

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/edge-rt/edge-rt/wire/wiretest"
)

// seed adds every frozen body, the demo messages and some hostile beginnings.
func seed(f *testing.F) {
	for _, section := range []string{"messages", "tolerant_decode", "tensors", "images"} {
		var vectors []struct{ Hex string }
		if err := json.Unmarshal(wiretest.Vectors(f)[section], &vectors); err != nil {
			f.Fatal(err)
		}
		for _, v := range vectors {
			f.Add(unhex(v.Hex))
		}
	}
	f.Add(AppendObservation(nil, demoObservation()))
	f.Add(AppendActionChunk(nil, demoChunk()))
	f.Add(AppendSessionOpen(nil, &SessionOpen{ClientUUID: "r", SessionEpoch: 3, Instance: "0f", Host: "left-pi"}))
	f.Add(AppendSessionAck(nil, &SessionAck{Error: "taken", RetryAfterMs: 500, Nonce: 1 << 62, HeldBy: "left-pi"}))
	f.Add(AppendEvent(nil, &Event{Code: EventLate, Text: "x", Seq: 1, RetryAfterMs: 2, ServerID: "a", Nonce: 3}))
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x81, 0xa1, 'x', 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x81, 0xa5, 's', 't', 'a', 't', 'e', 0xc6, 0xff, 0xff, 0xff, 0xff})
}

// fuzzMessage checks that parse never panics, and that an accepted body, written and read again,
// gives the same bytes.
func fuzzMessage(f *testing.F, fresh func() message) {
	seed(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		m := fresh()
		if m.parse(src) != nil {
			return
		}
		first := m.append()
		again := fresh()
		if err := again.parse(first); err != nil {
			t.Fatalf("% x is accepted, but % x made of it is not: %v", src, first, err)
		}
		if second := again.append(); !bytes.Equal(first, second) {
			t.Fatalf("% x becomes % x", first, second)
		}
	})
}

func FuzzParseSessionOpen(f *testing.F)  { fuzzMessage(f, func() message { return &openMsg{} }) }
func FuzzParseSessionAck(f *testing.F)   { fuzzMessage(f, func() message { return &ackMsg{} }) }
func FuzzParseStatus(f *testing.F)       { fuzzMessage(f, func() message { return &statusMsg{} }) }
func FuzzParseReset(f *testing.F)        { fuzzMessage(f, func() message { return &resetMsg{} }) }
func FuzzParseResetAck(f *testing.F)     { fuzzMessage(f, func() message { return &resetAckMsg{} }) }
func FuzzParseSessionClose(f *testing.F) { fuzzMessage(f, func() message { return &closeMsg{} }) }
func FuzzParseEvent(f *testing.F)        { fuzzMessage(f, func() message { return &eventMsg{} }) }

// A reused Observation must read like a fresh one.
func FuzzParseObservation(f *testing.F) {
	used := &observationMsg{*demoObservation()}
	fuzzMessage(f, func() message { return used })
}

func FuzzParseActionChunk(f *testing.F) {
	fuzzMessage(f, func() message { return &chunkMsg{} })
}

func FuzzParseTensor(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		var got, again Tensor
		present, err := ParseTensor(&got, src)
		if err != nil || !present {
			return
		}
		first := AppendTensor(nil, got)
		if _, err := ParseTensor(&again, first); err != nil || !bytes.Equal(first, AppendTensor(nil, again)) {
			t.Fatalf("% x does not survive: %v", first, err)
		}
	})
}

func FuzzParseOp(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		if op, err := ParseOp(src); err == nil && op != OpOpen && op != OpClose {
			t.Fatalf("ParseOp(% x) = %q without an error", src, op)
		}
	})
}

func FuzzParseHeader(f *testing.F) {
	f.Add(AppendHeader(nil, Header{SeqID: 1}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, src []byte) {
		if h, err := ParseHeader(src); err == nil && !bytes.Equal(AppendHeader(nil, h), src) {
			t.Fatalf("% x does not survive", src)
		}
	})
}

// Property: the slug of a slug is the same slug, is one key chunk, and parses back as part of a
// prefix.
func FuzzSlug(f *testing.F) {
	for _, s := range []string{"a b", "..x..", "タスク1", "status", "", "a/../b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		slug, err := Slug(text)
		if err != nil {
			return
		}
		if again, err := Slug(slug); err != nil || again != slug {
			t.Fatalf("Slug(%q) = %q, whose slug is %q, %v", text, slug, again, err)
		}
		prefix, err := ServicePrefix(text, text, text)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := ServiceOf(ServerAliveKey(prefix)); err != nil || s.Prefix() != prefix {
			t.Fatalf("ServiceOf of %q = %v, %v", prefix, s, err)
		}
		key, err := EpochAliveKey(prefix, text, 7)
		if err != nil {
			t.Fatal(err)
		}
		if uuid, epoch, err := ParseEpochAlive(prefix, key); err != nil || uuid != slug || epoch != 7 {
			t.Fatalf("ParseEpochAlive(%q) = %q, %d, %v", key, uuid, epoch, err)
		}
	})
}

type eventMsg struct{ Event }

func (m *eventMsg) parse(src []byte) error { return ParseEvent(&m.Event, src) }
func (m *eventMsg) append() []byte         { return AppendEvent(nil, &m.Event) }
func (m *eventMsg) fields() map[string]any { return nil }
