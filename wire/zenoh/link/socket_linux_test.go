package link

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// Goal: a link whose bytes are not acknowledged ends long before the peer's lease is over. A link to a slow peer, or a
// link without unacknowledged bytes, does not end.
func TestUnconfirmedLinkEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		info unix.TCPInfo
		want error
	}{
		{"cut", unix.TCPInfo{Unacked: 1, Last_ack_recv: 60_000}, ErrUnconfirmed},
		{"all confirmed", unix.TCPInfo{Last_ack_recv: 60_000}, ErrExpired},
		{"no room at the peer", unix.TCPInfo{Unacked: 1, Probes: 1, Last_ack_recv: 60_000}, ErrExpired},
		{"confirmed a moment ago", unix.TCPInfo{Unacked: 1, Last_ack_recv: 10}, ErrExpired},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l := pipePair(t, config(1, codec.Client), config(2, codec.Peer))
				s := &l.in.stream
				s.lease, s.ackTimeout = 600*time.Millisecond, 300*time.Millisecond
				s.acks = ackMonitor{control: func(func(uintptr)) error { return nil }, info: tt.info}
				rttest.FailsAs(t, l.Run(ignore), tt.want)
			})
		})
	}
}

// Goal: the kernel reports how many bytes of a healthy connection are acknowledged.
func TestAckMonitor(t *testing.T) {
	l, _, _ := rawSession(t)
	p := &l.in.stream.acks
	rttest.Eventually(t, "the handshake to be confirmed", func() bool { return p.unackedFor() == 0 })
	if p.errno != 0 || p.info.Snd_mss == 0 {
		t.Errorf("errno %v, MSS %d", p.errno, p.info.Snd_mss)
	}
}
