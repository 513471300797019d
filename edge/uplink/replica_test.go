package uplink

import (
	"fmt"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

func says(id string, change func(*wire.Status)) wire.Status {
	s := wire.Status{ServerID: id, MaxSessions: 4}
	s.ModelSHA256 = "ab12"
	if change != nil {
		change(&s)
	}
	return s
}

func TestRank(t *testing.T) {
	load := func(n int) func(*wire.Status) {
		return func(s *wire.Status) { s.ActiveSessions, s.ServerLoad = n, float64(n)/4 }
	}
	for _, tt := range []struct {
		name  string
		said  []wire.Status
		model string
		want  string
	}{
		{"nobody", nil, "", ""},
		{"the least load", []wire.Status{says("a", load(3)), says("b", load(1)), says("c", load(2))}, "", "b c a"},
		{"a full one is asked last", []wire.Status{says("a", load(4)), says("b", load(3))}, "", "b a"},
		{"the one with a policy that has run first", []wire.Status{says("a", nil), says("b", func(s *wire.Status) {
			s.WarmedUp, s.ServerLoad = true, 0.5
		})}, "", "b a"},
		{"who drains is not asked", []wire.Status{says("a", func(s *wire.Status) {
			s.Draining = true
		}), says("b", load(3))}, "", "b"},
		{"who is gone is not asked", []wire.Status{says("gone", nil), says("b", load(3))}, "", "b"},
		{"the same bundle first", []wire.Status{says("a", func(s *wire.Status) {
			s.ModelSHA256 = "cd"
		}), says("b", load(4))}, "ab", "b a"},
		{"who cannot be named comes last, once", []wire.Status{says("", nil), says("b", load(4)), says("", nil)}, "",
			"b "},
	} {
		var got []string
		for _, s := range rank(tt.said, tt.model, "arm", func(id string) bool { return id == "gone" }) {
			got = append(got, s.ServerID)
		}
		rttest.Want(t, strings.Join(got, " "), tt.want, "%s", tt.name)
	}
	first := map[string]int{}
	for i := range 300 {
		all := []wire.Status{says("a", nil), says("b", nil), says("c", func(s *wire.Status) {
			s.ServerLoad = loadStep / 2
		})}
		first[rank(all, "", fmt.Sprint("arm-", i), func(string) bool { return false })[0].ServerID]++
	}
	if first["a"] < 60 || first["b"] < 60 || first["c"] < 60 {
		t.Errorf("300 robots at once go to %v, want a third to each", first)
	}
}

func TestServers(t *testing.T) {
	var s servers
	want := func(when string, state tokenState) {
		t.Helper()
		rttest.Want(t, s.state("a"), state, "%s", when)
	}
	want("before", unseen)
	s.set("a", true)
	want("it came", alive)
	s.set("a", false)
	s.set("a", true)
	want("it went and is back", gone)
	s.begin()
	want("it is back, and a handshake begins", alive)
	s.set("a", false)
	s.begin()
	want("a handshake begins without it", gone)
	s.set("a", true)
	want("it comes during the handshake", alive) // this happens after a router's restart
	s.set("a", false)
	s.set("b", true)
	s.leave()
	s.set("c", true)
	if s.beside("a") || !s.beside("b") || s.beside("c") || s.beside("nobody") {
		t.Error("who was there when the session ended: want b alone")
	}
	s.set("b", false)
	s.set("c", false)
	for i := range 2 * maxServers {
		s.set(fmt.Sprint(i), true)
	}
	if n := len(s.seen); n != maxServers || s.state("0") != alive {
		t.Errorf("%d servers are remembered, want %d, the first among them", n, maxServers)
	}
	want("forgotten for others", unseen)
}
