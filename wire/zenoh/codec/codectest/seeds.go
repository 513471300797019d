// Package codectest has network messages for the tests of the packages that
// receive them: wire/zenoh and wire/zenoh/router.
package codectest

import "github.com/edge-rt/edge-rt/wire/zenoh/codec"

// Seeds returns the seeds of fuzz tests: one encoded message of each kind that a remote node may send. Each call
// returns fresh slices.
func Seeds() (all [][]byte) {
	for _, part := range parts() {
		all = append(all, codec.AppendMessage(nil, part.Message()))
	}
	return all
}

// Push is the encoded sample among the Seeds.
func Push() []byte { return codec.AppendMessage(nil, sample.Message()) }

var sample = codec.Push{Expr: codec.Key("@t/1"), Data: codec.Data{Payload: []byte("x")}}

func parts() []codec.Part {
	expr := codec.Key("@t/1")
	wide := codec.Key("@t/**")
	return []codec.Part{
		codec.Declare{Kind: codec.DeclareToken, ID: 1, Expr: expr},
		codec.Declare{Kind: codec.UndeclareToken, ID: 1},
		codec.Declare{Kind: codec.DeclareSubscriber, ID: 1, Expr: wide},
		codec.Declare{
			Kind:     codec.DeclareQueryable,
			ID:       1,
			Expr:     expr,
			Complete: true,
			Distance: 3,
		},
		codec.Declare{Kind: codec.UndeclareQueryable, ID: 1},
		codec.Declare{Kind: codec.DeclareExpr, ID: 1,
			Expr: codec.Expr{Suffix: []byte("@t")}},
		codec.Declare{Kind: codec.DeclareSubscriber, ID: 2,
			Expr: codec.Expr{Scope: 1, Suffix: []byte("/1"), Sender: true}},
		codec.Declare{Kind: codec.DeclareFinal, Answers: true, Interest: 1},
		codec.Declare{Kind: codec.DeclareFinal, Answers: true},
		codec.Interest{
			ID:         1,
			Mode:       3,
			About:      0x8e,
			Restricted: true,
			Expr:       wide,
		},
		codec.Interest{ID: 2, Mode: 3, About: 0x0e},
		codec.Interest{ID: 1},
		sample,
		codec.Request{ID: 1, Expr: expr},
		codec.Request{ID: 2, Expr: wide, Target: codec.AllComplete},
		codec.Response{ID: 3, Expr: expr},
		codec.Final{ID: 3},
	}
}
