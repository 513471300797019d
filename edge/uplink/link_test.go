package uplink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

var testNames = []string{"pan.pos", "gripper.pos"}

// server is a server whose answers a test sets, over a real transport on loopback.
type server struct {
	endpoint string // endpoint of the listener, if the server listens
	net      wire.Session
	token    wire.Declaration // newest liveliness token of the server

	mu     sync.Mutex // guards the rest
	status wire.Status
	ack    wire.SessionAck
	opens  []wire.SessionOpen
	closes []string      // session ids
	hangs  bool          // no query ends
	deaf   bool          // no session query ends
	slow   time.Duration // delay of the answers to session queries
	far    time.Duration // delay of the status replies
}

func freePort(t *testing.T) string {
	t.Helper()
	l := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return "tcp/" + l.Addr().String()
}

func goodAck() wire.SessionAck {
	a := wire.SessionAck{Accepted: true, SessionID: "s1", SchemaVersion: 1}
	a.ModelRepo = "demo/m"
	a.ModelRevision = "main"
	a.ActionNames = testNames
	a.StateDim = 2
	a.ChunkSize = 50
	a.TrainedFPS = 60
	a.RTCExecutionHorizon = 24
	a.WarmedUp = true
	a.T = 1
	a.Nonce = 41
	return a
}

// newServer listens and answers the session requests of these services, but no status query.
func newServer(t *testing.T, services ...string) *server {
	t.Helper()
	s := &server{endpoint: freePort(t), ack: goodAck()}
	s.net = rttest.Must(zenoh.Open(t.Context(), zenoh.Config{Listen: []string{s.endpoint}}))(t)
	t.Cleanup(func() { s.net.Close() })
	for _, name := range services {
		prefix := rttest.Must(wire.ServicePrefix("demo/m", "main", name))(t)
		rttest.Must(s.net.Queryable(wire.SessionKey(prefix), s.onSession))(t)
		s.token = rttest.Must(s.net.Token(wire.ServerAliveKey(prefix)))(t)
	}
	return s
}

func (s *server) change(f func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *server) answer(change func(*wire.SessionAck)) { s.change(func(s *server) { change(&s.ack) }) }

func (s *server) onStatus(q wire.Query) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hangs {
		s.after(s.far, func() {
			defer q.Finish()
			q.Reply(q.Key(), wire.Append(nil, &s.status))
		})
	}
}

func (s *server) onSession(q wire.Query) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hangs && !s.deaf {
		s.after(s.slow, func() { s.answerSession(q) })
	}
}

// after calls answer when delay has passed, or at once if delay is 0. It holds mu during the call.
func (s *server) after(delay time.Duration, answer func()) {
	if delay > 0 {
		time.AfterFunc(delay, func() { s.change(func(*server) { answer() }) })
		return
	}
	answer()
}

func (s *server) answerSession(q wire.Query) {
	defer q.Finish()
	var c wire.SessionClose
	if op, _ := wire.ParseOp(q.Payload()); op == wire.OpClose && wire.Parse(&c, q.Payload()) == nil {
		s.closes = append(s.closes, c.SessionID)
		q.Reply(q.Key(), wire.Append(nil, &wire.ResetAck{OK: true}))
		return
	}
	var o wire.SessionOpen
	if wire.Parse(&o, q.Payload()) != nil || o.ServerID != "" && s.status.ServerID != "" &&
		o.ServerID != s.status.ServerID {
		return
	}
	s.opens = append(s.opens, o)
	q.Reply(q.Key(), wire.Append(nil, &s.ack))
}

// asked counts the session requests.
func (s *server) asked() (n int) {
	s.change(func(s *server) { n = len(s.opens) })
	return n
}

// closed counts the closed sessions.
func (s *server) closed() (n int) {
	s.change(func(s *server) { n = len(s.closes) })
	return n
}

