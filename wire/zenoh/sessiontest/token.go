package sessiontest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// Diary records texts in the order of their arrival.
type Diary struct {
	mu  sync.Mutex
	all []string
}

// Note records one text.
func (d *Diary) Note(entry string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, entry)
}

// Deposit records a token that appears as "+key" and a token that vanishes as "-key".
func (d *Diary) Deposit(key string, alive bool) {
	sign := map[bool]string{true: "+", false: "-"}
	d.Note(sign[alive] + key)
}

// Entries returns the texts so far.
func (d *Diary) Entries() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

// of lists the entries for one key, in their order.
func (d *Diary) of(key string) (all []string) {
	for _, e := range d.Entries() {
		if e[1:] == key {
			all = append(all, e)
		}
	}
	return all
}

func (p pair) watch(s wire.Session, expr string) (*Diary, wire.Declaration) {
	d := new(Diary)
	return d, rttest.OrPanic(s.SubscribeTokens(expr, d.Deposit))
}

// reads waits until the diary has exactly the entries want, in any order.
func (p pair) reads(d *Diary, want ...string) {
	p.Helper()
	slices.Sort(want)
	var got []string
	defer func() {
		if !slices.Equal(got, want) {
			p.Logf("it has %v", got)
		}
	}()
	rttest.Eventually(p.T, fmt.Sprint("the entries ", want), func() bool {
		got = slices.Sorted(slices.Values(d.Entries()))
		return slices.Equal(got, want)
	})
}

// lists waits until Tokens returns exactly these keys.
func (p pair) lists(s wire.Session, expr string, want ...string) {
	p.Helper()
	rttest.Eventually(p.T, fmt.Sprint("the list ", want), func() bool {
		got, err := s.Tokens(p.Context(), expr, rttest.Patience)
		return err == nil && slices.Equal(got, want)
	})
}

