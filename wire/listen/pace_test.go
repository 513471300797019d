package listen

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: a host may open a burst again after a pause, hosts do not share their pace, and the number of counted hosts is
// bounded.
func TestPace(t *testing.T) {
	const atOnce = 5
	p := newPace(atOnce)
	now := time.Now()
	admitted := func(host string) (n int) {
		for p.admit(host, now) {
			n++
		}
		return n
	}
	rttest.Want(t, admitted("a"), atOnce+1, "connections at once")
	rttest.Want(t, admitted("b"), atOnce+1, "connections of another host")
	now = now.Add(2 * paceInterval)
	rttest.Want(t, admitted("a"), 2, "connections after a short pause")
	now = now.Add(time.Hour)
	rttest.Want(t, admitted("a"), atOnce+1, "connections after a long pause")
	for i := range 2 * maxPaced {
		p.admit(fmt.Sprint(i), now)
	}
	rttest.Want(t, len(p.due), maxPaced+1, "hosts")
	rttest.Want(t, admitted("a new one")+admitted("another"), 0, "connections of further hosts")
	now = now.Add(time.Hour)
	rttest.Want(t, admitted("a new one"), atOnce+1, "connections of a further host after a pause")
}

func TestHost(t *testing.T) {
	at := func(s string) string { return Host(&net.TCPAddr{IP: net.ParseIP(s), Port: 7447}) }
	if at("10.0.0.1") == at("10.0.0.2") || at("10.0.0.1") != at("::ffff:10.0.0.1") {
		t.Error("each IPv4 address is a host")
	}
	if at("2001:db8::1") != at("2001:db8::f00d:1") || at("2001:db8::1") == at("2001:db8:0:1::1") {
		t.Error("each IPv6 network of 64 bits is a host")
	}
	if Host(&net.UnixAddr{Name: "/run/x"}) != "" || Host(nil) != "" {
		t.Error("a unix socket is of no host")
	}
}