// dial returns a link to the server, and the link's log.
func (s *server) dial(t *testing.T, service string) (*Link, *bytes.Buffer) {
	t.Helper()
	n := rttest.Must(zenoh.Open(t.Context(), zenoh.Config{Connect: []string{s.endpoint}}))(t)
	t.Cleanup(func() { n.Close() })
	log := new(bytes.Buffer)
	l := New(Config{
		Schedule:                chunk.Config{Schedule: "drtc"},
		FPS:                     60,
		Robot:                   "so101",
		Service:                 service,
		Connect:                 []string{s.endpoint},
		Limits:                  Limits{RequestTimeout: time.Second},
		ReconnectInitialBackoff: 20 * time.Millisecond,
		ReconnectMaxBackoff:     50 * time.Millisecond,
		Tags:                    map[string]string{"lab": "3"},
		Cameras:                 []capture.Config{{Name: "top", Source: "sim"}},
		Identity:                &operator.Identity{ID: "arm", Instance: operator.NewInstance(), Host: "left-pi"},
		Names:                   testNames,
		Units:                   []string{"degrees", "degrees"},
		RealArm:                 func() string { return "--bus is a serial port" },
		OtherRobot:              func() string { return "" },
		Log:                     slog.New(slog.NewTextHandler(log, nil)),
		Clock:                   rt.KernelClock(),
	})
	l.net = n
	l.Out.Task.Store(new("pick"))
	return l, log
}

// demoLink returns a server of the service demo, a link to it, and the link's log. The function change, if not nil,
// changes the answers to session requests.
func demoLink(t *testing.T, change func(*wire.SessionAck)) (*server, *Link, *bytes.Buffer) {
	t.Helper()
	s := newServer(t, "demo")
	if change != nil {
		s.answer(change)
	}
	l, log := s.dial(t, "")
	return s, l, log
}

// maintain keeps the open session of a link until the test ends.
func maintain(t *testing.T, l *Link) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := rttest.Go(func() error { return l.Maintain(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Maintain = %v, want nil at the end of its context", err)
		}
	})
}

// backOff sets the pause between two attempts.
func (l *Link) backOff(d time.Duration) { l.ReconnectInitialBackoff, l.ReconnectMaxBackoff = d, d }

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// opens opens a session.
func opens(t *testing.T, l *Link) {
	t.Helper()
	rttest.Do(t, l.connect(within(t, 10*time.Second)))
}

func TestLinkOpensTheOnlyService(t *testing.T) {
	s, l, _ := demoLink(t, nil)
	opens(t, l)
	o := s.opens[0]
	if o.Instance != l.Identity.Instance || o.Host != "left-pi" || l.In.Sessions().Open.Nonce != 41 {
		t.Errorf("instance %q, host %q, nonce %d, want %q, left-pi, 41", o.Instance, o.Host, l.In.Sessions().Open.Nonce,
			l.Identity.Instance)
	}
	if o.ClientUUID != "arm" || o.FPS != 60 || o.StateDim != 2 || fmt.Sprint(o.ActionNames) != fmt.Sprint(testNames) ||
		fmt.Sprint(o.CameraNames) != "[observation.images.top]" || o.Task != "pick" || !o.RTCEnabled ||
		o.SchemaVersion != 1 {
		t.Errorf("asked with %+v", o)
	}
	if l.In.Sessions().Epoch() != 1 || l.contract.Horizon != 50 || l.contract.PrefixEnd != 24 ||
		l.In.Sessions().Open.Old {
		t.Errorf("epoch %d contract %+v uplink %+v", l.In.Sessions().Epoch(), l.contract, l.In.Sessions().Open)
	}
}

