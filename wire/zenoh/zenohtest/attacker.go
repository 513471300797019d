package zenohtest

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// attacker is one link after its handshake, on which the test writes arbitrary bytes.
type attacker struct {
	run     *Run
	churn   bool
	dialled bool // the victim opened this connection
	conn    net.Conn
	broken  bool
	sn      [8]uint32
}

// more reports whether an attack with Churn has time left. If the victim has ended the link, more
// opens a new link.
func (a *attacker) more() bool {
	if a.broken {
		return a.redial()
	}
	return time.Now().Before(a.run.until)
}

// redial ends the link and opens the next one. An attack with Churn repeats failed attempts until
// its time is over.
func (a *attacker) redial() bool {
	for {
		if a.conn != nil {
			a.run.conns.Forget(a.conn)
			a.conn = nil
		}
		if a.dialled || a.churn && time.Now().After(a.run.until) {
			return false
		}
		conn, err := a.open()
		if err == nil {
			a.conn = conn
			a.broken = false
			a.sn = [8]uint32{}
			if a.churn {
				go io.Copy(io.Discard, conn)
			}
			return true
		}
		a.run.Refused.Add(1)
		if !a.churn || errors.Is(err, net.ErrClosed) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
}

func (a *attacker) open() (net.Conn, error) {
	scheme, address, _ := strings.Cut(a.run.at, "/")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if scheme == endpoint.TLS {
		conn = &secured{tls.Client(conn, &tls.Config{InsecureSkipVerify: true}), conn}
	}
	if !a.run.conns.Keep(conn) {
		return nil, net.ErrClosed
	}
	conn.SetDeadline(time.Now().Add(handshakes))
	if err := dialHandshake(conn); err != nil {
		a.run.conns.Forget(conn)
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return conn, nil
}

// secured is a TLS connection whose Close sends no alert, like the Close of a plain socket.
type secured struct {
	*tls.Conn
	socket net.Conn
}

func (s *secured) Close() error { return s.socket.Close() }

func dialHandshake(conn net.Conn) error {
	writeBatch(conn, codec.AppendInit(nil, &codec.Init{
		Role:       codec.Client,
		ZID:        newZID(),
		Resolution: codec.DefaultResolution,
		Batch:      codec.DefaultBatch,
		QoS:        true,
		Patch:      1,
	}))
	first, err := readBatch(conn)
	if err != nil {
		return err
	}
	c := codec.NewCursor(first)
	ack, err := codec.ParseInit(&c)
	if err != nil {
		return err
	}
	writeBatch(conn, codec.AppendOpen(nil, &codec.Open{LeaseMS: hostileLease, Cookie: ack.Cookie}))
	second, err := readBatch(conn)
	if err == nil && len(second) > 0 && codec.ID(second[0]) == codec.IDClose {
		err = io.EOF
	}
	return err
}

func newZID() []byte {
	zid := make([]byte, 16)
	rand.Read(zid)
	zid[15] |= 1 // the last byte of a node id must not be zero
	return zid
}

func writeBatch(conn net.Conn, b []byte) error {
	_, err := conn.Write(append(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), b...))
	return err
}

func readBatch(conn net.Conn) ([]byte, error) {
	var n [2]byte
	if _, err := io.ReadFull(conn, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.LittleEndian.Uint16(n[:]))
	_, err := io.ReadFull(conn, b)
	return b, err
}

// send sends one message in a separate frame, with the next sequence number of its lane. It reports whether the link is
// still open.
func (a *attacker) send(priority uint8, part codec.Part) bool {
	b := codec.AppendMessage(codec.AppendFrame(nil, codec.Lane{Reliable: true, SN: a.sn[priority], Priority: priority}),
		part.Message())
	a.sn[priority]++
	return a.write(b)
}

func (a *attacker) write(b []byte) bool {
	a.conn.SetWriteDeadline(time.Now().Add(stuckLimit))
	if writeBatch(a.conn, b) != nil {
		a.broken = true
	} else {
		a.run.Sent.Add(1)
	}
	return !a.broken
}

// unfinished begins a message on each lane and sends n pieces of it.
func (a *attacker) unfinished(n uint32) {
	piece := make([]byte, largePiece)
	for at := range n {
		for p := range uint8(8) {
			b := codec.AppendFragment(nil, codec.Lane{
				Reliable: true,
				SN:       a.sn[p],
				Priority: p,
				More:     true,
				First:    at == 0,
			})
			a.sn[p]++
			if !a.write(append(b, piece...)) {
				return // the victim has ended the link
			}
		}
	}
}

func (a *attacker) declare(kind codec.DeclareKind, id uint32, key codec.Expr) bool {
	return a.send(0, codec.Declare{
		Kind: kind,
		ID:   id,
		Expr: key,
	})
}

// interest requests future declarations, on a key or on all keys.
func (a *attacker) interest(id uint32, key codec.Expr, restricted bool) bool {
	return a.send(0, codec.Interest{
		ID:         id,
		Mode:       codec.InterestFuture,
		About:      codec.AboutSubscribers | codec.AboutQueryables | codec.AboutTokens,
		Restricted: restricted,
		Expr:       key,
	})
}

// subscribeUnread subscribes to the victim's keys, publishes 30 large samples on one of them, and reads nothing.
func (a *attacker) subscribeUnread(int) {
	a.declare(codec.DeclareSubscriber, 1, codec.Key(victimKeys))
	for range 30 {
		if !a.send(5, codec.Push{Envelope: codec.Envelope{QoS: codec.DefaultQoS},
			Expr: codec.Key(PingKey), Data: codec.Data{Payload: make([]byte, largePayload)}}) {
			return
		}
	}
}

func (a *attacker) unanswered(i int) {
	if i%50 == 0 {
		go io.Copy(io.Discard, a.conn)
		a.declare(codec.DeclareQueryable, 1, codec.Key(HeldKey))
	}
	for n := range uint32(60) {
		if !a.send(5, codec.Request{
			Envelope:  codec.Envelope{QoS: codec.RequestQoS},
			ID:        n + 1,
			TimeoutMS: 3_600_000,
			Expr:      codec.Key(HeldKey),
			Query:     codec.Query{HasBody: true, Payload: make([]byte, largePayload)},
		}) {
			return
		}
	}
}

var everyKind = []codec.DeclareKind{codec.DeclareSubscriber, codec.DeclareQueryable, codec.DeclareToken,
	codec.DeclareExpr}

func (a *attacker) declarations(i int) {
	long := strings.Repeat("x", 900)
	for id := range uint32(400) {
		for _, kind := range everyKind {
			if !a.declare(kind, id+1, codec.Key(fmt.Appendf(nil, "@flood/%d/%d/%s", i, id, long))) {
				return
			}
		}
	}
}

func (a *attacker) pushNewKeys(i int) {
	for n := uint32(0); a.more(); n++ {
		a.send(5, codec.Push{Envelope: codec.Envelope{QoS: codec.DefaultQoS},
			Expr: freshKey(i, n), Data: codec.Data{Payload: []byte("x")}})
	}
}

func freshKey(i int, n uint32) codec.Expr { return codec.Key(fmt.Appendf(nil, "@fresh/%d/%d", i, n)) }

// redeclare declares and undeclares one fresh key after the other while the attack has time left.
func (a *attacker) redeclare(i int) {
	for n := uint32(0); a.more(); n++ {
		for k, kind := range everyKind[:3] {
			a.declare(kind, n+1, freshKey(i, n))
			a.declare([]codec.DeclareKind{codec.UndeclareSubscriber, codec.UndeclareQueryable, codec.UndeclareToken}[k],
				n+1, codec.Expr{})
		}
	}
}