var tokens = []testCase{
	{"tokens that are there come first, then what changes", func(p pair) {
		first := p.token(p.to, "@c/l/first")
		p.token(p.to, "@c/l/second")
		p.lists(p.from, "@c/l/*", "@c/l/first", "@c/l/second")
		d, _ := p.watch(p.from, "@c/l/**")
		p.reads(d, "+@c/l/first", "+@c/l/second")
		third := p.token(p.to, "@c/l/x/third")
		p.reads(d, "+@c/l/first", "+@c/l/second", "+@c/l/x/third")
		rttest.Do(p, first.Undeclare())
		p.reads(d, "+@c/l/first", "+@c/l/second", "+@c/l/x/third", "-@c/l/first")
		third.Undeclare()
		p.reads(d, "+@c/l/first", "+@c/l/second", "+@c/l/x/third", "-@c/l/first", "-@c/l/x/third")
		p.lists(p.from, "@c/l/**", "@c/l/second")
	}},
	{"a watcher before its tokens sees them come and go", func(p pair) {
		d, _ := p.watch(p.from, "@c/e/*")
		for i := range 3 {
			tok := p.token(p.to, "@c/e/a")
			rttest.Eventually(p.T, "it to appear", func() bool { return len(d.of("@c/e/a")) == 2*i+1 })
			tok.Undeclare()
			rttest.Eventually(p.T, "it to vanish", func() bool { return len(d.of("@c/e/a")) == 2*i+2 })
		}
		if got := d.of("@c/e/a"); !slices.Equal(got,
			[]string{"+@c/e/a", "-@c/e/a", "+@c/e/a", "-@c/e/a", "+@c/e/a", "-@c/e/a"}) {
			p.Errorf("entries %v", got)
		}
	}},
	{"a key that several hold vanishes with the last", func(p pair) {
		d, _ := p.watch(p.from, "@c/s/*")
		other, _ := p.watch(p.to, "@c/s/*")
		a := p.token(p.to, "@c/s/k")
		b := p.token(p.to, "@c/s/k")
		c := p.token(p.from, "@c/s/k")
		// This token arrives after the earlier tokens, so then each end has the other end's tokens.
		p.token(p.to, "@c/s/ready")
		p.token(p.from, "@c/s/ready2")
		p.reads(d, "+@c/s/k", "+@c/s/ready", "+@c/s/ready2")
		p.reads(other, "+@c/s/k", "+@c/s/ready", "+@c/s/ready2")
		a.Undeclare()
		c.Undeclare()
		p.token(p.to, "@c/s/mark")
		p.token(p.from, "@c/s/mark2")
		all := []string{"+@c/s/k", "+@c/s/ready", "+@c/s/ready2", "+@c/s/mark", "+@c/s/mark2"}
		both := func() {
			p.Helper()
			if !p.fromLacks.SharedTokens {
				p.reads(d, all...)
			}
			if !p.toLacks.SharedTokens {
				p.reads(other, all...)
			}
		}
		both()
		b.Undeclare()
		all = append(all, "-@c/s/k")
		both()
	}},
	{"a session sees its own tokens", func(p pair) {
		d, _ := p.watch(p.from, "@c/o/*")
		tok := p.token(p.from, "@c/o/own")
		if p.fromLacks.SharedTokens {
			rttest.Eventually(p.T, "the own token", func() bool { return len(d.Entries()) > 0 })
		} else {
			p.reads(d, "+@c/o/own")
		}
		p.lists(p.from, "@c/o/*", "@c/o/own")
		p.lists(p.to, "@c/o/*", "@c/o/own")
		tok.Undeclare()
		if p.fromLacks.SharedTokens {
			rttest.Eventually(p.T, "its end", func() bool { return slices.Contains(d.Entries(), "-@c/o/own") })
		} else {
			p.reads(d, "+@c/o/own", "-@c/o/own")
		}
		p.lists(p.from, "@c/o/*")
		p.lists(p.to, "@c/o/*")
	}},
	{"wildcards match tokens, except for verbatim chunks", func(p pair) {
		for _, key := range []string{"c/k/a", "c/k/a/b", "c/k/@v", "c/k/@v/b"} {
			p.token(p.to, key)
		}
		p.lists(p.from, "c/k/*", "c/k/a")
		p.lists(p.from, "c/k/**", "c/k/a", "c/k/a/b")
		p.lists(p.from, "c/k/@v/**", "c/k/@v", "c/k/@v/b")
		p.lists(p.from, "c/k/a$*", "c/k/a")
		d, _ := p.watch(p.from, "c/**/b")
		p.reads(d, "+c/k/a/b")
		e, _ := p.watch(p.from, "c/k/@v")
		p.reads(e, "+c/k/@v")
	}},
	{"several watchers each see every token", func(p pair) {
		p.token(p.to, "@c/w/a")
		p.lists(p.from, "@c/w/*", "@c/w/a")
		first, _ := p.watch(p.from, "@c/w/*")
		second, w := p.watch(p.from, "@c/w/a")
		p.reads(first, "+@c/w/a")
		p.reads(second, "+@c/w/a")
		third, _ := p.watch(p.from, "@c/w/**")
		p.reads(third, "+@c/w/a")
		w.Undeclare()
		p.token(p.to, "@c/w/b")
		p.reads(first, "+@c/w/a", "+@c/w/b")
		p.reads(third, "+@c/w/a", "+@c/w/b")
		p.reads(second, "+@c/w/a")
	}},
	{"an undeclared watcher gets no more reports, and the next begins anew", func(p pair) {
		tok := p.token(p.to, "@c/u/old")
		p.token(p.to, "@c/u/new")
		d, w := p.watch(p.from, "@c/u/*")
		p.reads(d, "+@c/u/old", "+@c/u/new")
		w.Undeclare()
		tok.Undeclare()
		p.lists(p.from, "@c/u/*", "@c/u/new")
		next, _ := p.watch(p.from, "@c/u/*")
		if p.fromLacks.SharedTokens {
			rttest.Eventually(p.T, "the token", func() bool { return len(next.of("@c/u/new")) > 0 })
			if old := next.of("@c/u/old"); len(old) > 0 && !p.fromLacks.EndedTokens {
				p.Errorf("entries %v of a token that had ended", old)
			}
			return
		}
		p.reads(next, "+@c/u/new")
		p.reads(d, "+@c/u/old", "+@c/u/new")
	}},
	{"nobody's list comes at once", func(p pair) {
		began := time.Now()
		got, err := p.from.Tokens(p.Context(), "@c/none/*", rttest.Patience)
		if err != nil || len(got) != 0 || time.Since(began) > rttest.Patience/2 {
			p.Errorf("Tokens = %v, %v after %v, want nothing at once", got, err, time.Since(began))
		}
	}},
}