func TestLinkRefusals(t *testing.T) {
	demo := []string{"demo"}
	for _, tt := range []struct {
		name     string
		services []string
		service  string
		change   func(*wire.SessionAck)
		code     exit.Code // exit.Failure: connect retries until its context ends
		says     string
	}{
		{"two services and no choice", []string{"demo", "other"}, "", nil, exit.Config, "--service"},
		{"a service that is not there", demo, "pick", nil, exit.Failure, `"pick"`},
		{"nobody serves", nil, "", nil, exit.Failure, "no lean-server answers"},
		{"contract refused", demo, "", func(a *wire.SessionAck) {
			a.Accepted, a.Error = false, "state dim mismatch: server=6, client=2"
		}, exit.Config, "state dim mismatch"},
		{"full", demo, "", func(a *wire.SessionAck) {
			a.Accepted, a.Error = false, "server full: 5/5 sessions active"
		}, exit.Failure, "5/5"},
		{"another process has the name", demo, "", func(a *wire.SessionAck) {
			*a = takenBy("right-pi")
		}, exit.Failure, "another robot on host right-pi runs as arm: give one of them another --id"},
		{"another process has the name, nobody knows where", demo, "", func(a *wire.SessionAck) {
			*a = takenBy(wire.HostUnknown)
		}, exit.Failure, "another robot runs as arm: give one of them another --id"},
		{"other columns", demo, "", func(a *wire.SessionAck) {
			a.ActionNames = []string{"gripper.pos", "pan.pos"}
		}, exit.Config, "gripper.pos"},
		{"actions in other units", demo, "", func(a *wire.SessionAck) {
			a.ActionUnits = []string{"degrees", "radians"}
		}, exit.Config, `server wants ["degrees" "radians"]`},
		{"a state in other units", demo, "", func(a *wire.SessionAck) {
			a.StateUnits = []string{"radians", "degrees"}
		}, exit.Config, `server wants ["radians" "degrees"]`},
		{"chunks of one action", demo, "", func(a *wire.SessionAck) {
			a.ChunkSize = 1
		}, exit.Config, "chunk_size 1"},
		{"chunks without end", demo, "", func(a *wire.SessionAck) {
			a.ChunkSize = 4096
		}, exit.Config, "chunk_size"},
		{"another rate", demo, "", func(a *wire.SessionAck) {
			a.TrainedFPS = 30
		}, exit.Config, "trained at 30 actions per second, and --fps is 60"},
		{"a policy for simulation", demo, "", func(a *wire.SessionAck) {
			a.Simulation, a.ModelSHA256 = true, "0123456789abcdef"
		}, exit.Config, "demo/m@main (sha256 0123456789ab), which is for a simulated arm only"},
		{"another state", demo, "", func(a *wire.SessionAck) { a.StateDim = 7 }, exit.Config, "state of 7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.services...)
			if tt.change != nil {
				s.answer(tt.change)
			}
			l, _ := s.dial(t, tt.service)
			err := l.connect(within(t, 1500*time.Millisecond))
			rttest.Ends(t, err, tt.code, tt.says)
			if l.In.Sessions().Epoch() != 0 {
				t.Error("a session counts as open")
			}
		})
	}
}

func takenBy(host string) wire.SessionAck {
	return wire.SessionAck{
		Error:         "client 'arm' is open on host " + host,
		SchemaVersion: 1,
		HeldBy:        host,
		RetryAfterMs:  20,
	}
}

// Goal: no session begins at a server that has not warmed its policy up; the robot logs the reason for its wait, closes
// the session, and opens another session as soon as the policy has run.
func TestLinkWaitsForTheWarmUp(t *testing.T) {
	t.Parallel()
	s, l, log := demoLink(t, func(a *wire.SessionAck) { a.WarmedUp = false })
	l.backOff(time.Hour)
	ended := rttest.Go(func() error { return l.connect(within(t, 8*time.Second)) })
	rttest.Eventually(t, "a second request", func() bool { return s.asked() >= 2 })
	if why := l.In.NoSession.Load(); why == nil || !strings.Contains(*why, "warmed_up") || l.In.Sessions().Open != nil {
		t.Errorf("a session %v, none for %v; want none for warmed_up", l.In.Sessions().Open, why)
	}
	s.answer(func(a *wire.SessionAck) { a.WarmedUp = true })
	rttest.Do(t, <-ended)
	s.change(func(s *server) {
		rttest.Want(t, len(s.closes), len(s.opens)-1, "%d sessions opened and closed (all but the last)", len(s.opens))
	})
	if n := strings.Count(log.String(), "warmed its policy up"); n != 1 {
		t.Errorf("the reason is %d times in the log, want once:\n%s", n, log)
	}
}

