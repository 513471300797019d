package leader

import (
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
)

func leaderOf(t *testing.T, name string) robot.Robot {
	t.Helper()
	return rttest.Must(robot.ByName(name))(t)
}

// silentNet is a network without other sessions.
type silentNet struct{ wire.Session }

func (silentNet) Subscribe(string, func(wire.Sample)) (wire.Declaration, error) { return nil, nil }
func (silentNet) Publisher(string, wire.QoS) (wire.Publisher, error)            { return nil, nil }

// A robot with a base takes the velocities after the joints, and stops without them.
func TestKeysAtTheLeaderDriveABase(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Hour))
	r := rttest.Must(newRemote(silentNet{}, RemoteConfig{
		Name:  "white",
		Robot: leaderOf(t, "so101_leader"),
		Base:  true,
		ID:    "kiwi",
		Clock: clock,
	}))(t)
	o := &Offer{
		cfg: OfferConfig{
			Pose:  func() *Pose { return &Pose{At: clock.Now(), Joints: []float32{1, 2, 3, 4, 5, 6}} },
			Steer: func(_ rt.Instant, dst []float32) { copy(dst, []float32{0.1, 0, -30}) },
		},
		instance: 5,
		joints:   r.joints,
		place:    make([]float32, 6+robot.Axes),
	}
	o.user.Store(r.instance)
	o.userStamp.Store(uint64(clock.Now()))
	r.deposit(wire.Sample{Payload: o.append(nil, clock.Now(), 1)})
	if got := r.Pose().Joints; len(got) != 9 || got[5] != 6 || got[6] != 0.1 || got[8] != -30 {
		t.Errorf("pose %v, want the joints, and 0.1, 0, -30", got)
	}
	o.cfg.Steer, o.place = nil, o.place[:6]
	clock.SleepUntil(clock.Now().Add(time.Millisecond))
	r.deposit(wire.Sample{Payload: o.append(nil, clock.Now(), 2)})
	if got := r.Pose().Joints; got[0] != 1 || got[6] != 0 || got[8] != 0 {
		t.Errorf("pose %v, want a base that stands", got)
	}
}

// A robot takes only poses that are new and recent, for this robot, and of its leader's arm. It counts all other poses,
// and keeps its pose.
func TestARemoteTakesItsLeadersPosesOnly(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Hour))
	r := rttest.Must(newRemote(silentNet{}, RemoteConfig{
		Name:  "white",
		Robot: leaderOf(t, "so101_leader"),
		ID:    "black",
		Clock: clock,
	}))(t)
	good := func() *wire.LeaderPose {
		return &wire.LeaderPose{
			Answers:  true,
			Instance: 5,
			Seq:      10,
			Joints:   r.joints,
			AgeUS:    2000,
			Held:     1 << 3,
			Echo:     wire.Echo{Instance: r.instance, Stamp: uint64(clock.Now()) - 3_000_000, HeldUS: 1000},
			Place:    []float32{1, 2, 3, 4, 5, 6},
		}
	}
	receive := func(m *wire.LeaderPose) { r.deposit(wire.Sample{Payload: wire.AppendLeaderPose(nil, m)}) }
	receive(good())
	rttest.Want(t, len(r.Pose().Joints), 6, "a robot without a base has a pose of values")
	pose := *r.Pose()
	if pose.At != clock.Now().Add(-2*time.Millisecond) || pose.Joints[5] != 6 || !pose.Held.Has(3) ||
		pose.Causes[3] != Remotely || pose.Causes[2] != 0 || r.roundTrip() != 2*time.Millisecond {
		t.Errorf("the pose is %+v, round trip %v", pose, r.roundTrip())
	}
	for _, tt := range []struct {
		why    string
		change func(*wire.LeaderPose)
	}{
		{"late", func(*wire.LeaderPose) {}},
		{"late", func(m *wire.LeaderPose) { m.Seq = 9 }},
		{"foreign", func(m *wire.LeaderPose) { m.Seq, m.Joints = 11, 1 }},
		{"foreign", func(m *wire.LeaderPose) { m.Seq, m.Place = 11, m.Place[:5] }},
		// this robot has no base
		{"foreign", func(m *wire.LeaderPose) { m.Seq, m.Place = 11, append(m.Place, 0.1, 0, 0) }},
		{"other", func(m *wire.LeaderPose) { m.Seq, m.Echo.Instance = 11, 77 }},
		{"stale", func(m *wire.LeaderPose) { m.Seq, m.Echo.Stamp = 11, uint64(clock.Now())+1 }},
		{"stale", func(m *wire.LeaderPose) { m.Seq, m.Echo.Stamp = 11, uint64(clock.Now().Add(-echoLimit))-1 }},
		{"rival", func(m *wire.LeaderPose) { m.Seq, m.Instance = 11, 6 }},
		{"malformed", func(m *wire.LeaderPose) { m.Seq, m.Instance = 11, 0 }},
	} {
		m, before := good(), r.stats(clock.Now()).Dropped[tt.why]
		tt.change(m)
		m.Place[0] = 99
		receive(m)
		if got := r.stats(clock.Now()).Dropped[tt.why]; got != before+1 || r.Pose().Joints[0] != 1 {
			t.Errorf("%s: counted %d times, the pose is %v", tt.why, got-before, r.Pose().Joints)
		}
	}
	silent := good()
	silent.Seq = 11
	silent.Answers = false
	silent.Place[0] = 99
	if receive(silent); r.Pose().Joints[0] != 1 {
		t.Error("an old pose of an arm that does not answer was taken")
	}
	clock.Advance(ownerLease)
	next := good()
	next.Seq, next.Instance = 1, 6 // a leader that was started again
	if receive(next); r.Pose().At != clock.Now().Add(-2*time.Millisecond) {
		t.Error("a new process of the leader, after the old one's silence, does not lead")
	}
	rttest.Want(t, r.why(clock.Now()), "", "it says while poses arrive")
	clock.Advance(answerLimit)
	if why := r.why(clock.Now()); why == "" {
		t.Error("it does not say that the leader is silent")
	}
	message := wire.AppendLeaderPose(nil, good())
	rttest.NoAllocs(t, "deposit allocates %v times, want 0", 100, func() { r.deposit(wire.Sample{Payload: message}) })
}

