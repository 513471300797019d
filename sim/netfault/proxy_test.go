package netfault

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// echoed dials an echo through a proxy and returns the proxy and the connection.
func echoed(t *testing.T) (*Proxy, net.Conn) {
	t.Helper()
	l := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	p := rttest.Must(NewProxy("tcp/" + l.Addr().String()))(t)
	t.Cleanup(p.Close)
	conn := rttest.Must(net.Dial("tcp", p.Endpoint()[len("tcp/"):]))(t)
	t.Cleanup(func() { conn.Close() })
	return p, conn
}

func TestProxyPassesWhole(t *testing.T) {
	p, conn := echoed(t)
	p.Delay(2 * time.Millisecond)
	want := make([]byte, 300_000)
	for i := range want {
		want[i] = byte(i >> 3)
	}
	go conn.Write(want)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, equal %v", err, bytes.Equal(got, want))
	}
}

// The bytes of a cut direction arrive once the cable is whole again.
func TestProxyCuts(t *testing.T) {
	p, conn := echoed(t)
	trip := func() time.Duration {
		began := time.Now()
		conn.Write([]byte("x"))
		io.ReadFull(conn, make([]byte, 1))
		return time.Since(began)
	}
	trip()
	for _, cut := range []Cable{CutUp, CutDown, CutUp | CutDown} {
		p.Set(cut)
		time.AfterFunc(100*time.Millisecond, func() { p.Set(Whole) })
		if d := trip(); d < 90*time.Millisecond {
			t.Errorf("in state %d a trip took %v", cut, d)
		}
	}
	p.Slow(20)
	if d := trip(); d < 90*time.Millisecond { // a byte each way at 20 bytes per second
		t.Errorf("a slow trip took %v", d)
	}
	p.Slow(0)
	p.Set(Unplugged)
	if _, err := conn.Read(make([]byte, 1)); err == nil || p.Cuts.Load() != 2 {
		t.Errorf("read after Unplugged = %v, %d ends cut", err, p.Cuts.Load())
	}
	dial := func() (net.Conn, error) { return net.Dial("tcp", p.Endpoint()[len("tcp/"):]) }
	rttest.FailsAs(t, rttest.Err(dial()), unix.ECONNREFUSED)
	p.Set(Whole)
	conn = rttest.Must(dial())(t)
	rttest.Do(t, rttest.Err(conn.Write([]byte("x"))))
	rttest.Do(t, rttest.Err(conn.Read(make([]byte, 1))))
}
