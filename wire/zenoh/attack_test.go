package zenoh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"edgert/wire"
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/link"
)

// attackMemory is how much a listener may take above its idle size while it is
// attacked.
const attackMemory = 64 << 20

// victimMain is a listener in a process of its own, so that its memory is its
// own. It serves a queryable and a subscriber until its standard input ends.
func victimMain() {
	s, err := Open(context.Background(), Config{Listen: []string{"tcp/127.0.0.1:0"}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s.Subscribe("@victim/**", func(wire.Sample) {})
	var held []wire.Query // for ever: the worst that an application may do
	s.Queryable("@victim/held", func(q wire.Query) { held = append(held, q) })
	echo, _ := s.Publisher("@victim/echo", wire.ActionQoS)
	s.Subscribe("@victim/ping", func(in wire.Sample) { echo.Put(in.Payload, nil) })
	debug.FreeOSMemory()
	fmt.Println(s.(*Session).Endpoints()[0])
	os.Stdin.Read(make([]byte, 1))
	s.Close()
}

// rss is a process's resident memory, and the most that it ever was.
func rss(t *testing.T, pid int) (now, peak int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	read := func(key string) int {
		_, after, _ := strings.Cut(string(text), key+":")
		n, _ := strconv.Atoi(strings.Fields(after)[0])
		return n << 10
	}
	return read("VmRSS"), read("VmHWM")
}

// raw is a handshaken link whose bytes the attacker writes itself.
func raw(t *testing.T, at string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(at, "tcp/"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	batch := func(b []byte) { conn.Write(append(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), b...)) }
	next := func() []byte {
		var n [2]byte
		if _, err := conn.Read(n[:]); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.LittleEndian.Uint16(n[:]))
		for i := 0; i < len(b); {
			m, err := conn.Read(b[i:])
			if err != nil {
				t.Fatal(err)
			}
			i += m
		}
		return b
	}
	batch(codec.AppendInit(nil, &codec.Init{Role: codec.Client, ZID: newZID(), Resolution: codec.DefaultResolution, Batch: codec.DefaultBatch, QoS: true, Patch: 1}))
	c := codec.NewCursor(next())
	ack, err := codec.ParseInit(&c)
	if err != nil {
		t.Fatal(err)
	}
	batch(codec.AppendOpen(nil, &codec.Open{LeaseMS: 60_000, Cookie: ack.Cookie}))
	next()
	conn.SetDeadline(time.Time{})
	return conn
}

// attacks are what a hostile node does with many links.
var attacks = []struct {
	name  string
	links int
	link  func(t *testing.T, conn net.Conn, i int)
}{
	{"idle links", 250, func(*testing.T, net.Conn, int) {}},
	{"a claimed batch that does not come", 250, func(_ *testing.T, conn net.Conn, _ int) {
		conn.Write([]byte{0xff, 0xff, 1, 2, 3})
	}},
	{"unfinished messages on every lane", 100, func(_ *testing.T, conn net.Conn, _ int) {
		piece := make([]byte, 60_000)
		for sn := uint32(0); sn < 20; sn++ {
			for p := uint8(0); p < 8; p++ {
				b := codec.AppendFragment(nil, codec.Lane{Reliable: true, SN: sn, Priority: p, More: true, First: sn == 0})
				b = append(b, piece...)
				if _, err := conn.Write(append(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
					return // ended by the victim
				}
			}
		}
	}},
	{"subscribers that read nothing", 250, func(_ *testing.T, conn net.Conn, i int) {
		writeFrame(conn, 0, 0, codec.Message{Kind: codec.KindDeclare, Declare: codec.Declare{
			Envelope: codec.Envelope{QoS: codec.ControlQoS}, Kind: codec.DeclareSubscriber, ID: 1, Expr: codec.Key([]byte("@victim/**"))}})
		for sn := range uint32(100) {
			if !writeFrame(conn, 5, sn, codec.Message{Kind: codec.KindPush, Push: codec.Push{Envelope: codec.Envelope{QoS: codec.DefaultQoS},
				Expr: codec.Key([]byte("@victim/ping")), Data: codec.Data{Payload: make([]byte, 50_000)}}}) {
				return
			}
		}
	}},
	{"queries that are never answered", 100, func(_ *testing.T, conn net.Conn, _ int) {
		for i := range uint32(200) {
			if !writeFrame(conn, 5, i, codec.Message{Kind: codec.KindRequest, Request: codec.Request{Envelope: codec.Envelope{QoS: codec.RequestQoS}, ID: i + 1,
				TimeoutMS: 3_600_000, Expr: codec.Key([]byte("@victim/held")), Query: codec.Query{HasBody: true, Payload: make([]byte, 50_000)}}}) {
				return
			}
		}
	}},
	{"declarations", 12, func(_ *testing.T, conn net.Conn, i int) {
		long := strings.Repeat("x", 900)
		sn := uint32(0)
		for id := range uint32(400) {
			for _, kind := range []codec.DeclareKind{codec.DeclareSubscriber, codec.DeclareQueryable, codec.DeclareToken, codec.DeclareExpr} {
				if !writeFrame(conn, 0, sn, codec.Message{Kind: codec.KindDeclare, Declare: codec.Declare{Envelope: codec.Envelope{QoS: codec.ControlQoS},
					Kind: kind, ID: id + 1, Expr: codec.Key([]byte(fmt.Sprintf("@flood/%d/%d/%s", i, id, long)))}}) {
					return
				}
				sn++
			}
		}
	}},
}

func writeFrame(conn net.Conn, priority uint8, sn uint32, m codec.Message) bool {
	b := codec.AppendMessage(codec.AppendFrame(nil, codec.Lane{Reliable: true, SN: sn, Priority: priority}), &m)
	conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
	_, err := conn.Write(append(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), b...))
	return err == nil
}

// Goal: whatever many hostile links do, a listener takes at most 64 MiB above
// its idle size, and a good client that comes meanwhile gets its round trip.
func TestMemoryUnderAttack(t *testing.T) {
	if os.Getenv("EDGERT_VICTIM") != "" {
		victimMain()
		return
	}
	if runtime.GOOS != "linux" || testing.Short() {
		t.Skip("reads /proc, and the race detector has memory of its own")
	}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestMemoryUnderAttack$")
			cmd.Env = append(os.Environ(), "EDGERT_VICTIM=1")
			cmd.Stderr = os.Stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { in.Close(); cmd.Wait() }()
			var at string
			if _, err := fmt.Fscanln(out, &at); err != nil {
				t.Fatal(err)
			}
			idle, _ := rss(t, cmd.Process.Pid)
			done := make(chan struct{}, a.links)
			for i := range a.links {
				conn := raw(t, at)
				go func() { a.link(t, conn, i); done <- struct{}{} }()
			}
			good := mustOpen(t, Config{Connect: []string{at}, BackoffMin: 10 * time.Millisecond})
			var back samples
			if _, err := good.Subscribe("@victim/echo", back.deposit); err != nil {
				t.Fatal(err)
			}
			ping, err := good.Publisher("@victim/ping", wire.ObservationQoS)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "a good client's round trip", func() bool {
				ping.Put(make([]byte, 100), nil)
				return back.count() > 0
			})
			for range a.links {
				select {
				case <-done:
				case <-time.After(30 * time.Second):
					t.Fatal("the attack did not end in 30 s")
				}
			}
			now, peak := rss(t, cmd.Process.Pid)
			t.Logf("idle %d MB, at the end %d MB, at most %d MB", idle>>20, now>>20, peak>>20)
			if peak-idle > attackMemory {
				t.Errorf("%d MB above idle, want at most %d", (peak-idle)>>20, attackMemory>>20)
			}
		})
	}
}