// Goal: a robot that returns while its earlier session still exists repeats its request at the server's retry interval,
// and not at its own back-off, until the server no longer refuses it for this reason. The log has the refusal once.
func TestLinkWaitsForItsOwnName(t *testing.T) {
	s, l, log := demoLink(t, func(a *wire.SessionAck) { *a = takenBy("right-pi") })
	l.backOff(time.Hour)
	ended := rttest.Go(func() error { return l.connect(within(t, 8*time.Second)) })
	rttest.Eventually(t, "three refusals", func() bool { return s.asked() >= 3 })
	if why := l.In.NoSession.Load(); why == nil || !strings.Contains(*why, "right-pi") {
		t.Errorf("a run that gives up now has no session for %v, want the other's host", why)
	}
	s.answer(func(a *wire.SessionAck) { *a = goodAck() })
	rttest.Do(t, <-ended)
	if n := strings.Count(log.String(), "give one of them another --id"); n != 1 ||
		!strings.Contains(log.String(), "level=WARN") {
		t.Errorf("people were told %d times, want once and as a warning: %s", n, log)
	}
}

// A server that asks for another request at once gets at most one per restPoll.
func TestLinkDoesNotFloodAServer(t *testing.T) {
	s, l, _ := demoLink(t, func(a *wire.SessionAck) { *a = takenBy("right-pi"); a.RetryAfterMs = 1 })
	began := time.Now()
	rttest.Fails(t, l.connect(within(t, 3*time.Second)), "right-pi")
	if n, most := s.asked(), int(time.Since(began)/restPoll)+1; n > most {
		t.Errorf("%d requests, want at most %d", n, most)
	}
}

// Goal: a robot that opens a session again waits for the service that it had. Another service, or
// another model under the same service, does not end its run.
func TestLinkLooksForTheServiceItHad(t *testing.T) {
	for name, other := range map[string][2]string{"another service": {"demo/m", "other"},
		"another model": {"demo/bigger", "demo"}} {
		for _, service := range []string{"", "demo"} {
			t.Run(name+" "+service, func(t *testing.T) {
				s := newServer(t, "demo")
				l, log := s.dial(t, service)
				ctx := within(t, 8*time.Second)
				rttest.Do(t, l.connect(ctx))
				had := l.contract.Prefix
				prefix := rttest.Must(wire.ServicePrefix(other[0], "main", other[1]))(t)
				rttest.Must(s.net.Queryable(wire.SessionKey(prefix), s.onSession))(t)
				rttest.Must(s.net.Token(wire.ServerAliveKey(prefix)))(t)
				if got, err := l.find(ctx); err != nil || got != had { // both services are present
					t.Fatalf("find = %s, %v, want %s", got, err, had)
				}
				s.token.Undeclare()
				rttest.Eventually(t, "the loss", func() bool { return l.tokenLost.Load() })
				got, err := l.find(ctx)
				if err == nil || exit.Of(err) != exit.Failure {
					t.Fatalf("find = %s, %v (code %d), want an error that passes", got, err, exit.Of(err))
				}
				if unseen := service == "demo" && other[1] != service; !unseen &&
					(!rttest.Says(err, had, prefix)) {
					t.Errorf("find says %v, want %s and %s named", err, had, prefix)
				}
				rttest.Must(s.net.Token(wire.ServerAliveKey(had)))(t)
				if err := l.connect(ctx); err != nil || l.contract.Prefix != had {
					t.Errorf("connect = %v with %s, want %s again\n%s", err, l.contract.Prefix, had, log)
				}
			})
		}
	}
}

