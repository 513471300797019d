package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"edgert/wire"
)

func (p pair) queryable(s wire.Session, expr string, answer func(wire.Query)) wire.Declaration {
	p.Helper()
	q, err := s.Queryable(expr, answer)
	if err != nil {
		p.Fatalf("Queryable(%s) = %v", expr, err)
	}
	return q
}

func (p pair) complete(s wire.Session, expr string, answer func(wire.Query)) wire.Declaration {
	p.Helper()
	q, err := s.CompleteQueryable(expr, answer)
	if err != nil {
		p.Fatalf("CompleteQueryable(%s) = %v", expr, err)
	}
	return q
}

// says is a queryable that replies with one text on its own key.
func says(key, text string) func(wire.Query) {
	return func(q wire.Query) {
		q.Reply(key, []byte(text))
		q.Finish()
	}
}

func (p pair) ask(s wire.Session, q wire.Question) []wire.Reply {
	p.Helper()
	if q.Timeout == 0 {
		q.Timeout = patience
	}
	r, err := s.Ask(context.Background(), q)
	if err != nil {
		p.Fatalf("Ask(%+v) = %v", q, err)
	}
	return r
}

// texts lists the payloads of replies, errors with an exclamation mark, sorted.
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

// reached waits until a question to everybody gets so many replies: then all
// queryables are known.
func (p pair) reached(s wire.Session, key string, n int) {
	p.Helper()
	p.eventually(fmt.Sprintf("%d replies on %s", n, key), func() bool {
		r, err := s.Get(context.Background(), key, nil, time.Second)
		return err == nil && len(r) == n
	})
}

// sizesOfReplies stands apart for Carried.
var sizesOfReplies = testCase{"replies of 0 B to 5 MB arrive whole", func(p pair) {
	p.queryable(p.to, "@c/big", func(q wire.Query) {
		var n int
		fmt.Sscan(q.Parameters(), &n)
		payload := pattern(n, n)
		go func() { // not on the receiver: it may have to wait for room
			q.Reply("@c/big", payload)
			q.Finish()
		}()
	})
	p.reached(p.from, "@c/big", 1)
	for _, n := range []int{0, 1, 65_500, 1 << 20, 5 << 20} {
		r := p.ask(p.from, wire.Question{Key: "@c/big", Parameters: fmt.Sprint(n)})
		if len(r) != 1 || !bytes.Equal(r[0].Payload, pattern(n, n)) {
			p.Errorf("%d bytes: %d replies", n, len(r))
		}
	}
}}

