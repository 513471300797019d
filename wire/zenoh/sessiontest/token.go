package sessiontest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
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

// diary records the declarations and ends of tokens that a subscriber sees in a test.
type diary struct {
	Diary
	t *testing.T
}

func (e end) watch(expr string) (*diary, wire.Declaration) {
	d := &diary{t: e.t}
	return d, rttest.OrPanic(e.SubscribeTokens(expr, d.Deposit))
}

// reads waits until the diary has exactly the entries want, in any order.
func (d *diary) reads(want ...string) {
	d.t.Helper()
	slices.Sort(want)
	var got []string
	defer func() {
		if !slices.Equal(got, want) {
			d.t.Logf("it has %v", got)
		}
	}()
	rttest.Eventually(d.t, fmt.Sprint("the entries ", want), func() bool {
		got = slices.Sorted(slices.Values(d.Entries()))
		return slices.Equal(got, want)
	})
}

// lists waits until Tokens returns exactly these keys.
func (e end) lists(expr string, want ...string) {
	e.t.Helper()
	rttest.Eventually(e.t, fmt.Sprint("the list ", want), func() bool {
		got, err := e.Tokens(e.t.Context(), expr, rttest.Patience)
		return err == nil && slices.Equal(got, want)
	})
}

var tokens = []testCase{
	{"tokens that are there come first, then what changes", func(p pair) {
		first := p.to.token("@c/l/first")
		p.to.token("@c/l/second")
		p.from.lists("@c/l/*", "@c/l/first", "@c/l/second")
		d, _ := p.from.watch("@c/l/**")
		d.reads("+@c/l/first", "+@c/l/second")
		third := p.to.token("@c/l/x/third")
		d.reads("+@c/l/first", "+@c/l/second", "+@c/l/x/third")
		rttest.Do(p, first.Undeclare())
		d.reads("+@c/l/first", "+@c/l/second", "+@c/l/x/third", "-@c/l/first")
		third.Undeclare()
		d.reads("+@c/l/first", "+@c/l/second", "+@c/l/x/third", "-@c/l/first", "-@c/l/x/third")
		p.from.lists("@c/l/**", "@c/l/second")
	}},
	{"a watcher before its tokens sees them come and go", func(p pair) {
		d, _ := p.from.watch("@c/e/*")
		for i := range 3 {
			tok := p.to.token("@c/e/a")
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
		d, _ := p.from.watch("@c/s/*")
		other, _ := p.to.watch("@c/s/*")
		a := p.to.token("@c/s/k")
		b := p.to.token("@c/s/k")
		c := p.from.token("@c/s/k")
		// This token arrives after the earlier tokens, so then each end has the other end's tokens.
		p.to.token("@c/s/ready")
		p.from.token("@c/s/ready2")
		d.reads("+@c/s/k", "+@c/s/ready", "+@c/s/ready2")
		other.reads("+@c/s/k", "+@c/s/ready", "+@c/s/ready2")
		a.Undeclare()
		c.Undeclare()
		p.to.token("@c/s/mark")
		p.from.token("@c/s/mark2")
		all := []string{"+@c/s/k", "+@c/s/ready", "+@c/s/ready2", "+@c/s/mark", "+@c/s/mark2"}
		both := func() {
			p.Helper()
			if !p.from.SharedTokens {
				d.reads(all...)
			}
			if !p.to.SharedTokens {
				other.reads(all...)
			}
		}
		both()
		b.Undeclare()
		all = append(all, "-@c/s/k")
		both()
	}},
	{"a session sees its own tokens", func(p pair) {
		d, _ := p.from.watch("@c/o/*")
		tok := p.from.token("@c/o/own")
		if p.from.SharedTokens {
			rttest.Eventually(p.T, "the own token", func() bool { return len(d.Entries()) > 0 })
		} else {
			d.reads("+@c/o/own")
		}
		p.from.lists("@c/o/*", "@c/o/own")
		p.to.lists("@c/o/*", "@c/o/own")
		tok.Undeclare()
		if p.from.SharedTokens {
			rttest.Eventually(p.T, "its end", func() bool { return slices.Contains(d.Entries(), "-@c/o/own") })
		} else {
			d.reads("+@c/o/own", "-@c/o/own")
		}
		p.from.lists("@c/o/*")
		p.to.lists("@c/o/*")
	}},
	{"wildcards match tokens, except for verbatim chunks", func(p pair) {
		for _, key := range []string{"c/k/a", "c/k/a/b", "c/k/@v", "c/k/@v/b"} {
			p.to.token(key)
		}
		p.from.lists("c/k/*", "c/k/a")
		p.from.lists("c/k/**", "c/k/a", "c/k/a/b")
		p.from.lists("c/k/@v/**", "c/k/@v", "c/k/@v/b")
		p.from.lists("c/k/a$*", "c/k/a")
		d, _ := p.from.watch("c/**/b")
		d.reads("+c/k/a/b")
		e, _ := p.from.watch("c/k/@v")
		e.reads("+c/k/@v")
	}},
	{"several watchers each see every token", func(p pair) {
		p.to.token("@c/w/a")
		p.from.lists("@c/w/*", "@c/w/a")
		first, _ := p.from.watch("@c/w/*")
		second, w := p.from.watch("@c/w/a")
		first.reads("+@c/w/a")
		second.reads("+@c/w/a")
		third, _ := p.from.watch("@c/w/**")
		third.reads("+@c/w/a")
		w.Undeclare()
		p.to.token("@c/w/b")
		first.reads("+@c/w/a", "+@c/w/b")
		third.reads("+@c/w/a", "+@c/w/b")
		second.reads("+@c/w/a")
	}},
	{"an undeclared watcher gets no more reports, and the next begins anew", func(p pair) {
		tok := p.to.token("@c/u/old")
		p.to.token("@c/u/new")
		d, w := p.from.watch("@c/u/*")
		d.reads("+@c/u/old", "+@c/u/new")
		w.Undeclare()
		tok.Undeclare()
		p.from.lists("@c/u/*", "@c/u/new")
		next, _ := p.from.watch("@c/u/*")
		if p.from.SharedTokens {
			rttest.Eventually(p.T, "the token", func() bool { return len(next.of("@c/u/new")) > 0 })
			if old := next.of("@c/u/old"); len(old) > 0 && !p.from.EndedTokens {
				p.Errorf("entries %v of a token that had ended", old)
			}
			return
		}
		next.reads("+@c/u/new")
		d.reads("+@c/u/old", "+@c/u/new")
	}},
	{"nobody's list comes at once", func(p pair) {
		began := time.Now()
		got, err := p.from.Tokens(p.Context(), "@c/none/*", rttest.Patience)
		if err != nil || len(got) != 0 || time.Since(began) > rttest.Patience/2 {
			p.Errorf("Tokens = %v, %v after %v, want nothing at once", got, err, time.Since(began))
		}
	}},
}
