package listen

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func limit(t *testing.T, most int) (l net.Listener, closed chan string) {
	closed = make(chan string, 9)
	l = Limit(rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t), most, func(from net.Addr) {
		closed <- from.String()
	})
	t.Cleanup(func() { l.Close() })
	return l, closed
}

// A connection beyond the limit takes the place of the oldest connection that is not kept. If all are kept, the new
// connection is closed. The end of a connection makes room for another.
func TestLimit(t *testing.T) {
	l, closed := limit(t, 2)
	dial := func() (client, served net.Conn) {
		client = rttest.Must(net.Dial("tcp", l.Addr().String()))(t)
		return client, rttest.Must(l.Accept())(t)
	}
	keep := func(c net.Conn) { Keep(ConnContext(context.Background(), c)) }
	_, first := dial()
	two, _ := dial()
	keep(first)
	_, third := dial()
	rttest.Want(t, <-closed, two.LocalAddr().String(), "closed, the oldest that is not kept")
	rttest.Fails(t, rttest.Err(two.Read(make([]byte, 1))))
	keep(third)
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	four := rttest.Must(net.Dial("tcp", l.Addr().String()))(t)
	rttest.Want(t, <-closed, four.LocalAddr().String(), "closed while all others are kept")
	first.Close()
	first.Close() // gives one place back
	five := rttest.Must(net.Dial("tcp", l.Addr().String()))(t)
	rttest.Want(t, (<-accepted).RemoteAddr().String(), five.LocalAddr().String(), "accepted")
}

// A host that opens many connections takes the places of its own connections, not those of another host.
func TestLimitOfHosts(t *testing.T) {
	l, closed := limit(t, 3)
	for i, host := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.3", "127.0.0.3"} {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		c := rttest.Must(from.Dial("tcp", l.Addr().String()))(t)
		rttest.Must(l.Accept())(t)
		if i < 3 {
			continue
		}
		if lost := <-closed; !strings.HasPrefix(lost, "127.0.0.3:") || lost == c.LocalAddr().String() {
			t.Errorf("connection %d closes %s", i, lost)
		}
	}
}
