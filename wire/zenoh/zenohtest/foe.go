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

	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/endpoint"
)

// foe is one handshaken link whose bytes the attacker writes itself.
type foe struct {
	assault *Assault
	churn   bool
	dialled bool // by the victim
	conn    net.Conn
	broken  bool
	sn      [8]uint32
}

// goesOn reports whether a churning attack has time left on this link, which is
// a new one when the victim has ended the last.
func (f *foe) goesOn() bool {
	if f.broken {
		return f.redial()
	}
	return time.Now().Before(f.assault.until)
}

// redial ends the link and opens the next. A churning attack tries until its
// time is over.
func (f *foe) redial() bool {
	for {
		if f.conn != nil {
			f.conn.Close()
			f.assault.forget(f.conn)
			f.conn = nil
		}
		if f.dialled || f.churn && time.Now().After(f.assault.until) {
			return false
		}
		conn, err := f.open()
		if err == nil {
			f.conn, f.broken, f.sn = conn, false, [8]uint32{}
			if f.churn {
				go io.Copy(io.Discard, conn)
			}
			return true
		}
		f.assault.Refused.Add(1)
		if !f.churn || errors.Is(err, net.ErrClosed) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
}

func (f *foe) open() (net.Conn, error) {
	scheme, address, _ := strings.Cut(f.assault.at, "/")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if scheme == endpoint.TLS {
		conn = &secured{tls.Client(conn, &tls.Config{InsecureSkipVerify: true}), conn}
	}
	if err := f.assault.keep(conn); err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(handshakes))
	if err := shakeHands(conn); err != nil {
		conn.Close()
		f.assault.forget(conn)
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return conn, nil
}

// secured ends as a socket does, without a word.
type secured struct {
	*tls.Conn
	socket net.Conn
}

func (s *secured) Close() error { return s.socket.Close() }

func shakeHands(conn net.Conn) error {
	zid := make([]byte, 16)
	rand.Read(zid)
	zid[15] |= 1
	writeBatch(conn, codec.AppendInit(nil, &codec.Init{Role: codec.Client, ZID: zid, Resolution: codec.DefaultResolution,
		Batch: codec.DefaultBatch, QoS: true, Patch: 1}))
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

// send sends one message in a frame of its own, in order on its lane. It reports
// whether the link takes more.
func (f *foe) send(priority uint8, m codec.Message) bool {
	b := codec.AppendMessage(codec.AppendFrame(nil, codec.Lane{Reliable: true, SN: f.sn[priority], Priority: priority}), &m)
	f.sn[priority]++
	return f.say(b)
}

func (f *foe) say(b []byte) bool {
	f.conn.SetWriteDeadline(time.Now().Add(stuckLimit))
	if writeBatch(f.conn, b) != nil {
		f.broken = true
	} else {
		f.assault.Said.Add(1)
	}
	return !f.broken
}

// unfinished begins a message on each lane and sends n pieces of it.
func (f *foe) unfinished(n uint32) {
	piece := make([]byte, largePiece)
	for at := range n {
		for p := range uint8(8) {
			b := codec.AppendFragment(nil, codec.Lane{Reliable: true, SN: f.sn[p], Priority: p, More: true, First: at == 0})
			f.sn[p]++
			if !f.say(append(b, piece...)) {
				return // ended by the victim
			}
		}
	}
}

func (f *foe) declare(kind codec.DeclareKind, id uint32, key codec.Expr) bool {
	return f.send(0, codec.Message{Kind: codec.KindDeclare, Declare: codec.Declare{
		Envelope: codec.Envelope{QoS: codec.ControlQoS}, Kind: kind, ID: id, Expr: key}})
}

// interest wants to be told of what will be, on a key or of all.
func (f *foe) interest(id uint32, key codec.Expr, restricted bool) bool {
	return f.send(0, codec.Message{Kind: codec.KindInterest, Interest: codec.Interest{
		Envelope: codec.Envelope{QoS: codec.ControlQoS}, ID: id, Mode: codec.InterestFuture,
		About: codec.AboutSubscribers | codec.AboutQueryables | codec.AboutTokens, Restricted: restricted, Expr: key}})
}

// deaf asks for everything, adds to it, and reads nothing.
func (f *foe) deaf(int) {
	f.declare(codec.DeclareSubscriber, 1, codec.Key([]byte(victimKeys)))
	for range 100 {
		if !f.send(5, codec.Message{Kind: codec.KindPush, Push: codec.Push{Envelope: codec.Envelope{QoS: codec.DefaultQoS},
			Expr: codec.Key([]byte(PingKey)), Data: codec.Data{Payload: make([]byte, largePayload)}}}) {
			return
		}
	}
}

func (f *foe) unanswered(i int) {
	if i%50 == 0 {
		go io.Copy(io.Discard, f.conn)
		f.declare(codec.DeclareQueryable, 1, codec.Key([]byte(HeldKey)))
	}
	for n := range uint32(200) {
		if !f.send(5, codec.Message{Kind: codec.KindRequest, Request: codec.Request{Envelope: codec.Envelope{QoS: codec.RequestQoS}, ID: n + 1,
			TimeoutMS: 3_600_000, Expr: codec.Key([]byte(HeldKey)), Query: codec.Query{HasBody: true, Payload: make([]byte, largePayload)}}}) {
			return
		}
	}
}

var everyKind = []codec.DeclareKind{codec.DeclareSubscriber, codec.DeclareQueryable, codec.DeclareToken, codec.DeclareExpr}

func (f *foe) declarations(i int) {
	long := strings.Repeat("x", 900)
	for id := range uint32(400) {
		for _, kind := range everyKind {
			if !f.declare(kind, id+1, codec.Key(fmt.Appendf(nil, "@flood/%d/%d/%s", i, id, long))) {
				return
			}
		}
	}
}

func (f *foe) fresh(i int) {
	for n := uint32(0); f.goesOn(); n++ {
		f.send(5, codec.Message{Kind: codec.KindPush, Push: codec.Push{Envelope: codec.Envelope{QoS: codec.DefaultQoS},
			Expr: freshKey(i, n), Data: codec.Data{Payload: []byte("x")}}})
	}
}

func freshKey(i int, n uint32) codec.Expr { return codec.Key(fmt.Appendf(nil, "@fresh/%d/%d", i, n)) }

// fickle declares and undeclares one key after the other.
func (f *foe) fickle(i int) {
	for n := uint32(0); f.goesOn(); n++ {
		for k, kind := range everyKind[:3] {
			f.declare(kind, n+1, freshKey(i, n))
			f.declare([]codec.DeclareKind{codec.UndeclareSubscriber, codec.UndeclareQueryable, codec.UndeclareToken}[k], n+1, codec.Expr{})
		}
	}
}
