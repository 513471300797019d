package uplink

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// replicaStand is one of several servers of a service, connected to one router.
type replicaStand struct {
	net   wire.Session
	token wire.Declaration // its own liveliness token

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

const replicaPrefix = "@lerobot/demo-m/main/demo"

// replicas connects these servers to the listener of a scripted server without services. An empty
// id makes a server of LeRobot's draft.
func replicas(t *testing.T, ids ...string) (router *scripted, all map[string]*replicaStand) {
	t.Helper()
	router, all = newScripted(t), map[string]*replicaStand{}
	for _, id := range ids {
		r := &replicaStand{ack: goodAck()}
		r.ack.ServerID = id
		r.status.ServerID = id
		r.status.MaxSessions = 4
		r.status.Capabilities = r.ack.Capabilities
		all[id] = r
		var err error
		if r.net, err = zenoh.Open(t.Context(), zenoh.Config{Connect: []string{router.endpoint}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.net.Close() })
		answers := map[string]func(wire.Query){wire.StatusKey(replicaPrefix): r.onStatus,
			wire.SessionKey(replicaPrefix): r.onSession}
		if id != "" {
			answers[wire.RobotSessionWildcard(replicaPrefix)] = r.onSession
		}
		for key, answer := range answers {
			if _, err := r.net.Queryable(key, answer); err != nil {
				t.Fatal(err)
			}
		}
		if id != "" {
			if r.token, err = r.net.Token(wire.ReplicaAliveKey(replicaPrefix, id)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.net.Token(wire.ServerAliveKey(replicaPrefix)); err != nil {
			t.Fatal(err)
		}
	}
	rttest.Eventually(t, "the servers' tokens", func() bool {
		keys, err := router.net.Tokens(t.Context(), replicaPrefix+"/server/**", time.Second)
		want := len(ids) + 1
		if all[""] != nil {
			want--
		}
		return err == nil && len(keys) == want
	})
	return router, all
}

func (r *replicaStand) change(f func(*replicaStand)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r)
}

func (r *replicaStand) onStatus(q wire.Query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hangs {
		return
	}
	answer := func() {
		defer q.Finish()
		q.Reply(q.Key(), wire.AppendStatus(nil, &r.status))
	}
	if r.far > 0 {
		time.AfterFunc(r.far, func() { r.mu.Lock(); defer r.mu.Unlock(); answer() })
		return
	}
	answer()
}

func (r *replicaStand) onSession(q wire.Query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.hangs || r.deaf:
	case r.slow > 0:
		time.AfterFunc(r.slow, func() { r.mu.Lock(); defer r.mu.Unlock(); r.answerSession(q) })
	default:
		r.answerSession(q)
	}
}

func (r *replicaStand) answerSession(q wire.Query) {
	defer q.Finish()
	var c wire.SessionClose
	if op, _ := wire.ParseOp(q.Payload()); op == wire.OpClose && wire.ParseSessionClose(&c, q.Payload()) == nil {
		r.closes = append(r.closes, c.SessionID)
		q.Reply(q.Key(), wire.AppendResetAck(nil, &wire.ResetAck{OK: true}))
		return
	}
	var o wire.SessionOpen
	if wire.ParseSessionOpen(&o, q.Payload()) != nil || o.ServerID != "" && r.status.ServerID != "" &&
		o.ServerID != r.status.ServerID {
		return
	}
	r.opens = append(r.opens, o)
	q.Reply(q.Key(), wire.AppendSessionAck(nil, &r.ack))
}

func (r *replicaStand) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.opens)
}

func refuse(text string, retry int) func(*replicaStand) {
	return func(r *replicaStand) {
		r.ack = wire.SessionAck{Error: text, SchemaVersion: 1, RetryAfterMs: retry, ServerID: r.status.ServerID}
	}
}

