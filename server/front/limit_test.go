package front_test

import (
	"net"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
)

// A connection beyond the limit is closed; the end of another one makes room.
func TestLimit(t *testing.T) {
	refused := make(chan net.Addr, 1)
	l := front.Limit(rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t), 1, func(from net.Addr) { refused <- from })
	t.Cleanup(func() { l.Close() })
	dial := func() net.Conn { return rttest.Must(net.Dial("tcp", l.Addr().String()))(t) }
	dial()
	one := rttest.Must(l.Accept())(t)
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
	two := dial()
	if from := <-refused; from.String() != two.LocalAddr().String() {
		t.Errorf("%v is refused, want %v", from, two.LocalAddr())
	}
	if _, err := two.Read(make([]byte, 1)); err == nil {
		t.Error("the refused connection is open")
	}
	one.Close()
	one.Close() // gives one place back
	three := dial()
	if c := <-accepted; c.RemoteAddr().String() != three.LocalAddr().String() {
		t.Errorf("%v is accepted, want %v", c.RemoteAddr(), three.LocalAddr())
	}
}
