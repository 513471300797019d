package zenoh

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// Goal: a key that several nodes hold appears once and vanishes with the last holder.
func TestSharedTokenVanishesWithTheLast(t *testing.T) {
	server, at := listener(t, Config{})
	var seen presence
	if _, err := server.SubscribeTokens("@h/*", seen.deposit); err != nil {
		t.Fatal(err)
	}
	a, b := mustOpen(t, Config{Connect: []string{at}}), mustOpen(t, Config{Connect: []string{at}})
	var own wire.Declaration
	for _, s := range []*Session{a, b, server} {
		var err error
		if own, err = s.Token("@h/shared"); err != nil {
			t.Fatal(err)
		}
	}
	rttest.Eventually(t, "the clients' tokens", func() bool { return server.router.Held().Tokens == 2 })
	mark, err := a.Token("@h/mark")
	if err != nil {
		t.Fatal(err)
	}
	want := func(all ...string) {
		t.Helper()
		rttest.Eventually(t, "reports", func() bool { return slices.Equal(seen.seen(), all) })
	}
	want("+@h/shared", "+@h/mark")
	mark.Undeclare()
	a.Close()
	want("+@h/shared", "+@h/mark", "-@h/mark")
	own.Undeclare()
	b.Close()
	want("+@h/shared", "+@h/mark", "-@h/mark", "-@h/shared")
}

// Goal: tokens that an upstream no longer reports, because the watcher is gone, are forgotten and
// not shown to the next watcher.
func TestForgottenTokensDoNotComeBack(t *testing.T) {
	server, at := listener(t, Config{})
	token, err := server.Token("@w/old")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Token("@w/new"); err != nil {
		t.Fatal(err)
	}
	edge := mustOpen(t, Config{Connect: []string{at}})
	var first, second presence
	w, err := edge.SubscribeTokens("@w/*", first.deposit)
	if err != nil {
		t.Fatal(err)
	}
	rttest.Eventually(t, "both tokens", func() bool { return len(first.seen()) == 2 })
	w.Undeclare()
	edge.mu.Lock()
	if n := edge.tree(codec.DeclareToken).Len() + len(edge.tokens.byID); n != 0 {
		t.Errorf("%d tokens are still held for nobody", n)
	}
	edge.mu.Unlock()
	token.Undeclare()
	rttest.Eventually(t, "the list without it", func() bool {
		keys, err := edge.Tokens(context.Background(), "@w/*", time.Second)
		return err == nil && slices.Equal(keys, []string{"@w/new"})
	})
	if _, err := edge.SubscribeTokens("@w/*", second.deposit); err != nil {
		t.Fatal(err)
	}
	rttest.Eventually(t, "the remaining token", func() bool { return slices.Equal(second.seen(), []string{"+@w/new"}) })
	if n := len(first.seen()); n != 2 {
		t.Errorf("an undeclared watcher got %d reports, want the 2 from before", n)
	}
}

