package sessiontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// replier returns the callback of a queryable that replies with one text on its own key.
func replier(key, text string) func(wire.Query) {
	return func(q wire.Query) {
		q.Reply(key, []byte(text))
		q.Finish()
	}
}

func (e end) get(key string, payload []byte) []wire.Reply {
	return rttest.OrPanic(e.Get(e.t.Context(), key, payload, rttest.Patience))
}

// texts lists the payloads of replies, sorted. An error has an exclamation mark before its text.
func texts(replies []wire.Reply) []string {
	all := []string{}
	for _, r := range replies {
		text := string(r.Payload)
		if r.Err {
			text += "!"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

// reached waits until a query gets n replies. Then all queryables are announced to the session.
func (e end) reached(key string, n int) {
	e.t.Helper()
	rttest.Eventually(e.t, fmt.Sprintf("%d replies on %s", n, key), func() bool {
		r, err := e.Get(e.t.Context(), key, nil, time.Second)
		return err == nil && len(r) == n
	})
}

// sizesOfReplies is separate because Carried uses it, too.
var sizesOfReplies = testCase{"replies of 0 B to 5 MB arrive whole", func(p pair) {
	p.to.queryable("@c/big", func(q wire.Query) {
		var n int
		fmt.Sscan(string(q.Payload()), &n)
		payload := pattern(n, n)
		go func() { // in another goroutine, because the reply may have to wait for room
			q.Reply("@c/big", payload)
			q.Finish()
		}()
	})
	p.from.reached("@c/big", 1)
	for _, n := range []int{0, 1, 65_500, 1 << 20, 5 << 20} {
		began := time.Now()
		r := p.from.get("@c/big", fmt.Append(nil, n))
		if time.Since(began) >= rttest.Patience {
			p.Errorf("%d bytes: the end of the replies did not come", n)
		}
		if len(r) != 1 || !bytes.Equal(r[0].Payload, pattern(n, n)) {
			p.Errorf("%d bytes: %d replies", n, len(r))
		}
	}
}}

var queries = []testCase{
	{"a query brings its key and payload, and its reply too", func(p pair) {
		var got Basket
		p.to.queryable("@c/q/*", func(q wire.Query) {
			got.Deposit(wire.Sample{Key: q.Key(), Payload: q.Payload()})
			q.Reply("@c/q/a", append([]byte("re:"), q.Payload()...))
			q.Finish()
		})
		p.from.reached("@c/q/*", 1)
		before := got.Count()
		r := p.from.get("@c/q/*", pattern(3, 200_000))
		if len(r) != 1 || r[0].Key != "@c/q/a" || r[0].Err ||
			!bytes.Equal(r[0].Payload, append([]byte("re:"), pattern(3, 200_000)...)) {
			p.Errorf("%d replies, want one of all bytes", len(r))
		}
		p.from.get("@c/q/a", nil)
		asked := got.Samples()[before:]
		if len(asked) != 2 || asked[0].Key != "@c/q/*" || !bytes.Equal(asked[0].Payload, pattern(3, 200_000)) ||
			asked[1].Key != "@c/q/a" || len(asked[1].Payload) != 0 {
			p.Errorf("the queryable was asked %d times, or for something else", len(asked))
		}
	}},
	{"several replies and errors come, in their order", func(p pair) {
		p.to.queryable("@c/many", func(q wire.Query) {
			for i := range 5 {
				q.Reply("@c/many", []byte(fmt.Sprint(i)))
			}
			q.ReplyErr([]byte("partly"))
			q.Finish()
		})
		p.from.reached("@c/many", 6)
		r := p.from.get("@c/many", nil)
		for i, x := range r[:5] {
			if string(x.Payload) != fmt.Sprint(i) || x.Err {
				p.Errorf("reply %d is %q", i, x.Payload)
			}
		}
		if last := r[5]; !last.Err || string(last.Payload) != "partly" {
			p.Errorf("the error came as %+v", last)
		}
	}},
	sizesOfReplies,
	{"wildcards match queries, except for verbatim chunks", func(p pair) {
		for _, key := range []string{"c/w/a", "c/w/b/c", "c/w/@v"} {
			p.to.queryable(key, replier(key, key))
			p.from.reached(key, 1)
		}
		for _, tt := range []struct {
			key  string
			want []string
		}{
			{"c/w/*", []string{"c/w/a"}},
			{"c/w/**", []string{"c/w/a", "c/w/b/c"}},
			{"c/w/@v", []string{"c/w/@v"}},
			{"c/$*w/**/@v", []string{"c/w/@v"}},
			{"c/none", []string{}},
		} {
			if got := texts(p.from.get(tt.key, nil)); !slices.Equal(got, tt.want) {
				p.Errorf("%s asked %v, want %v", tt.key, got, tt.want)
			}
		}
	}},
	{"nobody answers at once", func(p pair) {
		began := time.Now()
		if r := p.from.get("@c/nobody", nil); len(r) != 0 || time.Since(began) > rttest.Patience/2 {
			p.Errorf("%v after %v, want nothing at once", r, time.Since(began))
		}
	}},
	{"a timeout returns what has come", func(p pair) {
		hold := make(chan wire.Query, 100)
		p.to.queryable("@c/slow", func(q wire.Query) {
			q.Reply("@c/slow", []byte("first"))
			hold <- q
		})
		rttest.Eventually(p.T, "a reply before the timeout", func() bool {
			r, _ := p.from.Get(p.Context(), "@c/slow", nil, 500*time.Millisecond)
			return slices.Contains(texts(r), "first")
		})
		for len(hold) > 0 {
			(<-hold).Finish()
		}
		if _, err := p.from.Get(p.Context(), "@c/slow", nil, 0); err == nil {
			p.Error("a query without a timeout was accepted")
		}
	}},
	{"the context ends a query", func(p pair) {
		p.to.queryable("@c/ctx", func(q wire.Query) { time.AfterFunc(time.Second, q.Finish) })
		rttest.Eventually(p.T, "the deadline's error", func() bool {
			ctx, cancel := context.WithTimeout(p.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := p.from.Get(ctx, "@c/ctx", nil, rttest.Patience)
			return errors.Is(err, context.DeadlineExceeded)
		})
	}},
	{"a queryable may answer later, from elsewhere", func(p pair) {
		p.to.queryable("@c/later", func(q wire.Query) {
			go func() {
				time.Sleep(20 * time.Millisecond)
				q.Reply(q.Key(), q.Payload())
				q.Finish()
			}()
		})
		p.from.reached("@c/later", 1)
		if r := p.from.get("@c/later", []byte("x")); len(r) != 1 || string(r[0].Payload) != "x" {
			p.Errorf("replies %v", r)
		}
	}},
	{"a reply's key must match", func(p pair) {
		refused := make(chan error, 1000)
		p.to.queryable("@c/key", func(q wire.Query) {
			refused <- q.Reply("@c/other", []byte("foreign"))
			q.Finish()
		})
		rttest.Eventually(p.T, "the queryable to be asked", func() bool {
			p.from.get("@c/key", nil)
			return len(refused) > 0
		})
		if r := p.from.get("@c/key", nil); len(r) != 0 || <-refused == nil {
			p.Errorf("a foreign key was accepted: %v", r)
		}
		if _, err := p.from.Get(p.Context(), "a//b", nil, time.Second); err == nil {
			p.Error("a query on a bad key was accepted")
		}
	}},
	{"a hundred queries at once", func(p pair) {
		p.to.queryable("@c/hundred/**", func(q wire.Query) {
			payload := bytes.Clone(q.Payload())
			go func() {
				if err := q.Reply(strings.TrimSuffix(q.Key(), "/*"), payload); err != nil {
					p.Errorf("Reply on %s = %v", q.Key(), err)
				}
				q.Finish()
			}()
		})
		p.from.reached("@c/hundred/x", 1)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				key, want := fmt.Sprintf("@c/hundred/%d", i), pattern(i, 1000+i)
				r, err := p.from.Get(p.Context(), key, want, rttest.Patience)
				if err != nil || len(r) != 1 || !bytes.Equal(r[0].Payload, want) || r[0].Key != key {
					p.Errorf("query %d: %d replies, %v", i, len(r), err)
				}
			})
		}
		wg.Wait()
	}},
	{"an undeclared queryable is asked no more", func(p pair) {
		q := p.to.queryable("@c/gone", replier("@c/gone", "here"))
		p.from.reached("@c/gone", 1)
		rttest.Do(p, q.Undeclare())
		if r := p.from.get("@c/gone", nil); len(r) != 0 {
			p.Errorf("replies after Undeclare: %v", texts(r))
		}
	}},
}