// Goal: the first session sets the number of steps in the history; a later session may use fewer steps, but not more.
func TestLinkAgreesOnSteps(t *testing.T) {
	s, l, _ := demoLink(t, nil)
	ctx := within(t, 5*time.Second)
	for i, tt := range []struct{ model, said, want int }{{3, wire.MaxSteps, 3}, {2, 3, 2}, {0, 3, 1}, {3, 3, 3}} {
		s.answer(func(a *wire.SessionAck) { a.Steps = tt.model })
		rttest.Do(t, l.connect(ctx))
		if got, up := s.opens[i].Steps, l.In.Sessions().Open; got != tt.said || up.Steps != tt.want ||
			l.contract.Steps != tt.want {
			t.Errorf("session %d: announced %d, sends %d steps, want %d and %d", i, got, up.Steps, tt.said, tt.want)
		}
	}
	s.answer(func(a *wire.SessionAck) { a.Steps = 4 })
	// a model that looks further back
	rttest.Ends(t, l.connect(ctx), exit.Config, "looks at 4 observations together, and this run keeps 3")
}

func TestLinkNamesItsRawPictures(t *testing.T) {
	s, l, _ := demoLink(t, nil)
	l.Cameras = append(l.Cameras, capture.Config{Name: "wrist", Source: "sim", Quality: 80})
	for quality, want := range map[int]string{0: "[observation.images.top]", 90: "[]"} {
		l.JPEGQuality = quality
		opens(t, l)
		rttest.Want(t, fmt.Sprint(s.opens[len(s.opens)-1].RawImages), want,
			"quality %d: size of raw pictures", quality)
	}
}

func TestLinkAcceptsAServerThatNamesNoColumnsLoudly(t *testing.T) {
	s := newServer(t, "demo")
	s.answer(func(a *wire.SessionAck) { a.ActionNames, a.T = nil, 0 })
	l, log := s.dial(t, "demo")
	opens(t, l)
	rttest.Contains(t, log.String(), "level=WARN", "order cannot be checked")
	if !l.In.Sessions().Open.Old {
		t.Error("a server without t in its ack counts as a new one")
	}
}

func TestLinkReopensWhenTheServersTokenReturns(t *testing.T) {
	t.Parallel()
	s, l, _ := demoLink(t, nil)
	opens(t, l)
	l.RequestTimeout = time.Minute
	// the token's return must end the wait
	l.backOff(time.Minute)
	maintain(t, l)
	s.token.Undeclare()
	rttest.Eventually(t, "the loss", func() bool { return l.In.Sessions().Lost > 0 && l.In.Sessions().Epoch() == 0 })
	token := rttest.Must(s.net.Token(wire.ServerAliveKey(l.contract.Prefix)))(t)
	defer token.Undeclare()
	rttest.Eventually(t, "the second session", func() bool { return l.In.Sessions().Epoch() > 1 })
	rttest.Want(t, s.asked(), 2, "sessions asked for")
}

// Goal: the edge closes a session that it refuses, since an open session would occupy a place until its idle timeout.
func TestLinkGivesBackWhatItRefuses(t *testing.T) {
	s, l, _ := demoLink(t, func(a *wire.SessionAck) { a.StateDim = 7 })
	if err := l.connect(within(t, 3*time.Second)); err == nil {
		t.Fatal("a state of another size was accepted")
	}
	rttest.Eventually(t, "the close", func() bool { return s.closed() == 1 })
}