// Goal: a client's interests are answered as the official publishers, queriers and liveliness
// subscribers expect: the existing declarations with the interest's number, their end, later
// changes without the number, and nothing twice.
func TestInterestsAreAnswered(t *testing.T) {
	victim, at := listener(t, Config{})
	sub := func(key string) *subscriber {
		d, err := victim.Subscribe(key, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d.(*subscriber)
	}
	first := sub("@n/a/1")
	second := sub("@n/a/2")
	sub("@elsewhere")
	a := mustAttack(t, at)
	ask := func(mode codec.Mode, about uint8, key string) []codec.Declare {
		t.Helper()
		a.send(codec.Message{Kind: codec.KindInterest, Interest: codec.Interest{
			ID: 5, Mode: mode, About: about, Restricted: key != "", Expr: codec.Key([]byte(key))}})
		return a.declarations(func(d codec.Declare) bool { return d.Kind == codec.DeclareFinal && d.Interest == 5 })
	}
	if got := ask(codec.InterestCurrent, codec.AboutSubscribers, "@n/**"); len(got) != 2 || got[0].ID != 0 ||
		!got[0].Answers || got[0].Interest != 5 {
		t.Errorf("current: %+v, want two answers with id 0", got)
	}
	if got := ask(codec.InterestCurrent, codec.AboutSubscribers, ""); len(got) != 3 {
		t.Errorf("unrestricted: %+v, want three answers", got)
	}
	if got := ask(codec.InterestCurrent, codec.AboutQueryables|codec.AboutTokens, "@n/**"); len(got) != 0 {
		t.Errorf("of other kinds: %+v, want none", got)
	}
	got := ask(codec.InterestCurrentFuture, codec.AboutSubscribers|codec.AboutAggregate, "@n/**")
	if len(got) != 1 || got[0].ID == 0 {
		t.Fatalf("aggregate: %+v, want one answer with an id", got)
	}
	third := sub("@n/a/3")
	for _, s := range []*subscriber{first, third} {
		s.Undeclare()
	}
	second.Undeclare()
	if got := a.declarations(func(d codec.Declare) bool { return d.Kind == codec.UndeclareSubscriber }); len(got) != 0 {
		t.Errorf("aggregate, three changes before the last goes: %+v, want none", got)
	}
	a.send(codec.Message{Kind: codec.KindInterest, Interest: codec.Interest{ID: 5, Mode: codec.InterestFinal}})
	if got := ask(codec.InterestCurrentFuture, codec.AboutSubscribers, "@n/**"); len(got) != 0 {
		t.Errorf("after all are gone: %+v, want none", got)
	}
	sub("@n/a/4").Undeclare()
	got = a.declarations(func(d codec.Declare) bool { return d.Kind == codec.UndeclareSubscriber })
	if len(got) != 1 || got[0].Answers || got[0].Kind != codec.DeclareSubscriber {
		t.Errorf("a later one: %+v, want one declaration without a number", got)
	}
}

// declarations returns the victim's declarations before the first for which last is true.
func (a *attacker) declarations(last func(codec.Declare) bool) []codec.Declare {
	a.t.Helper()
	var all []codec.Declare
	for {
		select {
		case m := <-a.said:
			if m.Kind != codec.KindDeclare {
				continue
			}
			if last(m.Declare) {
				return all
			}
			all = append(all, m.Declare)
		case <-time.After(5 * time.Second):
			a.t.Fatal("not declared within 5 s")
		}
	}
}

// Goal: a watcher that requested changes only gets the end of an older token once, under its key,
// as at an official router; and that of a later token as usual.
func TestTheEndOfATokenThatWasThereBefore(t *testing.T) {
	victim, at := listener(t, Config{})
	before, err := victim.Token("@b/old")
	if err != nil {
		t.Fatal(err)
	}
	a := mustAttack(t, at)
	for id, key := range []string{"@b/*", "@b/old"} { // two watchers of one client
		a.send(codec.Message{Kind: codec.KindInterest, Interest: codec.Interest{
			ID:         uint32(id + 1),
			Mode:       codec.InterestFuture,
			About:      codec.AboutTokens,
			Restricted: true,
			Expr:       codec.Key([]byte(key)),
		}})
	}
	if got := a.declarations(func(d codec.Declare) bool {
		return d.Kind == codec.DeclareFinal && d.Interest == 2
	}); len(got) > 1 {
		t.Errorf("asked for changes alone: %+v, want nothing but the end of the answers", got)
	}
	before.Undeclare()
	later, err := victim.Token("@b/new")
	if err != nil {
		t.Fatal(err)
	}
	got := a.declarations(func(d codec.Declare) bool { return d.Kind == codec.DeclareToken })
	if len(got) != 1 || got[0].Kind != codec.UndeclareToken || string(got[0].Expr.Suffix) != "@b/old" {
		t.Errorf("the end of the token: %+v, want it once, with its key", got)
	}
	later.Undeclare()
	last := a.declarations(func(d codec.Declare) bool {
		return d.Kind == codec.UndeclareToken && len(d.Expr.Suffix) == 0
	})
	if len(last) != 0 {
		t.Errorf("the end of a later one: %+v before its number, want none", last)
	}
}
