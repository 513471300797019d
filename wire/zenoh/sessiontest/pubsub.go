package sessiontest

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// declareErrors makes each call that declares something on a key, and returns the errors by the names of the calls.
func declareErrors(s wire.Session, key string) map[string]error {
	return map[string]error{
		"Publisher": errorOf(s.Publisher(key, blocking)),
		"Subscribe": errorOf(s.Subscribe(key, func(wire.Sample) {})),
		"Queryable": errorOf(s.Queryable(key, wire.Query.Finish)),
		"Token":     errorOf(s.Token(key)),
	}
}

func errorOf(_ any, err error) error { return err }

var pubsub = []testCase{
	// Put copies the payload, so the test can reuse its buffers.
	{"samples of 0 B to 5 MB arrive whole and in order, with their attachments", func(p pair) {
		var got Basket
		p.to.subscribe("@c/*/size", got.Deposit)
		pub := p.matched(p.from, "@c/r1/size", blocking)
		var all []wire.Sample
		for i, n := range []int{0, 1, 63, 64, 127, 128, 4096, 16383, 65400, 65480, 65535, 65536, 100_000, 1 << 20,
			5 << 20} {
			all = append(all, wire.Sample{Key: "@c/r1/size", Payload: pattern(i, n), Attachment: pattern(i, 27)})
		}
		for i, n := range []int{0, 1, 1000, 1 << 16} {
			if n < 1<<16 || !p.to.LongAttachment {
				all = append(all, wire.Sample{Key: "@c/r1/size", Payload: []byte("x"), Attachment: pattern(i, n)})
			}
		}
		payload, attachment := make([]byte, 5<<20), make([]byte, 1<<16)
		for _, s := range all {
			var att []byte // nil for a sample without an attachment
			if n := copy(attachment, s.Attachment); n > 0 {
				att = attachment[:n]
			}
			rttest.PanicOn(pub.Put(payload[:copy(payload, s.Payload)], att))
		}
		clear(payload)
		clear(attachment)
		got.await(p, len(all))
		for i, s := range got.Samples() {
			if i >= len(all) || s.Key != all[i].Key || !bytes.Equal(s.Payload, all[i].Payload) ||
				!bytes.Equal(s.Attachment, all[i].Attachment) || len(all[i].Attachment) == 0 && s.Attachment != nil {
				p.Fatalf("sample %d: key %s, %d bytes, attachment % x", i, s.Key, len(s.Payload),
					s.Attachment[:min(27, len(s.Attachment))])
			}
		}
	}},
	{"wildcards match, except for verbatim chunks", func(p pair) {
		keys := []string{"c/a", "c/a/b", "c/a/b/c", "c/ab", "c/@v", "c/@v/a", "c/a/@v"}
		for i, tt := range []struct {
			expr string
			want []string
		}{
			{"c/*", []string{"c/a", "c/ab"}},
			{"c/**", []string{"c/a", "c/a/b", "c/a/b/c", "c/ab"}},
			{"c/a/**", []string{"c/a", "c/a/b", "c/a/b/c"}},
			{"c/*/b", []string{"c/a/b"}},
			{"c/**/c", []string{"c/a/b/c"}},
			{"c/a$*", []string{"c/a", "c/ab"}},
			{"c/@v", []string{"c/@v"}},
			{"c/@v/**", []string{"c/@v", "c/@v/a"}},
			{"c/*/@v", []string{"c/a/@v"}},
		} {
			root := fmt.Sprintf("w%d/", i)
			var got, mark Basket
			p.to.subscribe(root+tt.expr, got.Deposit)
			p.to.subscribe(root+"mark", mark.Deposit)
			last := p.matched(p.from, root+"mark", blocking)
			for _, k := range keys {
				rttest.PanicOn(p.from.publisher(root+k, blocking).Put(nil, nil))
			}
			rttest.PanicOn(last.Put(nil, nil)) // this sample arrives after all earlier samples on its lane
			mark.await(p, 1)
			want := []string{}
			for _, k := range tt.want {
				want = append(want, root+k)
			}
			if !slices.Equal(got.Keys(), want) {
				p.Errorf("%s heard %v, want %v", root+tt.expr, got.Keys(), want)
			}
		}
	}},
	{"overlapping subscriptions get each sample once", func(p pair) {
		var wide, narrow, same Basket
		p.to.subscribe("@c/over/**", wide.Deposit)
		p.to.subscribe("@c/over/a", narrow.Deposit)
		p.to.subscribe("@c/over/a", same.Deposit)
		pub := p.matched(p.from, "@c/over/a", blocking)
		for range 50 {
			rttest.PanicOn(pub.Put(nil, nil))
		}
		for _, b := range []*Basket{&wide, &narrow, &same} {
			b.await(p, 50)
			if n := b.settled(); n != 50 {
				p.Errorf("%d samples, want 50", n)
			}
		}
	}},
	{"an undeclared subscriber receives nothing more", func(p pair) {
		var got, rest Basket
		sub := p.to.subscribe("@c/un/a", got.Deposit)
		p.to.subscribe("@c/un/b", rest.Deposit)
		a, b := p.matched(p.from, "@c/un/a", blocking), p.matched(p.from, "@c/un/b", blocking)
		rttest.PanicOn(a.Put(nil, nil))
		got.await(p, 1)
		rttest.Do(p, sub.Undeclare())
		rttest.PanicOn(a.Put(nil, nil))
		rttest.PanicOn(b.Put(nil, nil))
		rest.await(p, 1)
		if got.Count() != 1 {
			p.Errorf("%d samples after Undeclare, want the 1 from before", got.Count())
		}
	}},
	{"callbacks come one at a time", func(p pair) {
		var running, overlaps, n atomic.Int32
		happen := func() {
			if running.Add(1) != 1 {
				overlaps.Add(1)
			}
			n.Add(1)
			running.Add(-1)
		}
		p.to.subscribe("@c/serial/*", func(wire.Sample) { happen() })
		rttest.OrPanic(p.to.SubscribeTokens("@c/serial/*", func(string, bool) { happen() }))
		pub := p.matched(p.from, "@c/serial/a", blocking)
		for range 500 {
			token := p.from.token("@c/serial/t")
			rttest.PanicOn(pub.Put(nil, nil))
			token.Undeclare()
		}
		rttest.Eventually(p.T, "all samples and some tokens", func() bool { return n.Load() > 500 })
		if overlaps.Load() != 0 {
			p.Errorf("%d callbacks began while another ran", overlaps.Load())
		}
	}},
	{"a callback may publish", func(p pair) {
		var pong Basket
		p.from.subscribe("@c/pong", pong.Deposit)
		answer := p.matched(p.to, "@c/pong", blocking)
		p.to.subscribe("@c/ping", func(s wire.Sample) { answer.Put(s.Payload, nil) })
		ping := p.matched(p.from, "@c/ping", blocking)
		for i := range 20 {
			rttest.PanicOn(ping.Put(pattern(i, 500), nil))
		}
		pong.await(p, 20)
	}},
	{"bad keys are refused", func(p pair) {
		for _, key := range []string{"", "/a", "a/", "a//b", "a#b", "a?b", "a*", "x$y", "**/**", "$*"} {
			for name, err := range declareErrors(p.from, key) {
				if err == nil {
					p.Errorf("%s(%q) was accepted", name, key)
				}
			}
		}
		if _, err := p.from.Publisher("a/*", blocking); err == nil {
			p.Error("a publisher on a wildcard was accepted")
		}
	}},
}