// Goal: an edge does not take its session for lost if it has sent no request since the last chunk (paused, or without a
// valid state), or if it has only just sent its first request after a long rest.
func TestNothingAskedIsNoTrouble(t *testing.T) {
	l := New(Config{Limits: Limits{RequestTimeout: time.Second}, Clock: rttest.NewClock(rt.Instant(time.Hour))})
	l.serverToken.Store(tokenAlive)
	l.Out.MergedAt.Store(int64(time.Minute))
	l.Out.AskedAt.Store(int64(time.Minute) - 1)
	if _, why := l.lossReason(); why != "" {
		t.Errorf("lossReason() = %q, want none", why)
	}
	l.Out.AskedAt.Store(int64(time.Minute) + 1)
	if _, why := l.lossReason(); why == "" {
		t.Error("an unanswered request an hour ago loses no session")
	}
	l.Out.AskedAt.Store(int64(time.Hour - time.Second/2))
	if _, why := l.lossReason(); why != "" {
		t.Errorf("half a second after the first request since an hour: lossReason() = %q, want none", why)
	}
}

// Goal: the rate of a run follows from --fps, --fps-mismatch and the server's rate.
func TestAgreeFPS(t *testing.T) {
	for _, tt := range []struct {
		name         string
		fps, trained float64
		other        bool    // --fps-mismatch allow is given
		want         float64 // 0: refused with code 3
		says         string
	}{
		{"nobody gave one: the policy's", 0, 30, false, 30, ""},
		{"nobody gave one, and a policy of 29.97", 0, 29.97, false, 29.97, ""},
		{"the policy's", 30, 30, false, 30, ""},
		{"the policy's, as far as a float tells", 30, 30 + fpsTolerance/2, false, 30, ""},
		{"twice the policy's", 60, 30, false, 0,
			"2 times the speed it was shown. Leave --fps out, or add --fps-mismatch allow"},
		{"twice the policy's, on purpose", 60, 30, true, 60, "level=WARN"},
		{"the server does not say", 60, 0, false, 60, ""},
		{"nobody says", 0, 0, true, 0, "--fps"},
		{"a policy that is too fast", 0, 2000, true, 0, "2000"},
		{"a policy that is too slow", 0, 0.1, false, 0, "0.1"},
		{"a policy that goes backwards", 0, -30, false, 0, "-30"},
	} {
		log := new(bytes.Buffer)
		l := New(Config{FPS: tt.fps, OtherFPS: tt.other})
		got, err := l.agreedFPS(tt.trained, slog.New(slog.NewTextHandler(log, nil)))
		if got != tt.want || (err == nil) != (tt.want != 0) || err != nil && exit.Of(err) != exit.Config {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
		rttest.Contains(t, fmt.Sprint(err, log), tt.says)
	}
}

func TestLinkGivesUpOnAnotherModel(t *testing.T) {
	s, l, _ := demoLink(t, nil)
	opens(t, l)
	s.answer(func(a *wire.SessionAck) { a.ModelSHA256 = "new"; a.ChunkSize = 40 })
	l.RequestTimeout = 100 * time.Millisecond // without an answer for this time, the link opens the session again
	l.Out.AskedAt.Store(int64(l.Clock.Now()))
	err := l.Maintain(within(t, 8*time.Second))
	if exit.Of(err) != exit.Config || !rttest.Says(err, "another model") || !l.In.Refused.Load() {
		t.Errorf("keep = %v, want a refusal with code 3", err)
	}
}

func TestLinkWantsTheExpectedModel(t *testing.T) {
	for _, tt := range []struct{ expect, has, says string }{
		{"", "", ""}, {"", "ab12", ""}, {"ab", "ab12", ""}, {"ab12", "ab12", ""},
		{"ab13", "ab12", "sha256 ab12, want one beginning with ab13 (--expect-model)"},
		{"ab", "", "sha256 unknown, want one beginning with ab"},
	} {
		l, ack := New(Config{Names: testNames, ExpectModel: tt.expect, Log: slog.New(slog.DiscardHandler)}), goodAck()
		ack.ModelSHA256 = tt.has
		if _, err := l.checkContract("p", &ack); tt.says == "" {
			rttest.Do(t, err)
		} else {
			rttest.Ends(t, err, exit.Config, tt.says)
		}
	}
}

// Goal: a task that the server cannot read is an error and changes nothing. A reset without a task
// only needs an acknowledgement.
func TestResetNamesTheTask(t *testing.T) {
	s, l, _ := demoLink(t, nil)
	if acked, err := l.Reset(t.Context(), 1, "fly"); acked || err == nil {
		t.Errorf("without a session: %v, %v, want an error", acked, err)
	}
	opens(t, l)
	var got []wire.Reset
	key := rttest.Must(wire.ResetKey(l.contract.Prefix, "arm"))(t)
	rttest.Must(s.net.Queryable(key, func(q wire.Query) {
		defer q.Finish()
		var m wire.Reset
		if err := wire.Parse(&m, q.Payload()); err != nil {
			t.Error(err)
		}
		got = append(got, m)
		ack := wire.ResetAck{OK: m.Task != "fly"}
		if !ack.OK {
			ack.Error = "task is pinned"
		}
		q.Reply(q.Key(), wire.Append(nil, &ack))
	}))(t)
	if acked, err := l.Reset(t.Context(), 2, "fly"); acked || !rttest.Says(err, "pinned") {
		t.Errorf("a task that is refused: %v, %v, want the server's text", acked, err)
	}
	if acked, err := l.Reset(t.Context(), 3, ""); !acked || err != nil {
		t.Errorf("without a task: %v, %v", acked, err)
	}
	want := []wire.Reset{{ClientUUID: "arm", EpisodeID: 2, Task: "fly"}, {ClientUUID: "arm", EpisodeID: 3}}
	rttest.Equal(t, got, want, "the server got")
}

// Goal: the log reports only once that another robot has this robot's name, however many answers arrive.
func TestLinkTellsOfATwinOnce(t *testing.T) {
	log := new(bytes.Buffer)
	l := New(Config{Identity: &operator.Identity{ID: "arm"}, Log: slog.New(slog.NewTextHandler(log, nil))})
	l.warnDuplicate()
	rttest.Want(t, log.Len(), 0, "without one")
	for range 2 {
		l.receiver.duplicate.Store(true)
		l.warnDuplicate()
	}
	if n := strings.Count(log.String(), "another robot that runs as arm"); n != 1 {
		t.Errorf("told %d times, want once: %s", n, log)
	}
}

// Goal: the default schedule requests no continuation from a policy that cannot continue a chunk, and logs this once. A
// schedule that a flag selected requests it.
func TestLinkAsksForWhatThePolicyCan(t *testing.T) {
	for _, tt := range []struct {
		name        string
		schedule    chunk.Config
		can         bool
		asked, says bool
	}{
		{"it can", chunk.Config{Schedule: "drtc"}, true, true, false},
		{"it cannot", chunk.Config{Schedule: "drtc"}, false, false, true},
		{"it cannot and is told to", chunk.Config{Schedule: "drtc", Prefix: "rows"}, false, true, false},
		{"it cannot and the schedule is about that", chunk.Config{Schedule: "rtc"}, false, true, false},
		{"nobody wants it", chunk.Config{Schedule: "drtc", Prefix: "none"}, true, false, false},
		{"nor does another schedule", chunk.Config{Schedule: "append"}, false, false, false},
	} {
		router, all := replicas(t, "a")
		all["a"].change(func(r *server) { r.status.SupportsRTC = tt.can })
		l, log := router.dial(t, "")
		l.Schedule = tt.schedule
		for range 2 {
			opens(t, l)
		}
		all["a"].change(func(r *server) {
			for _, o := range r.opens {
				rttest.Want(t, o.RTCEnabled, tt.asked, "%s: asked", tt.name)
			}
		})
		want := 0
		if tt.says {
			want = 1
		}
		if n := strings.Count(log.String(), "cannot continue"); n != want {
			t.Errorf("%s: said %d times, want %d:\n%s", tt.name, n, want, log)
		}
	}
}

// Goal: a refusal for missing cameras names the flag of each missing camera.
func TestARefusalForCamerasNamesTheFlags(t *testing.T) {
	refused := exit.Errorf(exit.Config,
		"session refused by x: missing camera features ['observation.images.wrist'] (client provides [])")
	expected := []string{"observation.images.top", "observation.images.wrist", "observation.images.side"}
	for _, tt := range []struct {
		bus  string
		err  error
		says string
		not  string
	}{
		{"/dev/ttyACM0", refused, "add --camera wrist=/dev/video0 --camera side=/dev/video2", "--camera top="},
		{"sim", refused, "add --camera wrist=sim --camera side=sim", "video"},
		{"/dev/ttyACM0", exit.Errorf(exit.Config, "state dim mismatch"), "state dim", "--camera"},
		{"/dev/ttyACM0", errors.New("no camera server answers"), "answers", "--camera"},
	} {
		l := New(Config{Bus: tt.bus, Cameras: []capture.Config{{Name: "top", Source: "x"}}})
		err := l.nameCameraFlags(tt.err, expected)
		if exit.Of(err) != exit.Of(tt.err) || !rttest.Says(err, tt.says) || rttest.Says(err, tt.not) {
			t.Errorf("--bus %s: %v (code %d), want %q and not %q", tt.bus, err, exit.Of(err), tt.says, tt.not)
		}
	}
	if l := New(Config{}); l.nameCameraFlags(nil, expected) != nil {
		t.Error("a session without an error is refused")
	}
}

// If the time left is too short for a query, askSession returns neither a reply nor an error.
func TestAskSessionWithHardlyAnyTime(t *testing.T) {
	_, l, _ := demoLink(t, nil)
	replies, err := l.askSession(t.Context(), "@lerobot/m/main/demo", nil, 900*time.Microsecond)
	if err != nil || replies != nil {
		t.Errorf("%v, %v, want neither", replies, err)
	}
}

// replying is a network in which every query gets the same replies.
type replying struct {
	wire.Session
	replies []wire.Reply
}

func (r replying) Get(context.Context, string, []byte, time.Duration) ([]wire.Reply, error) {
	return r.replies, nil
}

// Goal: an answer that is no ack does not take away the session that another server has opened. Without such a session
// the answer gives the reason.
func TestAnUnusableAnswerHidesNoSession(t *testing.T) {
	good := wire.Reply{Payload: wire.Append(nil, new(goodAck()))}
	garbage, denied := wire.Reply{Payload: []byte{0xc1}}, wire.Reply{Payload: []byte("access denied: x"), Err: true}
	for i, tt := range []struct {
		replies []wire.Reply
		code    exit.Code
	}{
		{[]wire.Reply{good, garbage}, exit.Clean}, {[]wire.Reply{garbage, good}, exit.Clean},
		{[]wire.Reply{good, denied}, exit.Clean}, {[]wire.Reply{denied, good}, exit.Clean},
		{[]wire.Reply{garbage}, exit.Failure}, {[]wire.Reply{denied, garbage}, exit.Config},
	} {
		l := New(Config{
			Identity: &operator.Identity{ID: "arm"},
			Limits:   Limits{RequestTimeout: time.Second},
			Clock:    rttest.NewClock(1),
		})
		l.net = replying{replies: tt.replies}
		ack, err := l.request(t.Context(), "demo/m/main", "", false)
		if exit.Of(err) != tt.code || (ack != nil) != (tt.code == exit.Clean) {
			t.Errorf("replies %d: %v, %v (code %d), want code %d", i, ack, err, exit.Of(err), tt.code)
		}
	}
}

// Goal: no refusal makes a robot wait for days.
func TestARetryIsBounded(t *testing.T) {
	var later *temporaryError
	err := New(Config{}).temporaryRefusal(&wire.SessionAck{RetryAfterMs: math.MaxInt32})
	if !errors.As(err, &later) || later.after != longestRetry {
		t.Errorf("%+v, want a wait of %v", later, longestRetry)
	}
}