// Goal: links that say nothing give their places to a node that comes when all
// are taken; links that are in use do not.
func TestIdleLinksGiveWay(t *testing.T) {
	victim, at := listener(t, Config{MaxSessions: 3})
	busy := mustOpen(t, Config{Connect: []string{at}})
	if _, err := busy.Token("@busy"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		mustAttack(t, at) // and says nothing
	}
	_, err := attack(t, at, newZID())
	var closed *link.CloseError
	if !errors.As(err, &closed) || closed.Reason != codec.CloseMaxSessions {
		t.Errorf("a fourth link at once = %v, want MaxSessions", err)
	}
	time.Sleep(idleGrace + 50*time.Millisecond)
	for range 2 {
		a := mustAttack(t, at)
		a.declare(codec.DeclareToken, 1, "@useful")
		a.settle(1)
	}
	if _, err := attack(t, at, newZID()); !errors.As(err, &closed) || closed.Reason != codec.CloseMaxSessions {
		t.Errorf("a link beyond those in use = %v, want MaxSessions", err)
	}
	if !busy.Connected() || victim.Stats().Idle != 2 {
		t.Errorf("the busy link is up: %v; %d idle ones gave way, want 2", busy.Connected(), victim.Stats().Idle)
	}
}

// from is a connection of a given address.
type from struct {
	net.Conn
	ip     string
	closed bool
}

func (f *from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip)} }
func (f *from) Close() error         { f.closed = true; return nil }

// Goal: a flood from one address pushes out its own connections, not those of
// others.
func TestFloodPushesOutItself(t *testing.T) {
	var door doorstep
	good := &from{ip: "10.0.0.1"}
	door.enter(good)
	var flood []*from
	for range 10 * maxHalfOpen {
		c := &from{ip: "10.6.6.6"}
		flood = append(flood, c)
		door.enter(c)
	}
	if good.closed || len(door.conns) != maxHalfOpen {
		t.Errorf("good one closed: %v, %d at the door", good.closed, len(door.conns))
	}
	if !flood[0].closed || flood[len(flood)-1].closed {
		t.Error("the flood's oldest goes first")
	}
}
