// Package codectest has network messages for the tests of the packages that
// receive them: wire/zenoh and wire/zenoh/router.
package codectest

import "github.com/edge-rt/edge-rt/wire/zenoh/codec"

// Seeds returns one encoded message of each kind, as a remote node may send it, as seeds of fuzz
// tests. Each call returns fresh slices.
func Seeds() (all [][]byte) {
	for _, m := range messages() {
		all = append(all, codec.AppendMessage(nil, &m))
	}
	return all
}

// Push is the encoded sample among the Seeds.
func Push() []byte {
	for _, m := range messages() {
		if m.Kind == codec.KindPush {
			return codec.AppendMessage(nil, &m)
		}
	}
	panic("codectest: no sample among the seeds")
}

func messages() []codec.Message {
	expr := codec.Key([]byte("@t/1"))
	wide := codec.Key([]byte("@t/**"))
	return []codec.Message{
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareToken, ID: 1, Expr: expr}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.UndeclareToken, ID: 1}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareSubscriber, ID: 1, Expr: wide}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{
			Kind:     codec.DeclareQueryable,
			ID:       1,
			Expr:     expr,
			Complete: true,
			Distance: 3,
		}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.UndeclareQueryable, ID: 1}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareExpr, ID: 1,
			Expr: codec.Expr{Suffix: []byte("@t")}}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareSubscriber, ID: 2,
			Expr: codec.Expr{Scope: 1, Suffix: []byte("/1"), Sender: true}}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareFinal, Answers: true, Interest: 1}},
		{Kind: codec.KindDeclare, Declare: codec.Declare{Kind: codec.DeclareFinal, Answers: true}},
		{Kind: codec.KindInterest, Interest: codec.Interest{
			ID:         1,
			Mode:       3,
			About:      0x8e,
			Restricted: true,
			Expr:       wide,
		}},
		{Kind: codec.KindInterest, Interest: codec.Interest{ID: 2, Mode: 3, About: 0x0e}},
		{Kind: codec.KindInterest, Interest: codec.Interest{ID: 1}},
		{Kind: codec.KindPush, Push: codec.Push{Expr: expr, Data: codec.Data{Payload: []byte("x")}}},
		{Kind: codec.KindRequest, Request: codec.Request{ID: 1, Expr: expr}},
		{Kind: codec.KindRequest, Request: codec.Request{ID: 2, Expr: wide, Target: codec.AllComplete}},
		{Kind: codec.KindResponse, Response: codec.Response{ID: 3, Expr: expr}},
		{Kind: codec.KindFinal, Final: codec.Final{ID: 3}},
	}
}
