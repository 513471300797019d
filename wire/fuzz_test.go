package wire

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/wiretest"
)

// seed adds every frozen body, the demo messages and some hostile beginnings.
func seed(f *testing.F) {
	for _, section := range []string{"messages", "tolerant_decode", "tensors", "images"} {
		var vectors []struct{ Hex string }
		rttest.Do(f, json.Unmarshal(wiretest.Vectors(f)[section], &vectors))
		for _, v := range vectors {
			f.Add(unhex(v.Hex))
		}
	}
	f.Add(AppendObservation(nil, demoObservation()))
	f.Add(AppendActionChunk(nil, demoChunk()))
	f.Add(Append(nil, &demoOpen))
	f.Add(Append(nil, &demoAck))
	f.Add(Append(nil, &demoEvent))
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x81, 0xa1, 'x', 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x81, 0xa5, 's', 't', 'a', 't', 'e', 0xc6, 0xff, 0xff, 0xff, 0xff})
}

// fuzzMessage checks that parse never panics. If parse accepts a body, writing and reading it again must give the same
// bytes.
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

func FuzzParseSessionOpen(f *testing.F)  { fuzzMessage(f, openKind) }
func FuzzParseSessionAck(f *testing.F)   { fuzzMessage(f, ackKind) }
func FuzzParseStatus(f *testing.F)       { fuzzMessage(f, statusKind) }
func FuzzParseReset(f *testing.F)        { fuzzMessage(f, resetKind) }
func FuzzParseResetAck(f *testing.F)     { fuzzMessage(f, resetAckKind) }
func FuzzParseSessionClose(f *testing.F) { fuzzMessage(f, closeKind) }
func FuzzParseEvent(f *testing.F)        { fuzzMessage(f, eventKind) }

// Parsing into a reused Observation must give the same result as into a fresh one.
func FuzzParseObservation(f *testing.F) {
	used := form[Observation]{body: demoObservation(), read: ParseObservation, write: AppendObservation}
	fuzzMessage(f, func() message { return used })
}

func FuzzParseActionChunk(f *testing.F) { fuzzMessage(f, chunkKind) }

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

// Property: a slug is its own slug, is a single key chunk, and parses back as part of a prefix.
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
		prefix := rttest.Must(ServicePrefix(text, text, text))(t)
		if s, err := ServiceOf(ServerAliveKey(prefix)); err != nil || s.Prefix() != prefix {
			t.Fatalf("ServiceOf of %q = %v, %v", prefix, s, err)
		}
		key := rttest.Must(EpochAliveKey(prefix, text, 7))(t)
		if uuid, epoch, err := ParseEpochAlive(prefix, key); err != nil || uuid != slug || epoch != 7 {
			t.Fatalf("ParseEpochAlive(%q) = %q, %d, %v", key, uuid, epoch, err)
		}
	})
}

var eventKind = kind[Event](Parse, Append, nil)
