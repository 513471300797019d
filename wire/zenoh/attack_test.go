package zenoh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
	"github.com/edge-rt/edge-rt/wire/zenoh/zenohtest"
)

// victimMain runs a listener as a separate process, so that the test measures the memory of the listener alone. The
// listener serves a queryable and a subscriber until its standard input ends.
func victimMain(at string) {
	s, err := Open(context.Background(), Config{Listen: []string{at}, TLS: endpoint.Security{
		ListenCertificate: os.Getenv("EDGERT_CERTIFICATE"), ListenKey: os.Getenv("EDGERT_KEY")}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s.Subscribe("@victim/**", func(wire.Sample) {})
	var held []wire.Query // queries that are never finished: the worst case of an application
	s.Queryable(zenohtest.HeldKey, func(q wire.Query) { held = append(held, q) })
	echo, _ := s.Publisher("@victim/echo", wire.ActionQoS)
	s.Subscribe(zenohtest.PingKey, func(in wire.Sample) { echo.Put(in.Payload, nil) })
	debug.FreeOSMemory()
	rt.HoldGC(0) // the garbage collector is off, as in both programs
	fmt.Println(s.(*Session).Endpoints()[0])
	os.Stdin.Read(make([]byte, 1))
	s.Close()
}

// Goal: under many hostile links of any behaviour, a listener takes at most 64 MiB above its idle size. A good client
// that dials meanwhile gets its round trip.
func TestMemoryUnderAttack(t *testing.T) {
	if at := os.Getenv("EDGERT_VICTIM"); at != "" {
		victimMain(at)
		return
	}
	for _, a := range zenohtest.Attacks {
		t.Run(a.Name, func(t *testing.T) { survives(t, a, "tcp/127.0.0.1:0", endpoint.Security{}) })
	}
}

// Goal: the same bound holds over TLS. TLS also takes memory for the handshake and buffers of each link, and leaves
// garbage that the budget does not count. The forced collection must bound this garbage.
func TestMemoryUnderAttackOverTLS(t *testing.T) {
	ca := endpointtest.New(t)
	cert, key := ca.Issue("server", "127.0.0.1")
	t.Setenv("EDGERT_CERTIFICATE", cert)
	t.Setenv("EDGERT_KEY", key)
	for _, name := range []string{"idle links", "unfinished messages on every lane", "links that come and go",
		"declarations that come and go"} {
		i := slices.IndexFunc(zenohtest.Attacks, func(a zenohtest.Attack) bool { return a.Name == name })
		t.Run(name, func(t *testing.T) {
			survives(t, zenohtest.Attacks[i], "tls/127.0.0.1:0", endpoint.Security{RootCA: ca.CA})
		})
	}
}

// survives runs the attack against a listener at the endpoint listen, and checks that the listener survives it.
func survives(t *testing.T, a zenohtest.Attack, listen string, trust endpoint.Security) {
	if runtime.GOOS != "linux" || testing.Short() {
		t.Skip("reads /proc, and the race detector has memory of its own")
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestMemoryUnderAttack$")
	cmd.Env = append(os.Environ(), "EDGERT_VICTIM="+listen)
	cmd.Stderr = os.Stderr
	in := rttest.Must(cmd.StdinPipe())(t)
	out := rttest.Must(cmd.StdoutPipe())(t)
	rttest.Do(t, cmd.Start())
	defer func() { in.Close(); cmd.Wait() }()
	var at string
	rttest.Must(fmt.Fscanln(out, &at))(t)
	idle, _ := zenohtest.Resident(t, cmd.Process.Pid)
	x := a.Start(at, zenohtest.Churn)
	defer x.Close()
	good := mustOpen(t, Config{Connect: []string{at}, TLS: trust, BackoffMin: 10 * time.Millisecond})
	var back sessiontest.Basket
	rttest.Must(good.Subscribe("@victim/echo", back.Deposit))(t)
	ping := rttest.Must(good.Publisher(zenohtest.PingKey, wire.ObservationQoS))(t)
	rttest.Eventually(t, "a good client's round trip", func() bool {
		ping.Put(make([]byte, 100), nil)
		return back.Count() > 0
	})
	if !x.Wait(30 * time.Second) {
		t.Fatal("the attack did not end in 30 s")
	}
	now, peak := zenohtest.Resident(t, cmd.Process.Pid)
	t.Logf("idle %d MB, at the end %d MB, at most %d MB above idle; %d links refused", idle>>20, now>>20,
		(peak-idle)>>20, x.Refused.Load())
	if peak-idle > zenohtest.MemoryBound {
		t.Errorf("%d MB above idle, want at most %d", (peak-idle)>>20, zenohtest.MemoryBound>>20)
	}
}

// Goal: when all places are taken, a new node gets the place of a silent link, but not of a link in use.
func TestIdleLinksGiveWay(t *testing.T) {
	rttest.RealTime(t)
	const idleGrace = time.Second
	victim, at := listener(t, Config{MaxSessions: 3})
	busy := mustOpen(t, Config{Connect: []string{at}})
	rttest.Must(busy.Token("@busy"))(t)
	for range 2 {
		mustAttack(t, at) // this link stays silent
	}
	_, err := attack(t, at, newZID())
	var closed *link.CloseError
	if !errors.As(err, &closed) || closed.Reason != codec.CloseMaxSessions {
		t.Errorf("a fourth link at once = %v, want MaxSessions", err)
	}
	// The links must be silent for this long before they may lose their places.
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

// Goal: neither links that fell silent after one message nor an address with too many links can keep other nodes out
// for ever. Links in use stay.
func TestSilentLinksGiveWay(t *testing.T) {
	rttest.RealTime(t)
	const silentGrace = 5 * time.Second
	victim, at := listener(t, Config{MaxSessions: 8})
	busy := mustOpen(t, Config{Connect: []string{at}})
	pub := rttest.Must(busy.Publisher("@busy", wire.ActionQoS))(t)
	pub.Put(nil, nil)
	for range 7 {
		a := mustAttack(t, at)
		a.declare(codec.DeclareToken, 1, "@word")
		a.settle(1)
	}
	var closed *link.CloseError
	if _, err := attack(t, at, newZID()); !errors.As(err, &closed) || closed.Reason != codec.CloseMaxSessions {
		t.Errorf("a link beyond those that have spoken = %v, want MaxSessions", err)
	}
	// A node from another address, which has no link yet, is admitted at once.
	other, err := attackFrom(t, "127.0.0.2", at, newZID())
	if err != nil {
		t.Fatalf("a link of an address that has none = %v, want that one of the other's gives way", err)
	}
	other.declare(codec.DeclareToken, 1, "@word")
	other.settle(1)
	began := time.Now()
	_, err = attack(t, at, newZID())
	end := time.Now().Add(silentGrace + 10*time.Second)
	// The other links stay silent for the time of the test, while the busy link keeps sending.
	for ; err != nil && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		pub.Put(nil, nil)
		_, err = attack(t, at, newZID())
	}
	if time.Since(began) < silentGrace-time.Second {
		t.Errorf("a link that had spoken gave way after %v, want %v of silence", time.Since(began), silentGrace)
	}
	if err != nil || !busy.Connected() || victim.Stats().Idle != 2 {
		t.Errorf("after %v of silence: %v, busy link up: %v, %d gave way; want the newcomer in, the busy one up, and 2",
			silentGrace, err, busy.Connected(), victim.Stats().Idle)
	}
}
