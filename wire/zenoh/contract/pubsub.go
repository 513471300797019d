package contract

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"edgert/wire"
)

var pubsub = []testCase{
	{"samples of 0 B to 5 MB arrive whole and in order", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/*/size", got.deposit)
		pub := p.heard(p.from, "@c/r1/size", blocking)
		sizes := []int{0, 1, 63, 64, 127, 128, 4096, 16383, 65400, 65480, 65535, 65536, 100_000, 1 << 20, 5 << 20, 7}
		for i, n := range sizes {
			p.put(pub, pattern(i, n), pattern(i, 27))
		}
		p.eventually("all samples", func() bool { return got.count() >= len(sizes) })
		for i, s := range got.samples() {
			if i >= len(sizes) || s.Key != "@c/r1/size" || !bytes.Equal(s.Payload, pattern(i, sizes[i])) || !bytes.Equal(s.Attachment, pattern(i, 27)) {
				p.Fatalf("sample %d: key %s, %d bytes, attachment % x", i, s.Key, len(s.Payload), s.Attachment)
			}
		}
	}},
	{"attachments of 0 to 64 KiB arrive, and none is nil", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/att", got.deposit)
		pub := p.heard(p.from, "@c/att", blocking)
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
		p.eventually("all samples", func() bool { return got.count() >= len(sizes) })
		for i, s := range got.samples() {
			if want := pattern(i, sizes[i]); !bytes.Equal(s.Attachment, want) || sizes[i] == 0 && s.Attachment != nil {
				p.Errorf("attachment %d = %d bytes, want %d", i, len(s.Attachment), len(want))
			}
		}
	}},
	{"every priority, express, drop and block arrives as it was put", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/qos/*", got.deposit)
		want := map[string]wire.QoS{}
		for _, q := range everyQoS() {
			key := fmt.Sprintf("@c/qos/%d-%v-%v", q.Priority, q.Express, q.Block)
			p.put(p.heard(p.from, key, q), []byte("x"), nil)
			want[key] = q
		}
		p.eventually("all samples", func() bool { return got.count() >= len(want) })
		if p.toLacks.QoS {
			p.Skip("a sample's QoS is not told here; all arrived")
		}
		for _, s := range got.samples() {
			if s.QoS.Reliable = true; s.QoS != want[s.Key] {
				p.Errorf("%s arrived with %+v, want %+v", s.Key, s.QoS, want[s.Key])
			}
		}
	}},
	{"the default priority is data", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/default", got.deposit)
		p.put(p.heard(p.from, "@c/default", wire.QoS{}), nil, nil)
		p.eventually("the sample", func() bool { return got.count() > 0 })
		if p.toLacks.QoS {
			p.Skip("a sample's QoS is not told here")
		}
		if q := got.samples()[0].QoS; q.Priority != wire.Data || q.Block || q.Express {
			p.Errorf("QoS{} arrived as %+v, want priority data, droppable", q)
		}
	}},
	{"encodings arrive", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/enc", got.deposit)
		pub := p.heard(p.from, "@c/enc", blocking)
		all := []wire.Encoding{wire.EncodingBytes, wire.EncodingText, wire.EncodingJSON, wire.EncodingJPEG,
			{ID: 1, Schema: "utf8"}, {ID: 0xffff, Schema: "x/y"}, {ID: 3, Schema: strings.Repeat("s", 255)}}
		for _, e := range all {
			if err := pub.PutWith(wire.Sample{Payload: []byte("x"), Encoding: e}); err != nil {
				p.Fatalf("PutWith(%+v) = %v", e, err)
			}
		}
		if err := pub.PutWith(wire.Sample{Encoding: wire.Encoding{ID: 3, Schema: strings.Repeat("s", 256)}}); err == nil {
			p.Error("a schema of 256 bytes was accepted")
		}
		p.eventually("all samples", func() bool { return got.count() >= len(all) })
		for i, s := range got.samples() {
			if s.Encoding != all[i] {
				p.Errorf("encoding %+v, want %+v", s.Encoding, all[i])
			}
		}
	}},
	{"a timestamp arrives", func(p pair) {
		if p.fromLacks.Time {
			p.Skip("a sample's time cannot be chosen here")
		}
		var got basket
		p.subscribe(p.to, "@c/time", got.deposit)
		pub := p.heard(p.from, "@c/time", blocking)
		const then = 0x6682b5c680000000 // July 2024, long past on every clock
		if err := pub.PutWith(wire.Sample{Payload: []byte("x"), Time: then}); err != nil {
			p.Fatal(err)
		}
		p.eventually("the sample", func() bool { return got.count() > 0 })
		if s := got.samples()[0]; s.Time != then {
			p.Errorf("time %#x, want %#x", s.Time, uint64(then))
		}
	}},
	{"a deletion arrives as one", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/del", got.deposit)
		pub := p.heard(p.from, "@c/del", blocking)
		why := []byte("why")
		if p.fromLacks.DeletionAttachment {
			why = nil
		}
		if err := pub.PutWith(wire.Sample{Delete: true, Attachment: why}); err != nil {
			p.Fatal(err)
		}
		p.put(pub, nil, nil)
		p.eventually("both", func() bool { return got.count() >= 2 })
		all := got.samples()
		if s := all[0]; !s.Delete || len(s.Payload) != 0 || string(s.Attachment) != string(why) {
			p.Errorf("deletion arrived as %+v", s)
		}
		if all[1].Delete {
			p.Error("an empty sample arrived as a deletion")
		}
		if err := pub.PutWith(wire.Sample{Delete: true, Payload: []byte("x")}); err == nil {
			p.Error("a deletion with a payload was accepted")
		}
	}},
	{"Put copies before it returns", func(p pair) {
		var got basket
		p.subscribe(p.to, "@c/copy", got.deposit)
		pub := p.heard(p.from, "@c/copy", blocking)
		payload, att := pattern(0, 100_000), pattern(0, 27)
		for i := range 20 {
			copy(payload, pattern(i, len(payload)))
			copy(att, pattern(i, len(att)))
			p.put(pub, payload, att)
		}
		clear(payload)
		clear(att)
		p.eventually("all samples", func() bool { return got.count() >= 20 })
		for i, s := range got.samples() {
			if !bytes.Equal(s.Payload, pattern(i, len(payload))) || !bytes.Equal(s.Attachment, pattern(i, len(att))) {
				p.Errorf("sample %d was changed after Put had returned", i)
			}
		}
	}},
	{"wildcards match, and none matches a verbatim chunk", func(p pair) {
		keys := []string{"c/a", "c/a/b", "c/a/b/c", "c/ab", "c/@v", "c/@v/a", "c/a/@v"}
		for _, tt := range []struct {
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
			var got, mark basket
			sub := p.subscribe(p.to, tt.expr, got.deposit)
			markSub := p.subscribe(p.to, "mark", mark.deposit)
			pubs := []wire.Publisher{}
			for _, k := range keys {
				pub := p.publisher(p.from, k, blocking)
				if slices.Contains(tt.want, k) {
					p.eventually(tt.expr+" to match "+k, pub.Matching)
				}
				p.put(pub, nil, nil)
				pubs = append(pubs, pub)
			}
			last := p.heard(p.from, "mark", blocking)
			p.put(last, nil, nil) // behind them on the same lane
			p.eventually("the mark", func() bool { return mark.count() > 0 })
			if !slices.Equal(got.keys(), tt.want) {
				p.Errorf("%s heard %v, want %v", tt.expr, got.keys(), tt.want)
			}
			sub.Undeclare()
			markSub.Undeclare()
			for _, pub := range append(pubs, last) { // or the next one takes it for its own
				p.eventually("the subscribers' end to show", func() bool { return !pub.Matching() })
				pub.Undeclare()
			}
		}
	}},
	{"overlapping subscriptions get each sample once", func(p pair) {
		var wide, narrow, same basket
		p.subscribe(p.to, "@c/over/**", wide.deposit)
		p.subscribe(p.to, "@c/over/a", narrow.deposit)
		p.subscribe(p.to, "@c/over/a", same.deposit)
		pub := p.heard(p.from, "@c/over/a", blocking)
		for range 50 {
			p.put(pub, nil, nil)
		}
		p.eventually("all samples", func() bool { return wide.count() >= 50 && narrow.count() >= 50 && same.count() >= 50 })
		if a, b, c := wide.settled(), narrow.settled(), same.settled(); a != 50 || b != 50 || c != 50 {
			p.Errorf("%d, %d and %d samples, want 50 each", a, b, c)
		}
	}},
	{"a session hears its own publications once", func(p pair) {
		var own, other basket
		p.subscribe(p.from, "@c/own/*", own.deposit)
		p.subscribe(p.to, "@c/own/a", other.deposit)
		pub := p.heard(p.from, "@c/own/a", blocking)
		p.eventually("the other to hear", func() bool { p.put(pub, []byte("probe"), nil); return other.count() > 0 })
		before, otherBefore := own.settled(), other.settled()
		for i := range 20 {
			p.put(pub, pattern(i, 3000), []byte("att"))
		}
		p.eventually("all samples", func() bool { return own.count() >= before+20 && other.count() >= otherBefore+20 })
		if a, b := own.settled()-before, other.settled()-otherBefore; a != 20 || b != 20 {
			p.Errorf("%d own and %d other samples, want 20 each", a, b)
		}
		for i, s := range own.samples()[before:] {
			if s.Key != "@c/own/a" || !bytes.Equal(s.Payload, pattern(i, 3000)) || string(s.Attachment) != "att" || s.QoS != blocking && !p.fromLacks.QoS {
				p.Errorf("own sample %d: %s, %d bytes, %q, %+v", i, s.Key, len(s.Payload), s.Attachment, s.QoS)
			}
		}
		if replaced, err := pub.PutLatest([]byte("last"), nil); err != nil {
			p.Errorf("PutLatest = %v, %v", replaced, err)
		}
		p.eventually("the newest", func() bool { all := own.samples(); return string(all[len(all)-1].Payload) == "last" })
	}},
	{"an undeclared subscriber hears nothing more", func(p pair) {
		var got, rest basket
		sub := p.subscribe(p.to, "@c/un/a", got.deposit)
		p.subscribe(p.to, "@c/un/b", rest.deposit)
		a, b := p.heard(p.from, "@c/un/a", blocking), p.heard(p.from, "@c/un/b", blocking)
		p.put(a, nil, nil)
		p.eventually("one sample", func() bool { return got.count() == 1 })
		if err := sub.Undeclare(); err != nil {
			p.Errorf("Undeclare = %v", err)
		}
		p.put(a, nil, nil)
		p.put(b, nil, nil)
		p.eventually("the other's sample", func() bool { return rest.count() == 1 })
		if got.count() != 1 {
			p.Errorf("%d samples after Undeclare, want the 1 from before", got.count())
		}
	}},
	{"a publisher's matching status follows the subscribers", func(p pair) {
		pub := p.publisher(p.from, "@c/match/a", blocking)
		other := p.publisher(p.from, "@c/match/b", blocking)
		if pub.Matching() {
			p.Error("Matching before anybody subscribed")
		}
		first := p.subscribe(p.to, "@c/match/*", func(wire.Sample) {})
		p.eventually("the first to show", func() bool { return pub.Matching() && other.Matching() })
		second := p.subscribe(p.to, "@c/match/a", func(wire.Sample) {})
		first.Undeclare()
		p.eventually("the first's end to show", func() bool { return !other.Matching() })
		if !pub.Matching() {
			p.Error("not Matching though one subscriber is left")
		}
		second.Undeclare()
		p.eventually("the second's end to show", func() bool { return !pub.Matching() })
		own := p.subscribe(p.from, "@c/match/**", func(wire.Sample) {})
		p.eventually("an own subscriber to show", pub.Matching)
		own.Undeclare()
		p.eventually("its end to show", func() bool { return !pub.Matching() })
	}},
	{"callbacks come one at a time", func(p pair) {
		var running, overlaps, n atomic.Int32
		deposit := func(wire.Sample) {
			if running.Add(1) != 1 {
				overlaps.Add(1)
			}
			n.Add(1)
			running.Add(-1)
		}
		p.subscribe(p.to, "@c/serial/*", deposit)
		p.subscribe(p.to, "@c/serial/own", deposit)
		far, near := p.heard(p.from, "@c/serial/far", blocking), p.heard(p.to, "@c/serial/own", blocking)
		for range 500 {
			p.put(far, nil, nil)
			p.put(near, nil, nil)
		}
		p.eventually("all samples", func() bool { return n.Load() >= 1500 })
		if overlaps.Load() != 0 {
			p.Errorf("%d callbacks began while another ran", overlaps.Load())
		}
	}},
	{"a callback may publish", func(p pair) {
		// To the other end, and to a subscriber of its own session.
		var pong, own basket
		p.subscribe(p.from, "@c/pong", pong.deposit)
		p.subscribe(p.to, "@c/pong", own.deposit)
		answer := p.heard(p.to, "@c/pong", blocking)
		p.subscribe(p.to, "@c/ping", func(s wire.Sample) { answer.Put(s.Payload, nil) })
		ping := p.heard(p.from, "@c/ping", blocking)
		p.eventually("the other end to hear", func() bool { p.put(answer, nil, nil); return pong.count() > 0 })
		before, ownBefore := pong.settled(), own.settled()
		for i := range 20 {
			p.put(ping, pattern(i, 500), nil)
		}
		p.eventually("all answers", func() bool { return pong.count() >= before+20 && own.count() >= ownBefore+20 })
	}},
	{"bad keys are refused", func(p pair) {
		for _, key := range []string{"", "/a", "a/", "a//b", "a#b", "a?b", "a*", "x$y", "**/**", "$*"} {
			if _, err := p.from.Publisher(key, blocking); err == nil {
				p.Errorf("Publisher(%q) was accepted", key)
			}
			if _, err := p.from.Subscribe(key, func(wire.Sample) {}); err == nil {
				p.Errorf("Subscribe(%q) was accepted", key)
			}
			if _, err := p.from.Token(key); err == nil {
				p.Errorf("Token(%q) was accepted", key)
			}
			if _, err := p.from.Queryable(key, func(q wire.Query) { q.Finish() }); err == nil {
				p.Errorf("Queryable(%q) was accepted", key)
			}
		}
		if _, err := p.from.Publisher("a/*", blocking); err == nil {
			p.Error("a publisher on a wildcard was accepted")
		}
	}},
}

// everyQoS is each priority with and without express and block.
func everyQoS() (all []wire.QoS) {
	for pr := wire.RealTime; pr <= wire.Background; pr++ {
		for i := range 4 {
			all = append(all, wire.QoS{Priority: pr, Reliable: true, Express: i&1 != 0, Block: i&2 != 0})
		}
	}
	return all
}
