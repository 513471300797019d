package stage

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The bytes of a cut direction arrive once it is no longer cut. An unplugged cable ends all
// connections and refuses new connections.
func TestProxy(t *testing.T) {
	l := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c) // an echo
		}
	}()
	p := rttest.Must(OpenProxy("tcp/" + l.Addr().String()))(t)
	defer p.Close()
	dial := func() (net.Conn, error) { return net.Dial("tcp", strings.TrimPrefix(p.Endpoint, "tcp/")) }
	c := rttest.Must(dial())(t)
	defer c.Close()
	comes := func(limit time.Duration) bool {
		c.SetReadDeadline(time.Now().Add(limit))
		_, err := io.ReadFull(c, make([]byte, 1))
		return err == nil
	}
	for _, cut := range []Cable{Whole, CutUp, CutDown, CutUp | CutDown} {
		p.Set(cut)
		c.Write([]byte("x"))
		if cut != Whole && comes(100*time.Millisecond) {
			t.Errorf("a byte passes the cable in state %d", cut)
		}
		if p.Set(Whole); !comes(5 * time.Second) {
			t.Errorf("the byte is lost after state %d", cut)
		}
	}
	p.Set(Unplugged)
	if c.SetReadDeadline(time.Now().Add(5 * time.Second)); !strings.Contains(read(c), "EOF") {
		t.Error("an unplugged cable holds its connection")
	}
	if again, err := dial(); err == nil {
		again.Close()
		t.Error("an unplugged cable takes a connection")
	}
	rttest.Do(t, p.Set(Whole))
	c = rttest.Must(dial())(t)
	if c.Write([]byte("x")); !comes(5 * time.Second) {
		t.Error("a cable that is plugged in again passes nothing")
	}
}

func read(c net.Conn) string {
	_, err := c.Read(make([]byte, 1))
	if err == nil {
		return "a byte"
	}
	return err.Error()
}