var queries = []testCase{
	{"a question brings everything it carries, and so does its reply", func(p pair) {
		type asked struct {
			key, parameters     string
			payload, attachment []byte
		}
		var mu sync.Mutex
		var got []asked
		then := uint64(0x6682b5c680000000)
		if p.toLacks.Time {
			then = 0
		}
		p.queryable(p.to, "@c/q/*", func(q wire.Query) {
			mu.Lock()
			got = append(got, asked{q.Key(), q.Parameters(), bytes.Clone(q.Payload()), bytes.Clone(q.Attachment())})
			mu.Unlock()
			q.ReplyWith(wire.Sample{Key: "@c/q/a", Payload: append([]byte("re:"), q.Payload()...), Attachment: []byte("back"),
				Encoding: wire.EncodingJSON, Time: then})
			q.ReplyWith(wire.Sample{Key: "@c/q/b", Delete: true})
			q.Finish()
		})
		p.reached(p.from, "@c/q/*", 2)
		mu.Lock()
		got = nil
		mu.Unlock()
		r := p.ask(p.from, wire.Question{Key: "@c/q/*", Parameters: "a=1;b=x|y;flag", Payload: pattern(3, 200_000), Attachment: []byte("att"), Encoding: wire.EncodingText})
		if len(r) != 2 {
			p.Fatalf("%d replies, want 2", len(r))
		}
		if a := r[0]; a.Key != "@c/q/a" || a.Err || a.Delete || !bytes.Equal(a.Payload, append([]byte("re:"), pattern(3, 200_000)...)) ||
			string(a.Attachment) != "back" || a.Encoding != wire.EncodingJSON || a.Time != then {
			p.Errorf("reply %s: %d bytes, %+v", a.Key, len(a.Payload), a.Encoding)
		}
		if b := r[1]; b.Key != "@c/q/b" || !b.Delete || len(b.Payload) != 0 || b.Attachment != nil {
			p.Errorf("deletion came as %+v", b)
		}
		p.ask(p.from, wire.Question{Key: "@c/q/c"})
		mu.Lock()
		defer mu.Unlock()
		if len(got) != 2 || got[0].key != "@c/q/*" || got[0].parameters != "a=1;b=x|y;flag" || !bytes.Equal(got[0].payload, pattern(3, 200_000)) || string(got[0].attachment) != "att" {
			p.Errorf("the queryable was asked %d times, first on %s with %q", len(got), got[0].key, got[0].parameters)
		}
		if len(got) == 2 && (got[1].key != "@c/q/c" || got[1].parameters != "" || len(got[1].payload) != 0 || got[1].attachment != nil) {
			p.Errorf("a bare question came as %+v", got[1])
		}
	}},
	{"several replies and errors come, in their order", func(p pair) {
		p.queryable(p.to, "@c/many", func(q wire.Query) {
			for i := range 5 {
				q.Reply("@c/many", []byte(fmt.Sprint(i)))
			}
			q.ReplyErr([]byte("partly"))
			q.Finish()
		})
		p.reached(p.from, "@c/many", 6)
		r := p.ask(p.from, wire.Question{Key: "@c/many"})
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
	{"consolidation none, monotonic and latest", func(p pair) {
		if p.toLacks.Time {
			p.Skip("a reply's time cannot be chosen here")
		}
		at := func(q wire.Query, key, text string, time uint64) {
			q.ReplyWith(wire.Sample{Key: key, Payload: []byte(text), Time: time << 32})
		}
		p.queryable(p.to, "@c/con/*", func(q wire.Query) {
			at(q, "@c/con/a", "a2", 2)
			at(q, "@c/con/b", "b1", 1)
			at(q, "@c/con/a", "a1", 1)
			at(q, "@c/con/a", "a3", 3)
			q.ReplyErr([]byte("e"))
			q.Finish()
		})
		p.reached(p.from, "@c/con/*", 5)
		for _, tt := range []struct {
			how  wire.Consolidation
			want []string
		}{
			{wire.ConsolidateNone, []string{"a1", "a2", "a3", "b1", "e!"}},
			{wire.ConsolidateMonotonic, []string{"a2", "a3", "b1", "e!"}},
			{wire.ConsolidateLatest, []string{"a3", "b1", "e!"}},
		} {
			if got := texts(p.ask(p.from, wire.Question{Key: "@c/con/*", Consolidation: tt.how})); !slices.Equal(got, tt.want) {
				p.Errorf("consolidation %d gives %v, want %v", tt.how, got, tt.want)
			}
		}
	}},
	{"targets: all, the best, the complete ones", func(p pair) {
		p.queryable(p.to, "@c/t/a", says("@c/t/a", "some"))
		p.queryable(p.to, "@c/t/*", says("@c/t/a", "wide"))
		p.reached(p.from, "@c/t/a", 2)
		ask := func(target wire.Target) []string {
			return texts(p.ask(p.from, wire.Question{Key: "@c/t/a", Target: target}))
		}
		if got := ask(wire.TargetBest); !slices.Equal(got, []string{"some", "wide"}) {
			p.Errorf("best without a complete one: %v, want both", got)
		}
		if got := ask(wire.TargetComplete); len(got) != 0 {
			p.Errorf("complete without one: %v, want none", got)
		}
		c := p.complete(p.to, "@c/t/**", says("@c/t/a", "complete"))
		p.reached(p.from, "@c/t/a", 3)
		p.eventually("the complete one", func() bool { return slices.Equal(ask(wire.TargetComplete), []string{"complete"}) })
		if got := ask(wire.TargetBest); !slices.Contains(got, "complete") {
			p.Errorf("best: %v, want the complete one", got)
		}
		if got := ask(wire.TargetAll); len(got) != 3 {
			p.Errorf("all: %v, want three", got)
		}
		if got := texts(p.ask(p.from, wire.Question{Key: "@c/**", Target: wire.TargetComplete})); len(got) != 0 {
			p.Errorf("complete on a wider key: %v, want none", got)
		}
		c.Undeclare()
		p.eventually("the complete one's end", func() bool { return len(ask(wire.TargetComplete)) == 0 })
		if got := ask(wire.TargetAll); !slices.Equal(got, []string{"some", "wide"}) {
			p.Errorf("all after its end: %v", got)
		}
	}},
	{"wildcards match questions, and none matches a verbatim chunk", func(p pair) {
		for _, key := range []string{"c/w/a", "c/w/b/c", "c/w/@v"} {
			p.queryable(p.to, key, says(key, key))
			p.reached(p.from, key, 1)
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
			if got := texts(p.ask(p.from, wire.Question{Key: tt.key})); !slices.Equal(got, tt.want) {
				p.Errorf("%s asked %v, want %v", tt.key, got, tt.want)
			}
		}
	}},
	{"nobody answers at once", func(p pair) {
		began := time.Now()
		if r := p.ask(p.from, wire.Question{Key: "@c/nobody"}); len(r) != 0 || time.Since(began) > patience/2 {
			p.Errorf("%v after %v, want nothing at once", r, time.Since(began))
		}
	}},
	{"a timeout returns what has come", func(p pair) {
		hold := make(chan wire.Query, 100)
		p.queryable(p.to, "@c/slow", func(q wire.Query) {
			q.Reply("@c/slow", []byte("first"))
			hold <- q
		})
		p.eventually("a reply before the timeout", func() bool {
			r := p.ask(p.from, wire.Question{Key: "@c/slow", Timeout: 500 * time.Millisecond})
			return slices.Contains(texts(r), "first")
		})
		for len(hold) > 0 {
			(<-hold).Finish()
		}
		if _, err := p.from.Ask(context.Background(), wire.Question{Key: "@c/slow"}); err == nil {
			p.Error("a question without a timeout was accepted")
		}
	}},
	{"the context ends a question", func(p pair) {
		p.queryable(p.to, "@c/ctx", func(q wire.Query) { time.AfterFunc(time.Second, q.Finish) })
		p.eventually("the deadline's error", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			_, err := p.from.Get(ctx, "@c/ctx", nil, patience)
			return errors.Is(err, context.DeadlineExceeded)
		})
	}},
	{"a queryable may answer later, from elsewhere", func(p pair) {
		p.queryable(p.to, "@c/later", func(q wire.Query) {
			go func() {
				time.Sleep(20 * time.Millisecond)
				q.Reply(q.Key(), q.Payload())
				q.Finish()
			}()
		})
		p.reached(p.from, "@c/later", 1)
		if r := p.ask(p.from, wire.Question{Key: "@c/later", Payload: []byte("x")}); len(r) != 1 || string(r[0].Payload) != "x" {
			p.Errorf("replies %v", r)
		}
	}},
	{"a reply's key must match unless the question takes any", func(p pair) {
		refused := make(chan error, 1000)
		p.queryable(p.to, "@c/key", func(q wire.Query) {
			refused <- q.Reply("@c/other", []byte("foreign"))
			q.Finish()
		})
		p.eventually("the queryable to be asked", func() bool {
			p.ask(p.from, wire.Question{Key: "@c/key"})
			return len(refused) > 0
		})
		if r := p.ask(p.from, wire.Question{Key: "@c/key"}); len(r) != 0 || <-refused == nil {
			p.Errorf("a foreign key was accepted: %v", r)
		}
		if r := p.ask(p.from, wire.Question{Key: "@c/key", Parameters: "x=1;_anyke"}); len(r) != 1 || r[0].Key != "@c/other" {
			p.Errorf("replies %v, want the one on another key", r)
		}
		if _, err := p.from.Ask(context.Background(), wire.Question{Key: "a//b", Timeout: time.Second}); err == nil {
			p.Error("a question on a bad key was accepted")
		}
	}},
	{"a session answers its own questions", func(p pair) {
		p.queryable(p.from, "@c/self", says("@c/self", "own"))
		p.queryable(p.to, "@c/self", says("@c/self", "other"))
		p.eventually("both", func() bool {
			return slices.Equal(texts(p.ask(p.from, wire.Question{Key: "@c/self"})), []string{"other", "own"})
		})
	}},
	{"a hundred questions at once", func(p pair) {
		p.queryable(p.to, "@c/hundred/**", func(q wire.Query) {
			payload := bytes.Clone(q.Payload())
			go func() {
				if err := q.Reply(strings.TrimSuffix(q.Key(), "/*"), payload); err != nil {
					p.Errorf("Reply on %s = %v", q.Key(), err)
				}
				q.Finish()
			}()
		})
		p.reached(p.from, "@c/hundred/x", 1)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				key, want := fmt.Sprintf("@c/hundred/%d", i), pattern(i, 1000+i)
				r, err := p.from.Get(context.Background(), key, want, patience)
				if err != nil || len(r) != 1 || !bytes.Equal(r[0].Payload, want) || r[0].Key != key {
					p.Errorf("question %d: %d replies, %v", i, len(r), err)
				}
			}()
		}
		wg.Wait()
	}},
	{"an undeclared queryable is asked no more", func(p pair) {
		q := p.queryable(p.to, "@c/gone", says("@c/gone", "here"))
		p.reached(p.from, "@c/gone", 1)
		if err := q.Undeclare(); err != nil {
			p.Errorf("Undeclare = %v", err)
		}
		if r := p.ask(p.from, wire.Question{Key: "@c/gone"}); len(r) != 0 {
			p.Errorf("replies after Undeclare: %v", texts(r))
		}
	}},
}
