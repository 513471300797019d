package sessiontest

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

var life = []testCase{
	{"after the links were cut everything is declared again", func(p pair) {
		if p.cut == nil {
			p.Skip("this network cannot cut its links")
		}
		var got Basket
		p.to.subscribe("@c/re/s", got.Deposit)
		p.to.queryable("@c/re/q", replier("@c/re/q", "yes"))
		p.to.token("@c/re/t")
		d, _ := p.from.watch("@c/re/*")
		pub := p.matched(p.from, "@c/re/s", blocking)
		works := func() {
			p.Helper()
			before := got.Count()
			rttest.Eventually(p.T, "a sample", func() bool { pub.Put(nil, nil); return got.Count() > before })
			rttest.Eventually(p.T, "a reply", func() bool {
				r, err := p.from.Get(p.Context(), "@c/re/q", nil, time.Second)
				return err == nil && slices.Equal(texts(r), []string{"yes"})
			})
			rttest.Eventually(p.T, "the token", func() bool { all := d.of("@c/re/t"); return len(all)%2 == 1 })
		}
		works()
		for range 2 {
			before := len(d.of("@c/re/t"))
			var last time.Time
			rttest.Eventually(p.T, "the token to vanish and come back", func() bool {
				// If the new link is there before the other end has removed the old one, the token does not vanish.
				if time.Since(last) > 5*time.Second {
					p.cut()
					last = time.Now()
				}
				return len(d.of("@c/re/t")) >= before+2
			})
			works()
		}
		for i, e := range d.of("@c/re/t") {
			if want := "+-"[i%2 : i%2+1]; e[:1] != want {
				p.Errorf("entry %d is %s, want a %s", i, e, want)
			}
		}
		// With two declarations of the same subscription, each gets each sample once.
		got.settled()
		before := got.Count()
		rttest.PanicOn(pub.Put([]byte("once"), nil))
		got.await(p, before+1)
		if n := got.settled() - before; n != 1 {
			p.Errorf("one sample came %d times", n)
		}
	}},
	{"a closed session's tokens vanish and its objects are gone", func(p pair) {
		p.to.token("@c/close/t")
		p.to.subscribe("@c/close/s", func(wire.Sample) {})
		p.to.queryable("@c/close/q", replier("@c/close/q", "here"))
		d, _ := p.from.watch("@c/close/*")
		p.from.reached("@c/close/q", 1)
		d.reads("+@c/close/t")
		rttest.Do(p, p.to.Close())
		d.reads("+@c/close/t", "-@c/close/t")
		r, err := p.from.Get(p.Context(), "@c/close/q", nil, rttest.Patience)
		if len(r) != 0 || err != nil && !errors.Is(err, wire.ErrDisconnected) {
			p.Errorf("Get = %v, %v, want nothing", texts(r), err)
		}
	}},
	{"a closed session refuses", func(p pair) {
		pub := p.from.publisher("@c/shut", blocking)
		sub := p.from.subscribe("@c/shut", func(wire.Sample) {})
		rttest.Eventually(p.T, "the link to show", p.from.Connected)
		rttest.Do(p, p.from.Close())
		if p.from.Connected() {
			p.Error("Connected after Close")
		}
		after := declareErrors(p.from, "@c/x")
		after["SubscribeTokens"] = errorOf(p.from.SubscribeTokens("@c/x", func(string, bool) {}))
		after["Get"] = errorOf(p.from.Get(p.Context(), "@c/x", nil, time.Second))
		after["Tokens"] = errorOf(p.from.Tokens(p.Context(), "@c/x", time.Second))
		after["Put"] = pub.Put(nil, nil)
		after["PutLatest"] = errorOf(pub.PutLatest(nil, nil))
		after["a second Close"] = p.from.Close()
		for name, err := range after {
			if !errors.Is(err, wire.ErrClosed) {
				p.Errorf("%s after Close = %v, want %v", name, err, wire.ErrClosed)
			}
		}
		if err := sub.Undeclare(); err != nil && !errors.Is(err, wire.ErrClosed) {
			p.Errorf("Undeclare after Close = %v", err)
		}
	}},
	{"Close ends a question that waits", func(p pair) {
		asked := make(chan struct{}, 100)
		p.to.queryable("@c/wait", func(wire.Query) { asked <- struct{}{} })
		done := make(chan struct{})
		rttest.Eventually(p.T, "a link", p.from.Connected) // a watcher may notice the link a little later
		go func() {
			defer close(done)
			for p.from.Connected() { // other sessions may not be known at the first attempt
				p.from.Get(p.Context(), "@c/wait", nil, rttest.Patience)
			}
		}()
		rttest.Eventually(p.T, "the question", func() bool { return len(asked) > 0 })
		p.from.Close()
		select {
		case <-done:
		case <-time.After(rttest.Patience / 2):
			p.Errorf("Get still waits %v after Close", rttest.Patience/2)
		}
	}},
	{"no callback runs after Undeclare has returned", func(p pair) {
		pub := p.from.publisher("@c/after", wire.QoS{Reliable: true})
		var stop atomic.Bool
		defer stop.Store(true)
		go func() {
			for !stop.Load() {
				pub.Put(nil, nil)
				time.Sleep(20 * time.Microsecond)
			}
		}()
		for range 20 {
			over := false // read and written only while no callback can run
			n := 0
			heard := make(chan struct{}, 1)
			sub := p.to.subscribe("@c/after", func(wire.Sample) {
				if over {
					panic("a callback after Undeclare")
				}
				if n++; n == 1 {
					heard <- struct{}{}
				}
			})
			<-heard
			sub.Undeclare()
			over = true
		}
	}},
}
