package listen

import (
	"fmt"
	"maps"
	"net"
	"time"
)

const (
	// paceInterval is the time between two connections of one host, on average over a long time.
	paceInterval = 50 * time.Millisecond
	maxPaced     = 1024 // hosts that are counted singly
	logInterval  = time.Minute
)

// Host returns a key of the machine at an address, under which its connections are counted. The key is the IPv4 address
// without the port, or the 64-bit network of an IPv6 address, because a machine may use any address in its network. It
// is empty for a unix socket.
func Host(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return ""
	}
	if ip := tcp.IP.To4(); ip != nil {
		return string(ip)
	}
	return string(tcp.IP.Mask(net.CIDRMask(64, 128)))
}

// paced is a listener that bounds the rate of each host's connections.
//
// Owner: one goroutine calls Accept.
type paced struct {
	net.Listener
	pace
	closed func(why error)
	logged time.Time // time of the last reason that closed got
}

// Pace returns l with at most one connection of each host per paceInterval, because the handshake of a connection takes
// CPU time. After a pause a host may open several connections at once, as many as the parameter burst. Pace closes
// further connections and calls closed, in Accept's goroutine, for each of them. The argument why is the reason for a
// log, but nil if closed got a reason less than logInterval ago.
func Pace(l net.Listener, burst int, closed func(why error)) net.Listener {
	return &paced{Listener: l, pace: newPace(burst), closed: closed}
}

// Accept implements net.Listener.
func (p *paced) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		now := time.Now()
		if err != nil || p.admit(Host(c.RemoteAddr()), now) {
			return c, err
		}
		c.Close()
		var why error
		if now.Sub(p.logged) >= logInterval {
			p.logged = now
			why = fmt.Errorf("%v: its address opens more than one connection each %v in the long run; further ones "+
				"are only counted", c.RemoteAddr(), paceInterval)
		}
		p.closed(why)
	}
}

// pace bounds the rate of the connections of each host.
type pace struct {
	window time.Duration        // paceInterval times the largest number of connections at once
	due    map[string]time.Time // by host: the time of its next connection if the host opened one every paceInterval
}

func newPace(burst int) pace {
	return pace{time.Duration(burst) * paceInterval, map[string]time.Time{}}
}

// admit reports whether a host's connection that arrives at the instant now may stay. If so, admit counts it.
func (p *pace) admit(host string, now time.Time) bool {
	if len(p.due) >= maxPaced && p.due[host].IsZero() {
		maps.DeleteFunc(p.due, func(_ string, due time.Time) bool { return now.Sub(due) >= p.window })
		if len(p.due) >= maxPaced {
			host = ""
		}
	}
	due := p.due[host]
	if now.Sub(due) > p.window {
		due = now.Add(-p.window)
	}
	if due.After(now) {
		return false
	}
	p.due[host] = due.Add(paceInterval)
	return true
}
