package listen

import (
	"net"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A server that listens on an IPv4 address must not answer on IPv6, because the firewall may have rules for IPv4 only.
func TestTCPIsOnTheAddressThatWasAskedFor(t *testing.T) {
	six := true
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		six = false
	} else {
		l.Close()
	}
	for _, tt := range []struct {
		address, network string
		onFour, onSix    bool
	}{
		{"0.0.0.0:0", "tcp4", true, false},
		{"127.0.0.1:0", "tcp4", true, false},
		{"[::ffff:127.0.0.1]:0", "tcp4", true, false},
		{"[::1]:0", "tcp", false, true},
		{"[::]:0", "tcp", true, true},
		{":0", "tcp", true, true},
		{"localhost:0", "tcp", true, false},
	} {
		rttest.Want(t, network(tt.address), tt.network, "Network(%s)", tt.address)
		if !six && strings.Contains(tt.address, "::") {
			continue
		}
		l, err := TCP(tt.address)
		if err != nil {
			t.Errorf("TCP(%s) = %v", tt.address, err)
			continue
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		reached := func(host string) bool {
			conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
			if err == nil {
				conn.Close()
			}
			return err == nil
		}
		rttest.Want(t, reached("127.0.0.1"), tt.onFour, "%s answers on 127.0.0.1", tt.address)
		if got := reached("::1"); six && got != tt.onSix {
			t.Errorf("%s answers on ::1: %v, want %v", tt.address, got, tt.onSix)
		}
		l.Close()
	}
}

func TestCureNamesTheCause(t *testing.T) {
	taken := rttest.Must(TCP("127.0.0.1:0"))(t)
	defer taken.Close()
	for _, tt := range []struct{ address, want string }{
		{taken.Addr().String(), "another program listens there, which ss -ltnp shows: end it, or choose another"},
		{"192.0.2.1:7447", "this machine has no such address"},
		{"no-such-host.invalid:7447", "no host has that name"},
	} {
		l, err := TCP(tt.address)
		if err == nil {
			l.Close()
			t.Errorf("TCP(%s) listens", tt.address)
			continue
		}
		if text := Explain(err, "choose another").Error(); !strings.Contains(text, tt.want) {
			t.Errorf("%s: %s, want %q", tt.address, text, tt.want)
		}
	}
}