// Goal: the robot queries all servers, opens at the best by its id, and tries the next after a
// refusal.
func TestLinkChoosesAmongReplicas(t *testing.T) {
	busy := func(r *replicaStand) { r.status.ActiveSessions, r.status.ServerLoad = 2, 0.5 }
	for _, tt := range []struct {
		name   string
		ids    []string
		change map[string]func(*replicaStand)
		at     string // id of the server that takes the robot; 'none' after a refusal by all
		asked  string // servers with a session request, in order
		code   exit.Code
		says   string
	}{
		{"the one of less load", []string{"a", "b"}, map[string]func(*replicaStand){"a": busy}, "b", "b", 0, ""},
		{"one drains", []string{"a", "b"}, map[string]func(*replicaStand){"a": busy, "b": func(r *replicaStand) {
			r.status.Draining = true
		}}, "a", "a", 0, ""},
		{"one has become full", []string{"a", "b"}, map[string]func(*replicaStand){"a": busy,
			"b": refuse("server full: 4/4 sessions active", 1000)}, "a", "ab", 0, ""},
		{"one refuses", []string{"a", "b"}, map[string]func(*replicaStand){"a": busy,
			"b": refuse("camera top is missing", 0)}, "a", "ab", 0, ""},
		{"one has another bundle's columns", []string{"a", "b"},
			map[string]func(*replicaStand){"a": busy, "b": func(r *replicaStand) {
				r.ack.StateDim = 7
			}}, "a", "ab", 0, ""},
		{"all refuse", []string{"a", "b"}, map[string]func(*replicaStand){"a": refuse("camera top is missing", 0),
			"b": refuse("camera top is missing", 0)}, "none", "ab", exit.Config, "camera top"},
		{"one refuses, the other is full", []string{"a", "b"},
			map[string]func(*replicaStand){"a": refuse("server full: 4/4 sessions active", 5000),
				"b": refuse("camera top is missing", 0)}, "none", "ab", exit.Failure, "4/4"},
		{"one refuses, the other hangs", []string{"a", "b"},
			map[string]func(*replicaStand){"a": refuse("camera top is missing", 0), "b": func(r *replicaStand) {
				r.hangs = true
			}}, "none", "a", exit.Failure, "not every server"},
		{"one of the draft beside one that is full", []string{"", "b"},
			map[string]func(*replicaStand){"b": refuse("server full: 4/4 sessions active", 5000)}, "", "b", 0, ""},
		{"one of the draft alone", []string{""}, nil, "", "", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			router, all := replicas(t, tt.ids...)
			for id, f := range tt.change {
				all[id].change(f)
			}
			l, _ := router.dial(t, "")
			l.ReconnectInitialBackoff, l.ReconnectMaxBackoff = time.Hour, time.Hour
			err := l.connect(within(t, 2500*time.Millisecond))
			if tt.at == "none" {
				if err == nil || exit.Of(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("connect = %v (code %d), want code %d and %q", err, exit.Of(err), tt.code, tt.says)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if id := l.server(); id != tt.at {
				t.Errorf("open at %q, want %q", id, tt.at)
			}
			asked := ""
			for _, id := range []string{"a", "b"} {
				if all[id] != nil && all[id].asked() > 0 {
					asked += id
				}
			}
			if asked != tt.asked {
				t.Errorf("asked %q, want %q", asked, tt.asked)
			}
		})
	}
}

// Goal: when the robot's server dies, which the common token does not show, the robot changes to
// the next server at once and never returns. The death of another server has no effect.
func TestLinkLeavesADeadReplica(t *testing.T) {
	router, all := replicas(t, "a", "b", "c")
	all["b"].change(func(r *replicaStand) { r.status.ServerLoad = 0.5 })
	all["c"].change(func(r *replicaStand) { r.status.ServerLoad = 0.9 })
	l, _ := router.dial(t, "")
	l.RequestTimeout = time.Minute
	l.ReconnectInitialBackoff, l.ReconnectMaxBackoff = time.Hour, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	if err := l.connect(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Maintain(ctx) }()
	if err := all["c"].token.Undeclare(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * restPoll) // a session that is not lost gives no sign
	if id := l.server(); id != "a" || l.In.Sessions().Epoch() != 1 {
		t.Errorf("the death of another server: at %q in epoch %d, want a, 1", id, l.In.Sessions().Epoch())
	}
	if err := all["a"].token.Undeclare(); err != nil { // it still answers, and has the least load
		t.Fatal(err)
	}
	rttest.Eventually(t, "a session at b, without a back-off", func() bool {
		return l.server() == "b" && l.In.Sessions().Epoch() > 1
	})
	if n := all["a"].asked(); n != 1 {
		t.Errorf("a was asked %d times, want once", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("maintain = %v", err)
	}
}

// Goal: a server with another bundle that was present beside the robot's server is not that server
// with new weights. The robot waits for a server with its bundle, and goes on there.
func TestLinkWaitsForItsBundleBesideAnother(t *testing.T) {
	router, all := replicas(t, "a", "b", "c")
	digest := func(sha string, load float64) func(*replicaStand) {
		return func(r *replicaStand) {
			r.ack.ModelSHA256 = sha
			r.status.ModelSHA256 = sha
			r.status.ServerLoad = load
		}
	}
	all["a"].change(digest("aa", 0))
	all["b"].change(digest("bb", 0.5))
	all["c"].change(digest("aa", 0.9))
	if err := all["c"].token.Undeclare(); err != nil { // the server is not present yet
		t.Fatal(err)
	}
	all["c"].change(func(r *replicaStand) { r.status.Draining = true })
	l, _ := router.dial(t, "")
	l.RequestTimeout = time.Minute
	l.ReconnectInitialBackoff, l.ReconnectMaxBackoff = 20*time.Millisecond, 20*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	if err := l.connect(ctx); err != nil {
		t.Fatal(err)
	}
	rttest.Eventually(t, "the other server's token", func() bool { return l.servers.state("b") == alive })
	ended := make(chan error, 1)
	go func() { ended <- l.Maintain(ctx) }()
	if err := all["a"].token.Undeclare(); err != nil {
		t.Fatal(err)
	}
	rttest.Eventually(t, "that it waits", func() bool {
		why := l.In.NoSession.Load()
		return why != nil && strings.Contains(*why, "another bundle")
	})
	all["c"].change(func(r *replicaStand) { r.status.Draining = false })
	if _, err := all["c"].net.Token(wire.ReplicaAliveKey(replicaPrefix, "c")); err != nil {
		t.Fatal(err)
	}
	rttest.Eventually(t, "a session at c", func() bool {
		return l.server() == "c" && l.In.Sessions().Epoch() > 1
	})
	if n := all["b"].asked(); n != 0 {
		t.Errorf("the server of another bundle was asked %d times, want not at all", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("maintain = %v", err)
	}
}

// Goal: a robot waits for a server's retry interval instead of its own back-off.
func TestLinkDoesNotAskBeforeItMay(t *testing.T) {
	router, all := replicas(t, "a", "b")
	all["a"].change(refuse("server full: 4/4 sessions active", 3_600_000))
	all["b"].change(refuse("server full: 4/4 sessions active", 400)) // the shorter interval is used
	l, _ := router.dial(t, "")
	l.ReconnectInitialBackoff, l.ReconnectMaxBackoff = time.Millisecond, time.Millisecond
	ended := make(chan error, 1)
	go func() { ended <- l.connect(within(t, 20*time.Second)) }()
	asked := func() int { return all["a"].asked() + all["b"].asked() }
	rttest.Eventually(t, "both to be asked", func() bool { return asked() == 2 })
	began := time.Now()
	rttest.Eventually(t, "them to be asked again", func() bool { return asked() > 2 })
	if waited := time.Since(began); waited < 350*time.Millisecond {
		t.Errorf("asked again after %v, want the 400 ms that one of them said", waited)
	}
	all["b"].change(func(r *replicaStand) { r.ack = goodAck(); r.ack.ServerID = "b" })
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// Goal: when two servers with one id, such as a running machine and its copy, both take the robot,
// the robot stays at one and closes the session of the other.
func TestLinkKeepsOneOfTwoSessions(t *testing.T) {
	router, all := replicas(t, "a", "b")
	all["b"].change(func(r *replicaStand) { r.status.ServerID, r.ack.ServerID, r.ack.SessionID = "a", "a", "copy" })
	all["a"].change(func(r *replicaStand) { r.ack.SessionID = "original" })
	l, _ := router.dial(t, "")
	if err := l.connect(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"original": "copy", "copy": "original"}[l.In.Sessions().ID()]
	for _, r := range all {
		r.change(func(r *replicaStand) {
			if len(r.opens) != 1 || len(r.closes) != 1 || r.closes[0] != other {
				t.Errorf("with a session %q: %d opens, closes %q at %s, want one of each, of %q", l.In.Sessions().ID(),
					len(r.opens), r.closes, r.ack.SessionID, other)
			}
		})
	}
}

// Goal: a robot waits for the server at which it opens a session, even for a slow one, but not for
// another server that has just stopped and never ends its query.
func TestLinkWaitsForTheServerItMeans(t *testing.T) {
	rttest.RealTime(t)
	for _, tt := range []struct {
		name     string
		own, its func(*replicaStand)
	}{
		{"another has gone", func(*replicaStand) {}, func(r *replicaStand) { r.deaf, r.status.ServerLoad = true, 0.9 }},
		{"it is slow itself", func(r *replicaStand) {
			r.slow = 2 * replyPatience
		}, func(r *replicaStand) { r.status.ServerLoad = 0.9 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			router, all := replicas(t, "a", "b")
			all["a"].change(tt.own)
			all["b"].change(tt.its)
			l, _ := router.dial(t, "")
			l.RequestTimeout = 20 * time.Second
			l.ReconnectInitialBackoff, l.ReconnectMaxBackoff = time.Hour, time.Hour
			began := time.Now()
			if err := l.connect(within(t, 25*time.Second)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 5*time.Second || l.server() != "a" {
				t.Errorf("open at %q after %v, want a, without the time-out of the query", l.server(),
					took)
			}
		})
	}
}