// lan is a network with mutual TLS: the leader listens, robots dial.
type lan struct {
	t  *testing.T
	ca *endpointtest.Authority
	at string
}

func (l *lan) join(name string, cfg zenoh.Config) wire.Session {
	l.t.Helper()
	cert, key := l.ca.Issue(name, name, "127.0.0.1")
	cfg.TLS = endpoint.Security{RootCA: l.ca.CA, ConnectCertificate: cert, ConnectKey: key, ListenCertificate: cert,
		ListenKey: key, MutualTLS: true}
	if len(cfg.Listen) == 0 {
		cfg.Connect = []string{l.at}
	}
	s := rttest.OrPanic(Reach(l.t.Context(), cfg, 10*time.Second, "", slog.New(slog.DiscardHandler)))
	l.t.Cleanup(func() { s.Close() })
	return s
}

// Over a real network, one robot uses a leader at a time, and both sides measure the round trip. A robot has the name
// of its certificate, and a second leader with the same name is refused.
func TestALeaderInANetwork(t *testing.T) {
	rttest.RealTime(t)
	clock, arm := rt.KernelClock(), leaderOf(t, "so101_leader")
	l := &lan{t: t, ca: endpointtest.New(t)}
	var denied access.Counters
	net := l.join("white", zenoh.Config{Listen: []string{"tls/localhost:0"},
		Rights: func(names []string) *access.Rights {
			r := Rights("white", names)
			r.Denied = &denied
			return r
		}})
	l.at = net.(interface{ Endpoints() []string }).Endpoints()[0]
	pose := &Pose{Joints: make([]float32, 6)}
	cfg := OfferConfig{
		Name:  "white",
		Robot: arm,
		Every: 10 * time.Millisecond,
		Pose:  func() *Pose { p := *pose; p.At = clock.Now(); return &p },
		Clock: clock,
		Log:   slog.New(slog.DiscardHandler),
	}
	offer := rttest.Must(NewOffer(t.Context(), net, cfg))(t)
	var ending atomic.Bool
	done := make(chan error, 4)
	start := func(run func(*atomic.Bool) error) { go func() { done <- run(&ending) }() }
	t.Cleanup(func() { ending.Store(true) })
	start(offer.Run)
	robotAt := func(certificate, id string) *Remote {
		r := rttest.Must(newRemote(l.join(certificate, zenoh.Config{}), RemoteConfig{
			Name:  "white",
			Robot: arm,
			ID:    id,
			Clock: clock,
		}))(t)
		start(r.Run)
		return r
	}
	impostor := robotAt("red", "black")
	rttest.Eventually(t, "a refusal of another robot's name", func() bool { return denied[access.Put].Load() > 3 })
	if user, _ := offer.User(); user != "" || impostor.Pose().At != 0 {
		t.Errorf("a robot with another's certificate uses the leader as %q", user)
	}
	black := robotAt("black", "black")
	black.Drives(true)
	rttest.Eventually(t, "poses and round trips at both sides", func() bool {
		user, drives := offer.User()
		return user == "black" && drives && black.why(clock.Now()) == "" && black.roundTrip() > 0 &&
			offer.RTT().Count() > 0
	})
	blue := robotAt("blue", "blue")
	rttest.Eventually(t, "the refusal of a second robot", func() bool {
		return offer.Stats().Refused > 0 && blue.stats(clock.Now()).Dropped["other"] > 0
	})
	if blue.Pose().At != 0 {
		t.Error("a second robot follows the leader")
	}
	rttest.Ends(t, rttest.Err(NewOffer(t.Context(), net, cfg)), exit.Config) // a second leader with the name
}

