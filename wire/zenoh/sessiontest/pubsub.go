package sessiontest

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// declareErrors are the errors of the calls that declare something on a key, by the names of the
// calls.
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
	{"samples of 0 B to 5 MB arrive whole and in order", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/*/size", got.deposit)
		pub := p.matched(p.from, "@c/r1/size", blocking)
		sizes := []int{0, 1, 63, 64, 127, 128, 4096, 16383, 65400, 65480, 65535, 65536, 100_000, 1 << 20, 5 << 20, 7}
		for i, n := range sizes {
			p.put(pub, pattern(i, n), pattern(i, 27))
		}
		rttest.Eventually(p.T, "all samples", func() bool { return got.count() >= len(sizes) })
		for i, s := range got.samples() {
			if i >= len(sizes) || s.Key != "@c/r1/size" || !bytes.Equal(s.Payload, pattern(i, sizes[i])) ||
				!bytes.Equal(s.Attachment, pattern(i, 27)) {
				p.Fatalf("sample %d: key %s, %d bytes, attachment % x", i, s.Key, len(s.Payload), s.Attachment)
			}
		}
	}},
	{"attachments of 0 to 64 KiB arrive, and a missing one is nil", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/att", got.deposit)
		pub := p.matched(p.from, "@c/att", blocking)
		sizes := []int{0, 1, 27, 1000, 1 << 16}
		if p.toLacks.LongAttachment {
			sizes = sizes[:4]
		}
		for i, n := range sizes {
			att := pattern(i, n)
			if n == 0 {
				att = nil
			}
			p.put(pub, []byte("x"), att)
		}
		rttest.Eventually(p.T, "all samples", func() bool { return got.count() >= len(sizes) })
		for i, s := range got.samples() {
			if want := pattern(i, sizes[i]); !bytes.Equal(s.Attachment, want) || sizes[i] == 0 && s.Attachment != nil {
				p.Errorf("attachment %d = %d bytes, want %d", i, len(s.Attachment), len(want))
			}
		}
	}},
	{"Put copies before it returns", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/copy", got.deposit)
		pub := p.matched(p.from, "@c/copy", blocking)
		payload, att := pattern(0, 100_000), pattern(0, 27)
		for i := range 20 {
			copy(payload, pattern(i, len(payload)))
			copy(att, pattern(i, len(att)))
			p.put(pub, payload, att)
		}
		clear(payload)
		clear(att)
		rttest.Eventually(p.T, "all samples", func() bool { return got.count() >= 20 })
		for i, s := range got.samples() {
			if !bytes.Equal(s.Payload, pattern(i, len(payload))) || !bytes.Equal(s.Attachment, pattern(i, len(att))) {
				p.Errorf("sample %d was changed after Put had returned", i)
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
			var got, mark basket
			p.subscribe(p.to, root+tt.expr, got.deposit)
			p.subscribe(p.to, root+"mark", mark.deposit)
			last := p.matched(p.from, root+"mark", blocking)
			for _, k := range keys {
				p.put(p.publisher(p.from, root+k, blocking), nil, nil)
			}
			p.put(last, nil, nil) // later than those before on the same lane
			rttest.Eventually(p.T, "the mark", func() bool { return mark.count() > 0 })
			want := []string{}
			for _, k := range tt.want {
				want = append(want, root+k)
			}
			if !slices.Equal(got.keys(), want) {
				p.Errorf("%s heard %v, want %v", root+tt.expr, got.keys(), want)
			}
		}
	}},
	{"overlapping subscriptions get each sample once", func(p pair) {
		var wide, narrow, same basket
		p.subscribe(p.to, "@c/over/**", wide.deposit)
		p.subscribe(p.to, "@c/over/a", narrow.deposit)
		p.subscribe(p.to, "@c/over/a", same.deposit)
		pub := p.matched(p.from, "@c/over/a", blocking)
		for range 50 {
			p.put(pub, nil, nil)
		}
		rttest.Eventually(p.T, "all samples", func() bool {
			return wide.count() >= 50 && narrow.count() >= 50 && same.count() >= 50
		})
		if a, b, c := wide.settled(), narrow.settled(), same.settled(); a != 50 || b != 50 || c != 50 {
			p.Errorf("%d, %d and %d samples, want 50 each", a, b, c)
		}
	}},
	{"an undeclared subscriber receives nothing more", func(p pair) {
		var got, rest basket
		sub := p.subscribe(p.to, "@c/un/a", got.deposit)
		p.subscribe(p.to, "@c/un/b", rest.deposit)
		a, b := p.matched(p.from, "@c/un/a", blocking), p.matched(p.from, "@c/un/b", blocking)
		p.put(a, nil, nil)
		rttest.Eventually(p.T, "one sample", func() bool { return got.count() == 1 })
		if err := sub.Undeclare(); err != nil {
			p.Errorf("Undeclare = %v", err)
		}
		p.put(a, nil, nil)
		p.put(b, nil, nil)
		rttest.Eventually(p.T, "the other's sample", func() bool { return rest.count() == 1 })
		if got.count() != 1 {
			p.Errorf("%d samples after Undeclare, want the 1 from before", got.count())
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
		p.subscribe(p.to, "@c/serial/*", func(wire.Sample) { happen() })
		if _, err := p.to.SubscribeTokens("@c/serial/*", func(string, bool) { happen() }); err != nil {
			p.Fatal(err)
		}
		pub := p.matched(p.from, "@c/serial/a", blocking)
		for range 500 {
			token := p.token(p.from, "@c/serial/t")
			p.put(pub, nil, nil)
			token.Undeclare()
		}
		rttest.Eventually(p.T, "all samples and some tokens", func() bool { return n.Load() > 500 })
		if overlaps.Load() != 0 {
			p.Errorf("%d callbacks began while another ran", overlaps.Load())
		}
	}},
	{"a callback may publish", func(p pair) {
		var pong basket
		p.subscribe(p.from, "@c/pong", pong.deposit)
		answer := p.matched(p.to, "@c/pong", blocking)
		p.subscribe(p.to, "@c/ping", func(s wire.Sample) { answer.Put(s.Payload, nil) })
		ping := p.matched(p.from, "@c/ping", blocking)
		for i := range 20 {
			p.put(ping, pattern(i, 500), nil)
		}
		rttest.Eventually(p.T, "all answers", func() bool { return pong.count() >= 20 })
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
