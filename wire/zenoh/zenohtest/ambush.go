package zenohtest

import (
	"crypto/rand"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"edgert/wire/zenoh/codec"
)

// Ambush is a router that is good for nothing and, once it has begun, attacks
// whoever has dialled it and whoever comes back.
type Ambush struct {
	Links atomic.Uint64 // that were opened

	attack   *Attack
	listener net.Listener
	begun    chan struct{}
	assault  Assault // without links of its own
	tasks    sync.WaitGroup
}

// LayAmbush listens on a port of its own.
func LayAmbush(a *Attack) (*Ambush, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	x := &Ambush{attack: a, listener: l, begun: make(chan struct{})}
	x.tasks.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			x.tasks.Go(func() { x.receive(conn) })
		}
	})
	return x, nil
}

// Endpoint is where to dial.
func (x *Ambush) Endpoint() string { return "tcp/" + x.listener.Addr().String() }

// Said is how many batches the victim's system has taken.
func (x *Ambush) Said() uint64 { return x.assault.Said.Load() }

// Begin attacks for the time given.
func (x *Ambush) Begin(lasts time.Duration) {
	x.assault.until = time.Now().Add(lasts)
	close(x.begun)
}

// Close ends everything.
func (x *Ambush) Close() {
	x.listener.Close()
	x.assault.mu.Lock()
	x.assault.closed = true
	for _, c := range x.assault.conns {
		c.Close()
	}
	x.assault.mu.Unlock()
	select {
	case <-x.begun:
	default:
		close(x.begun)
	}
	x.tasks.Wait()
}

func (x *Ambush) receive(conn net.Conn) {
	defer conn.Close()
	if x.assault.keep(conn) != nil || welcome(conn) != nil {
		return
	}
	x.Links.Add(1)
	over := make(chan struct{})
	go func() { io.Copy(io.Discard, conn); close(over) }()
	alive := time.NewTicker(time.Second)
	defer alive.Stop()
	for begun := false; !begun; {
		select {
		case <-x.begun:
			begun = true
		case <-alive.C:
			writeBatch(conn, codec.AppendKeepAlive(nil))
		case <-over:
			return
		}
	}
	f := &foe{assault: &x.assault, churn: true, dialled: true, conn: conn}
	x.attack.link(f, 0)
	<-over
}

// welcome is the accepting side of the handshake, as a router.
func welcome(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(handshakes))
	defer conn.SetDeadline(time.Time{})
	if _, err := readBatch(conn); err != nil {
		return err
	}
	zid := make([]byte, 16)
	rand.Read(zid)
	zid[15] |= 1
	writeBatch(conn, codec.AppendInit(nil, &codec.Init{Ack: true, Role: codec.Router, ZID: zid, Resolution: codec.DefaultResolution,
		Batch: codec.DefaultBatch, Cookie: zid, QoS: true, Patch: 1}))
	if _, err := readBatch(conn); err != nil {
		return err
	}
	return writeBatch(conn, codec.AppendOpen(nil, &codec.Open{Ack: true, LeaseMS: hostileLease}))
}
