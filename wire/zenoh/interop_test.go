package zenoh

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"edgert/wire"
)

// pattern is the payload that the node's put makes for a size.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 % 251)
	}
	return b
}

func sum(b []byte) (s int) {
	for _, x := range b {
		s += int(x)
	}
	return s % 65521
}

// across runs every exchange between our session and an official one. Both are
// connected already, directly or through a router.
func across(t *testing.T, ours *Session, theirs *node) {
	t.Run("their samples reach us", func(t *testing.T) { theirSamples(t, ours, theirs) })
	t.Run("their declared publisher finds us", func(t *testing.T) { theirPublisher(t, ours, theirs) })
	t.Run("our samples reach them", func(t *testing.T) { ourSamples(t, ours, theirs) })
	t.Run("they query us", func(t *testing.T) { theyQuery(t, ours, theirs) })
	t.Run("we query them", func(t *testing.T) { weQuery(t, ours, theirs) })
	t.Run("they watch our tokens", func(t *testing.T) { theyWatch(t, ours, theirs) })
	t.Run("we watch their tokens", func(t *testing.T) { weWatch(t, ours, theirs) })
}

var interopSizes = []int{0, 1, 200, 65_000, 65_536, 1 << 20}

func theirSamples(t *testing.T, ours *Session, theirs *node) {
	var got samples
	sub, err := ours.Subscribe("@i/*/up", got.deposit)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Undeclare()
	// A put may precede the declaration at a router: repeat until one arrives.
	eventually(t, "the first sample", func() bool {
		theirs.do("put", args{"key": "@i/warm/up", "hex": "00"})
		return got.count() > 0
	})
	quiet(&got)
	base := got.count()
	for _, n := range interopSizes {
		theirs.do("put", args{"key": "@i/r1/up", "size": n, "attachment": "a1b2", "block": true})
	}
	eventually(t, "their samples", func() bool { return got.count() == base+len(interopSizes) })
	for i, n := range interopSizes {
		s := got.at(base + i)
		if s.Key != "@i/r1/up" || !bytes.Equal(s.Payload, pattern(n)) || hex.EncodeToString(s.Attachment) != "a1b2" {
			t.Errorf("sample of %d bytes = key %s, %d bytes, attachment %x", n, s.Key, len(s.Payload), s.Attachment)
		}
	}
}

// Goal: a declared publisher of theirs, which stays mute until it is told of a
// subscriber, hears of ours when it comes, when it goes and when it is there
// before the publisher.
func theirPublisher(t *testing.T, ours *Session, theirs *node) {
	theirs.do("publisher", args{"name": "p", "key": "@i/r1/pub"})
	matches := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprint("matching to be ", want), func() bool {
			return theirs.do("matching", args{"name": "p"}).Matching == want
		})
	}
	matches(false)
	var got samples
	sub, err := ours.Subscribe("@i/**", got.deposit)
	if err != nil {
		t.Fatal(err)
	}
	matches(true)
	theirs.do("publish", args{"name": "p", "hex": "01"})
	eventually(t, "the sample", func() bool { return got.count() == 1 })
	sub.Undeclare()
	matches(false)
	theirs.do("undeclare", args{"name": "p"})
	if sub, err = ours.Subscribe("@i/*/pub", got.deposit); err != nil {
		t.Fatal(err)
	}
	defer sub.Undeclare()
	theirs.do("publisher", args{"name": "p", "key": "@i/r1/pub"})
	defer theirs.do("undeclare", args{"name": "p"})
	matches(true)
	theirs.do("publish", args{"name": "p", "hex": "02"})
	eventually(t, "the second sample", func() bool { return got.count() == 2 })
}

// quiet returns when no sample has come for a while.
func quiet(got *samples) {
	for last := -1; last != got.count(); {
		last = got.count()
		time.Sleep(50 * time.Millisecond)
	}
}

