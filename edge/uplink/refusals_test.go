package uplink

import (
	"errors"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// Goal: only refusals in a row, at every endpoint, end a run, and only once.
func TestRefusals(t *testing.T) {
	no, old := &endpoint.AuthError{Err: errors.New("no")}, &endpoint.AuthError{Err: errors.New("old"), Dated: true}
	a := func(err error) zenoh.LinkEvent { return zenoh.LinkEvent{Endpoint: "a", Err: err} }
	b := func(err error) zenoh.LinkEvent { return zenoh.LinkEvent{Endpoint: "b", Err: err} }
	up := zenoh.LinkEvent{Endpoint: "a", Up: true}
	for _, tt := range []struct {
		name      string
		endpoints int
		events    []zenoh.LinkEvent
		final     bool
	}{
		{"three", 1, []zenoh.LinkEvent{a(no), a(no), a(no), a(no)}, true},
		{"two", 1, []zenoh.LinkEvent{a(no), a(no)}, false},
		{"a link between them", 1, []zenoh.LinkEvent{a(no), a(no), up, a(no), a(no)}, false},
		{"another failure", 1, []zenoh.LinkEvent{a(no), a(no), a(errors.New("gone")), a(no)}, false},
		{"a certificate of another time", 1, []zenoh.LinkEvent{a(old), a(old), a(old), a(old)}, false},
		{"one of two endpoints", 2, []zenoh.LinkEvent{a(no), a(no), a(no), b(errors.New("gone"))}, false},
		{"both", 2, []zenoh.LinkEvent{a(no), b(no), a(no), b(no), a(no), b(no)}, true},
	} {
		calls := 0
		r := NewRefusals(tt.endpoints, func() { calls++ })
		for _, e := range tt.events {
			r.Note(e)
		}
		if (r.Err() != nil) != tt.final || (calls == 1) != tt.final || tt.final && exit.Of(r.Err()) != exit.Config {
			t.Errorf("%s: %v after %d calls, want an end: %v", tt.name, r.Err(), calls, tt.final)
		}
	}
}