func TestParseRemote(t *testing.T) {
	for text, want := range map[string][2]string{
		"zenoh:white":                      {"white", ""},
		"zenoh:white@tcp/192.168.1.5:7448": {"white", "tcp/192.168.1.5:7448"},
		"/dev/ttyACM1":                     {},
	} {
		name, at, far, err := ParseRemote(text)
		if err != nil || name != want[0] || at != want[1] || far != (want[0] != "") {
			t.Errorf("ParseRemote(%q) = %q, %q, %v, %v", text, name, at, far, err)
		}
	}
	for _, bad := range []string{"zenoh:", "zenoh:a b", "zenoh:white@", "zenoh:status", "zenoh:a/b"} {
		if _, _, _, err := ParseRemote(bad); exit.Of(err) != exit.Usage {
			t.Errorf("ParseRemote(%q): %v", bad, err)
		}
	}
}

// While a node answers slowly, Reach keeps the connection to this node. A line that Reach writes into the log does not
// begin another connection.
func TestReachLetsANodeTakeItsTime(t *testing.T) {
	t.Parallel()
	slow := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	conns := make(chan net.Conn, 8)
	go func() {
		for {
			conn, err := slow.Accept()
			if err != nil {
				return
			}
			conns <- conn
		}
	}()
	_, err := Reach(t.Context(), zenoh.Config{Connect: []string{"tcp/" + slow.Addr().String()}},
		firstNews+time.Second, "", slog.New(slog.DiscardHandler))
	slow.Close()
	if exit.Of(err) != exit.Absent || len(conns) != 1 {
		t.Errorf("Reach = %v after %d connections, want none without an answer, after one", err, len(conns))
	}
}

// Reach logs at once which network does not answer, and later the reason, too. Its error has the advice.
func TestReachNamesTheNetworkThatItWaitsFor(t *testing.T) {
	t.Parallel()
	said := new(rttest.Output)
	const at = "tcp/127.0.0.1:9" // the discard port: nothing listens there
	far := []RemoteConfig{{Name: "white", Endpoint: at}}
	cfg := zenoh.Config{BackoffMax: zenoh.DefaultBackoffMin}
	all, err := Dial(t.Context(), far, cfg, firstNews+time.Second, slog.New(slog.NewTextHandler(said, nil)))
	if len(all) != 0 || exit.Of(err) != exit.Absent || !rttest.Says(err, at, "for 4s", "refused", cureLeader) {
		t.Errorf("Dial = %v, %v", all, err)
	}
	rttest.Contains(t, said.String(), "joining the leader's network", "leader=white", "at="+at, "no link", "refused")
	if n := strings.Count(said.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want one at once and one after %v: %s", n, firstNews, said)
	}
}
