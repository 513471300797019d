package zenoh

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// Goal: a listener answers a client's interests as official publishers, queriers and liveliness subscribers require. It
// sends the existing declarations with the interest's number, then the message that ends them, and later changes
// without the number. It sends nothing twice.
func TestInterestsAreAnswered(t *testing.T) {
	victim, at := listener(t, Config{})
	sub := func(key string) wire.Declaration {
		return rttest.Must(victim.Subscribe(key, nil))(t)
	}
	first := sub("@n/a/1")
	second := sub("@n/a/2")
	sub("@elsewhere")
	a := mustAttack(t, at)
	ask := func(mode codec.Mode, about uint8, key string) []codec.Declare {
		t.Helper()
		a.send(codec.Interest{
			ID: 5, Mode: mode, About: about, Restricted: key != "", Expr: codec.Key(key)})
		return a.declarations(func(d codec.Declare) bool { return d.Kind == codec.DeclareFinal && d.Interest == 5 })
	}
	if got := ask(codec.InterestCurrent, codec.AboutSubscribers, "@n/**"); len(got) != 2 || got[0].ID != 0 ||
		!got[0].Answers || got[0].Interest != 5 {
		t.Errorf("current: %+v, want two answers with id 0", got)
	}
	rttest.Want(t, len(ask(codec.InterestCurrent, codec.AboutSubscribers, "")), 3, "unrestricted")
	rttest.Want(t, len(ask(codec.InterestCurrent, codec.AboutQueryables|codec.AboutTokens, "@n/**")), 0,
		"answers of other kinds")
	got := ask(codec.InterestCurrentFuture, codec.AboutSubscribers|codec.AboutAggregate, "@n/**")
	if len(got) != 1 || got[0].ID == 0 {
		t.Fatalf("aggregate: %+v, want one answer with an id", got)
	}
	third := sub("@n/a/3")
	for _, s := range []wire.Declaration{first, third} {
		s.Undeclare()
	}
	second.Undeclare()
	rttest.Want(t, len(a.declarations(func(d codec.Declare) bool { return d.Kind == codec.UndeclareSubscriber })), 0,
		"ends of an aggregate that were sent before its last subscriber ended")
	a.send(codec.Interest{ID: 5, Mode: codec.InterestFinal})
	rttest.Want(t, len(ask(codec.InterestCurrentFuture, codec.AboutSubscribers, "@n/**")), 0, "after all are gone")
	sub("@n/a/4").Undeclare()
	got = a.declarations(func(d codec.Declare) bool { return d.Kind == codec.UndeclareSubscriber })
	if len(got) != 1 || got[0].Answers || got[0].Kind != codec.DeclareSubscriber {
		t.Errorf("a later one: %+v, want one declaration without a number", got)
	}
}

// declarations returns the victim's declarations before the first one for which the function last returns true.
func (a *attacker) declarations(last func(codec.Declare) bool) []codec.Declare {
	a.t.Helper()
	var all []codec.Declare
	a.await(func(m codec.Message) bool {
		if m.Kind != codec.KindDeclare {
			return false
		}
		over := last(m.Declare)
		if !over {
			all = append(all, m.Declare)
		}
		return over
	})
	return all
}

// Goal: a watcher that requested only changes gets the end of an older token once, with its key, as
// an official router sends it. It gets the end of a later token as usual.
func TestTheEndOfATokenThatWasThereBefore(t *testing.T) {
	victim, at := listener(t, Config{})
	before := rttest.Must(victim.Token("@b/old"))(t)
	a := mustAttack(t, at)
	for id, key := range []string{"@b/*", "@b/old"} { // two watchers of one client
		a.send(codec.Interest{
			ID:         uint32(id + 1),
			Mode:       codec.InterestFuture,
			About:      codec.AboutTokens,
			Restricted: true,
			Expr:       codec.Key(key),
		})
	}
	if got := a.declarations(func(d codec.Declare) bool {
		return d.Kind == codec.DeclareFinal && d.Interest == 2
	}); len(got) > 1 {
		t.Errorf("asked for changes alone: %+v, want nothing but the end of the answers", got)
	}
	before.Undeclare()
	later := rttest.Must(victim.Token("@b/new"))(t)
	got := a.declarations(func(d codec.Declare) bool { return d.Kind == codec.DeclareToken })
	if len(got) != 1 || got[0].Kind != codec.UndeclareToken || string(got[0].Expr.Suffix) != "@b/old" {
		t.Errorf("the end of the token: %+v, want it once, with its key", got)
	}
	later.Undeclare()
	last := a.declarations(func(d codec.Declare) bool {
		return d.Kind == codec.UndeclareToken && len(d.Expr.Suffix) == 0
	})
	rttest.Want(t, len(last), 0, "the end of a later one: %+v before its number", last)
}