func ourSamples(t *testing.T, ours *Session, theirs *node) {
	theirs.do("subscribe", args{"name": "down", "key": "@i/**"})
	defer theirs.do("undeclare", args{"name": "down"})
	pub, err := ours.Publisher("@i/r1/down", wire.QoS{Priority: wire.InteractiveHigh, Reliable: true, Express: true, Block: true})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Undeclare()
	eventually(t, "the first sample", func() bool {
		if err := pub.Put([]byte{0}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		return len(theirs.seen("down")) > 0
	})
	for last := -1; last != len(theirs.seen("down")); time.Sleep(50 * time.Millisecond) {
		last = len(theirs.seen("down"))
	}
	base := len(theirs.seen("down"))
	for _, n := range interopSizes {
		if err := pub.Put(pattern(n), []byte{0xa1, 0xb2}); err != nil {
			t.Fatalf("Put(%d bytes) = %v", n, err)
		}
	}
	eventually(t, "our samples", func() bool { return len(theirs.seen("down")) == base+len(interopSizes) })
	for i, n := range interopSizes {
		r := theirs.seen("down")[base+i]
		if r.Key != "@i/r1/down" || r.Size != n || r.Sum != sum(pattern(n)) || r.Attachment == nil || *r.Attachment != "a1b2" || r.Priority != 2 || !r.Express {
			t.Errorf("our sample of %d bytes arrived as %+v", n, r)
		}
	}
	replaced := false
	for i := range 200 {
		r, err := pub.PutLatest(pattern(100_000+i), nil)
		if err != nil {
			t.Fatalf("PutLatest = %v", err)
		}
		replaced = replaced || r
	}
	eventually(t, "the newest of 200", func() bool {
		all := theirs.seen("down")
		return all[len(all)-1].Size == 100_199
	})
	t.Logf("of 200 PutLatest %d arrived, replaced %v", len(theirs.seen("down"))-base-len(interopSizes), replaced)
}

func theyQuery(t *testing.T, ours *Session, theirs *node) {
	q, err := ours.Queryable("@i/status", func(q wire.Query) {
		q.Reply("@i/status", append([]byte("re:"), q.Payload()...))
		q.Reply("@i/status", nil)
		q.ReplyErr([]byte("partly"))
		q.Finish()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Undeclare()
	var r report
	eventually(t, "a reply", func() bool {
		r = theirs.do("get", args{"key": "@i/*", "hex": "6869"})
		return len(r.Replies) > 0
	})
	// The official querier consolidates: of two replies on one key the last.
	var values, failures []string
	for _, x := range r.Replies {
		if x.Error != "" {
			failures = append(failures, x.Error)
		} else {
			values = append(values, x.Key+"="+x.Hex)
		}
	}
	if !slices.Equal(values, []string{"@i/status="}) || !slices.Equal(failures, []string{hex.EncodeToString([]byte("partly"))}) {
		t.Errorf("replies %v, errors %v", values, failures)
	}
	began := time.Now()
	if r := theirs.do("get", args{"key": "@i/nobody"}); len(r.Replies) != 0 || time.Since(began) > 3*time.Second {
		t.Errorf("get of nobody = %v after %v, want nothing at once", r.Replies, time.Since(began))
	}
}

func weQuery(t *testing.T, ours *Session, theirs *node) {
	theirs.do("queryable", args{"name": "q1", "key": "@i/session"})
	theirs.do("queryable", args{"name": "q2", "key": "@i/reset", "error": true})
	defer theirs.do("undeclare", args{"name": "q1"})
	defer theirs.do("undeclare", args{"name": "q2"})
	var replies []wire.Reply
	eventually(t, "both replies", func() bool {
		var err error
		if replies, err = ours.Get(context.Background(), "@i/*", []byte("hi"), 2*time.Second); err != nil {
			t.Fatal(err)
		}
		return len(replies) == 2
	})
	var got []string
	for _, r := range replies {
		got = append(got, fmt.Sprintf("%v %s", r.Err, r.Payload))
	}
	slices.Sort(got)
	if want := []string{"false re:hi", "true no: hi"}; !slices.Equal(got, want) {
		t.Errorf("Get = %q, want %q", got, want)
	}
}

func theyWatch(t *testing.T, ours *Session, theirs *node) {
	first, err := ours.Token("@i/live/first")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if keys := theirs.do("tokens", args{"key": "@i/none/*"}).Keys; len(keys) != 0 || time.Since(began) > 3*time.Second {
		t.Errorf("liveliness get of nobody = %v after %v, want nothing at once", keys, time.Since(began))
	}
	eventually(t, "their liveliness get to see it", func() bool {
		return slices.Equal(theirs.do("tokens", args{"key": "@i/live/*"}).Keys, []string{"@i/live/first"})
	})
	theirs.do("watch", args{"name": "w", "key": "@i/live/**"})
	defer theirs.do("undeclare", args{"name": "w"})
	want := func(all ...string) {
		t.Helper()
		eventually(t, fmt.Sprint("they see ", all), func() bool { return slices.Equal(theirs.tokensSeen("w"), all) })
	}
	want("+@i/live/first")
	second, err := ours.Token("@i/live/second")
	if err != nil {
		t.Fatal(err)
	}
	want("+@i/live/first", "+@i/live/second")
	first.Undeclare()
	want("+@i/live/first", "+@i/live/second", "-@i/live/first")
	second.Undeclare()
	want("+@i/live/first", "+@i/live/second", "-@i/live/first", "-@i/live/second")
}

func weWatch(t *testing.T, ours *Session, theirs *node) {
	theirs.do("token", args{"name": "t1", "key": "@i/edge/first"})
	eventually(t, "our liveliness get to see it", func() bool {
		keys, err := ours.Tokens(context.Background(), "@i/edge/*", 2*time.Second)
		return err == nil && slices.Equal(keys, []string{"@i/edge/first"})
	})
	var got presence
	w, err := ours.SubscribeTokens("@i/edge/**", got.deposit)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Undeclare()
	want := func(all ...string) {
		t.Helper()
		eventually(t, fmt.Sprint("we see ", all), func() bool { return slices.Equal(got.seen(), all) })
	}
	want("+@i/edge/first")
	theirs.do("token", args{"name": "t2", "key": "@i/edge/second"})
	want("+@i/edge/first", "+@i/edge/second")
	theirs.do("undeclare", args{"name": "t1"})
	want("+@i/edge/first", "+@i/edge/second", "-@i/edge/first")
	theirs.do("undeclare", args{"name": "t2"})
	want("+@i/edge/first", "+@i/edge/second", "-@i/edge/first", "-@i/edge/second")
}

func TestOfficialClientAtOurListener(t *testing.T) {
	python := interopPython(t)
	for _, mode := range []string{"client", "peer", "router"} {
		t.Run(mode, func(t *testing.T) {
			ours, at := listener(t, Config{})
			theirs := startNode(t, python)
			theirs.do("open", args{"mode": mode, "connect": []string{at}, "lease_ms": 2000})
			across(t, ours, theirs)
		})
	}
}

func TestOurClientAtOfficialNode(t *testing.T) {
	python := interopPython(t)
	for _, mode := range []string{"router", "peer"} {
		t.Run(mode, func(t *testing.T) {
			at := freeEndpoint(t)
			theirs := startNode(t, python)
			theirs.do("open", args{"mode": mode, "listen": []string{at}})
			across(t, mustOpen(t, Config{Connect: []string{at}}), theirs)
		})
	}
}

func TestBothAtOfficialRouter(t *testing.T) {
	python := interopPython(t)
	at := freeEndpoint(t)
	router := startNode(t, python)
	router.do("open", args{"mode": "router", "listen": []string{at}})
	theirs := startNode(t, python)
	theirs.do("open", args{"mode": "client", "connect": []string{at}})
	ours := mustOpen(t, Config{Connect: []string{at}})
	across(t, ours, theirs)
	t.Run("two of ours", func(t *testing.T) {
		other := mustOpen(t, Config{Connect: []string{at}})
		var got presence
		if _, err := ours.SubscribeTokens("@two/*", got.deposit); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Token("@two/a"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other's token", func() bool { return slices.Equal(got.seen(), []string{"+@two/a"}) })
		other.Close()
		eventually(t, "its end", func() bool { return slices.Equal(got.seen(), []string{"+@two/a", "-@two/a"}) })
	})
}

// Goal: both sides' keep-alives hold an idle link for several leases.
func TestOfficialLinkOutlivesItsLeases(t *testing.T) {
	python := interopPython(t)
	var lost samples
	ours, at := listener(t, Config{Lease: 400 * time.Millisecond, Log: func(line string) {
		lost.deposit(wire.Sample{Key: line})
	}})
	theirs := startNode(t, python)
	theirs.do("open", args{"mode": "client", "connect": []string{at}, "lease_ms": 400})
	theirs.do("token", args{"name": "t", "key": "@idle"})
	var got presence
	if _, err := ours.SubscribeTokens("@idle", got.deposit); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	if seen := got.seen(); !slices.Equal(seen, []string{"+@idle"}) || lost.count() != 1 {
		t.Errorf("after five leases: tokens %v, %d log lines, want +@idle and 1", seen, lost.count())
	}
	theirs.kill()
	eventually(t, "the token to vanish", func() bool { return slices.Equal(got.seen(), []string{"+@idle", "-@idle"}) })
}

func freeEndpoint(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "tcp/" + l.Addr().String()
}

// Goal: after the router was killed and started again on the same port, all
// declarations work without anyone's help, and tokens vanished in between.
func TestOfficialRouterRestart(t *testing.T) {
	python := interopPython(t)
	at := freeEndpoint(t)
	router := startNode(t, python)
	router.do("open", args{"mode": "router", "listen": []string{at}})
	quick := Config{Connect: []string{at}, BackoffMin: 20 * time.Millisecond, BackoffMax: 100 * time.Millisecond}
	a, b := mustOpen(t, quick), mustOpen(t, quick)
	var got samples
	var tokens presence
	if _, err := a.Subscribe("@r/**", got.deposit); err != nil {
		t.Fatal(err)
	}
	if _, err := a.SubscribeTokens("@r/**", tokens.deposit); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Token("@r/b"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Queryable("@r/q", func(q wire.Query) { q.Reply("@r/q", nil); q.Finish() }); err != nil {
		t.Fatal(err)
	}
	pub, err := b.Publisher("@r/p", wire.ActionQoS)
	if err != nil {
		t.Fatal(err)
	}
	flows := func(when string) {
		t.Helper()
		before := got.count()
		eventually(t, "samples "+when, func() bool { pub.Put([]byte(when), nil); return got.count() > before })
		eventually(t, "replies "+when, func() bool {
			r, err := a.Get(context.Background(), "@r/q", nil, time.Second)
			return err == nil && len(r) == 1
		})
	}
	flows("before")
	eventually(t, "the token", func() bool { return slices.Equal(tokens.seen(), []string{"+@r/b"}) })
	router.kill()
	eventually(t, "the loss to be noticed", func() bool { return !a.Connected() && !b.Connected() })
	if err := pub.Put(nil, nil); err != wire.ErrDisconnected {
		t.Errorf("Put without a link = %v, want %v", err, wire.ErrDisconnected)
	}
	eventually(t, "the token to vanish", func() bool { return slices.Equal(tokens.seen(), []string{"+@r/b", "-@r/b"}) })
	router = startNode(t, python)
	router.do("open", args{"mode": "router", "listen": []string{at}})
	flows("after")
	eventually(t, "the token to come back", func() bool { return slices.Equal(tokens.seen(), []string{"+@r/b", "-@r/b", "+@r/b"}) })
}
