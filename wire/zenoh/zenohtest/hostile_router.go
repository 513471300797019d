package zenohtest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// HostileRouter is a router that routes no messages. Once begun, it attacks every session that has dialled it or dials
// it again.
type HostileRouter struct {
	Links atomic.Uint64 // number of opened links

	attack   *Attack
	listener net.Listener
	begun    chan struct{}
	run      Run // the attack, which opens no links itself
	tasks    sync.WaitGroup
}

// NewHostileRouter listens on a port of its own.
func NewHostileRouter(a *Attack) (*HostileRouter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	x := &HostileRouter{attack: a, listener: l, begun: make(chan struct{})}
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

// Endpoint returns the endpoint to dial.
func (x *HostileRouter) Endpoint() string { return "tcp/" + x.listener.Addr().String() }

// Sent returns the number of batches that the router has written to the victims' connections.
func (x *HostileRouter) Sent() uint64 { return x.run.Sent.Load() }

// Begin attacks for the given time.
func (x *HostileRouter) Begin(lasts time.Duration) {
	x.run.until = time.Now().Add(lasts)
	close(x.begun)
}

// Close ends all links, the listener and the attack.
func (x *HostileRouter) Close() {
	x.listener.Close()
	x.run.closeAll()
	select {
	case <-x.begun:
	default:
		close(x.begun)
	}
	x.tasks.Wait()
}

func (x *HostileRouter) receive(conn net.Conn) {
	defer conn.Close()
	if !x.run.conns.Keep(conn) || acceptHandshake(conn) != nil {
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
	f := &attacker{
		run:     &x.run,
		churn:   true,
		dialled: true,
		conn:    conn,
	}
	x.attack.link(f, 0)
	<-over
}

// acceptHandshake does the accepting side of the handshake, as a router.
func acceptHandshake(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(handshakes))
	defer conn.SetDeadline(time.Time{})
	if _, err := readBatch(conn); err != nil {
		return err
	}
	zid := newZID()
	writeBatch(conn, codec.AppendInit(nil, &codec.Init{
		Ack:        true,
		Role:       codec.Router,
		ZID:        zid,
		Resolution: codec.DefaultResolution,
		Batch:      codec.DefaultBatch,
		Cookie:     zid,
		QoS:        true,
		Patch:      1,
	}))
	if _, err := readBatch(conn); err != nil {
		return err
	}
	return writeBatch(conn, codec.AppendOpen(nil, &codec.Open{Ack: true, LeaseMS: hostileLease}))
}
