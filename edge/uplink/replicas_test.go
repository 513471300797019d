package uplink

import (
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const replicaPrefix = "@lerobot/demo-m/main/demo"

// replicas connects these servers to the listener of a server without services. An empty
// id makes a server of LeRobot's draft.
func replicas(t *testing.T, ids ...string) (router *server, all map[string]*server) {
	t.Helper()
	router, all = newServer(t), map[string]*server{}
	for _, id := range ids {
		r := &server{ack: goodAck()}
		r.ack.ServerID = id
		r.status.ServerID = id
		r.status.MaxSessions = 4
		r.status.Capabilities = r.ack.Capabilities
		all[id] = r
		r.net = rttest.Must(zenoh.Open(t.Context(), zenoh.Config{Connect: []string{router.endpoint}}))(t)
		t.Cleanup(func() { r.net.Close() })
		answers := map[string]func(wire.Query){wire.StatusKey(replicaPrefix): r.onStatus,
			wire.SessionKey(replicaPrefix): r.onSession}
		if id != "" {
			answers[wire.RobotSessionWildcard(replicaPrefix)] = r.onSession
		}
		for key, answer := range answers {
			rttest.Must(r.net.Queryable(key, answer))(t)
		}
		if id != "" {
			r.token = rttest.Must(r.net.Token(wire.ReplicaAliveKey(replicaPrefix, id)))(t)
		}
		rttest.Must(r.net.Token(wire.ServerAliveKey(replicaPrefix)))(t)
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

func refuse(text string, retry int) func(*server) {
	return func(r *server) {
		r.ack = wire.SessionAck{Error: text, SchemaVersion: 1, RetryAfterMs: retry, ServerID: r.status.ServerID}
	}
}

// Goal: the robot queries all servers, requests a session from the best server by its id, and tries the next server
// after a refusal.
func TestLinkChoosesAmongReplicas(t *testing.T) {
	busy := func(r *server) { r.status.ActiveSessions, r.status.ServerLoad = 2, 0.5 }
	for _, tt := range []struct {
		name   string
		ids    []string
		change map[string]func(*server)
		at     string // id of the server that accepts the robot; 'none' if all refuse it
		asked  string // servers with a session request, in order
		code   exit.Code
		says   string
	}{
		{"the one of less load", []string{"a", "b"}, map[string]func(*server){"a": busy}, "b", "b", 0, ""},
		{"one drains", []string{"a", "b"}, map[string]func(*server){"a": busy, "b": func(r *server) {
			r.status.Draining = true
		}}, "a", "a", 0, ""},
		{"one has become full", []string{"a", "b"}, map[string]func(*server){"a": busy,
			"b": refuse("server full: 4/4 sessions active", 1000)}, "a", "ab", 0, ""},
		{"one refuses", []string{"a", "b"}, map[string]func(*server){"a": busy,
			"b": refuse("camera top is missing", 0)}, "a", "ab", 0, ""},
		{"one has another bundle's columns", []string{"a", "b"},
			map[string]func(*server){"a": busy, "b": func(r *server) {
				r.ack.StateDim = 7
			}}, "a", "ab", 0, ""},
		{"all refuse", []string{"a", "b"}, map[string]func(*server){"a": refuse("camera top is missing", 0),
			"b": refuse("camera top is missing", 0)}, "none", "ab", exit.Config, "camera top"},
		{"one refuses, the other is full", []string{"a", "b"},
			map[string]func(*server){"a": refuse("server full: 4/4 sessions active", 5000),
				"b": refuse("camera top is missing", 0)}, "none", "ab", exit.Failure, "4/4"},
		{"one refuses, the other hangs", []string{"a", "b"},
			map[string]func(*server){"a": refuse("camera top is missing", 0), "b": func(r *server) {
				r.hangs = true
			}}, "none", "a", exit.Failure, "not every server"},
		{"one of the draft beside one that is full", []string{"", "b"},
			map[string]func(*server){"b": refuse("server full: 4/4 sessions active", 5000)}, "", "b", 0, ""},
		{"one of the draft alone", []string{""}, nil, "", "", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			router, all := replicas(t, tt.ids...)
			for id, f := range tt.change {
				all[id].change(f)
			}
			l, _ := router.dial(t, "")
			l.backOff(time.Hour)
			err := l.connect(within(t, 2500*time.Millisecond))
			if tt.at == "none" {
				rttest.Ends(t, err, tt.code, tt.says)
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
			rttest.Want(t, asked, tt.asked, "asked")
		})
	}
}

// A server that ends each session just after its opening gets the next request after a growing pause, and no longer
// with every poll. The first such end has no pause, because another server may have a place.
func TestLinkBacksOffFromAServerThatEndsEachSession(t *testing.T) {
	router, all := replicas(t, "a")
	l, _ := router.dial(t, "")
	l.backOff(time.Hour)
	opens(t, l)
	maintain(t, l)
	for want := 1; want <= 2; want++ {
		rttest.Eventually(t, "the session", func() bool {
			open := l.In.Sessions().Open
			return all["a"].asked() == want && open != nil
		})
		l.receiver.evicted.Store(l.In.Sessions().Open.Epoch)
	}
	rttest.Eventually(t, "the loss", func() bool { return l.In.Sessions().Open == nil })
	time.Sleep(4 * restPoll) // no further request comes, which gives no event to wait for
	rttest.Want(t, all["a"].asked(), 2, "requests")
}

// Goal: when the robot's server dies, the token that all servers declare alike (PREFIX/server/alive) stays. The robot
// changes to the next server at once in spite of this token, and never returns. The death of another server has no
// effect.
func TestLinkLeavesADeadReplica(t *testing.T) {
	router, all := replicas(t, "a", "b", "c")
	all["b"].change(func(r *server) { r.status.ServerLoad = 0.5 })
	all["c"].change(func(r *server) { r.status.ServerLoad = 0.9 })
	l, _ := router.dial(t, "")
	l.RequestTimeout = time.Minute
	l.backOff(time.Hour)
	opens(t, l)
	maintain(t, l)
	rttest.Do(t, all["c"].token.Undeclare())
	time.Sleep(4 * restPoll) // the session must not be lost, which gives no event to wait for
	if id := l.server(); id != "a" || l.In.Sessions().Epoch() != 1 {
		t.Errorf("the death of another server: at %q in epoch %d, want a, 1", id, l.In.Sessions().Epoch())
	}
	rttest.Do(t, all["a"].token.Undeclare()) // the server still answers, and has the least load
	rttest.Eventually(t, "a session at b, without a back-off", func() bool {
		return l.server() == "b" && l.In.Sessions().Epoch() > 1
	})
	rttest.Want(t, all["a"].asked(), 1, "requests to a")
}

// Goal: a server with another bundle that was alive beside the robot's server is not taken for the robot's server with
// new weights. The robot waits for a server with its bundle, and goes on there.
func TestLinkWaitsForItsBundleBesideAnother(t *testing.T) {
	router, all := replicas(t, "a", "b", "c")
	digest := func(sha string, load float64) func(*server) {
		return func(r *server) {
			r.ack.ModelSHA256 = sha
			r.status.ModelSHA256 = sha
			r.status.ServerLoad = load
		}
	}
	all["a"].change(digest("aa", 0))
	all["b"].change(digest("bb", 0.5))
	all["c"].change(digest("aa", 0.9))
	rttest.Do(t, all["c"].token.Undeclare()) // the server is not present yet
	all["c"].change(func(r *server) { r.status.Draining = true })
	l, _ := router.dial(t, "")
	l.RequestTimeout = time.Minute
	l.backOff(20 * time.Millisecond)
	opens(t, l)
	rttest.Eventually(t, "the other server's token", func() bool { return l.servers.state("b") == alive })
	maintain(t, l)
	rttest.Do(t, all["a"].token.Undeclare())
	rttest.Eventually(t, "that it waits", func() bool {
		why := l.In.NoSession.Load()
		return why != nil && strings.Contains(*why, "another bundle")
	})
	all["c"].change(func(r *server) { r.status.Draining = false })
	rttest.Must(all["c"].net.Token(wire.ReplicaAliveKey(replicaPrefix, "c")))(t)
	rttest.Eventually(t, "a session at c", func() bool {
		return l.server() == "c" && l.In.Sessions().Epoch() > 1
	})
	if n := all["b"].asked(); n != 0 {
		t.Errorf("the server of another bundle was asked %d times, want not at all", n)
	}
}

// Goal: a robot waits for a server's retry interval instead of its own back-off.
func TestLinkDoesNotAskBeforeItMay(t *testing.T) {
	router, all := replicas(t, "a", "b")
	all["a"].change(refuse("server full: 4/4 sessions active", 3_600_000))
	all["b"].change(refuse("server full: 4/4 sessions active", 400)) // the shorter interval is used
	l, _ := router.dial(t, "")
	l.backOff(time.Millisecond)
	ended := rttest.Go(func() error { return l.connect(within(t, 20*time.Second)) })
	asked := func() int { return all["a"].asked() + all["b"].asked() }
	rttest.Eventually(t, "both to be asked", func() bool { return asked() == 2 })
	began := time.Now()
	rttest.Eventually(t, "them to be asked again", func() bool { return asked() > 2 })
	if waited := time.Since(began); waited < 350*time.Millisecond {
		t.Errorf("asked again after %v, want the 400 ms that one of them said", waited)
	}
	all["b"].change(func(r *server) { r.ack = goodAck(); r.ack.ServerID = "b" })
	rttest.Do(t, <-ended)
}

// Goal: two servers have one id, such as a running machine and its copy. When both take the robot, the robot keeps one
// session and closes the other.
func TestLinkKeepsOneOfTwoSessions(t *testing.T) {
	router, all := replicas(t, "a", "b")
	all["b"].change(func(r *server) { r.status.ServerID, r.ack.ServerID, r.ack.SessionID = "a", "a", "copy" })
	all["a"].change(func(r *server) { r.ack.SessionID = "original" })
	l, _ := router.dial(t, "")
	opens(t, l)
	other := map[string]string{"original": "copy", "copy": "original"}[l.In.Sessions().ID()]
	for _, r := range all {
		r.change(func(r *server) {
			if len(r.opens) != 1 || len(r.closes) != 1 || r.closes[0] != other {
				t.Errorf("with a session %q: %d opens, closes %q at %s, want one of each, of %q", l.In.Sessions().ID(),
					len(r.opens), r.closes, r.ack.SessionID, other)
			}
		})
	}
}

// Goal: a robot waits for the server at which it opens a session, even if this server is slow, but not for another
// server that has just stopped and never ends its query.
func TestLinkWaitsForTheServerItMeans(t *testing.T) {
	rttest.RealTime(t)
	for _, tt := range []struct {
		name     string
		own, its func(*server)
	}{
		{"another has gone", func(*server) {}, func(r *server) { r.deaf, r.status.ServerLoad = true, 0.9 }},
		{"it is slow itself", func(r *server) {
			r.slow = 2 * replyPatience
		}, func(r *server) { r.status.ServerLoad = 0.9 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			router, all := replicas(t, "a", "b")
			all["a"].change(tt.own)
			all["b"].change(tt.its)
			l, _ := router.dial(t, "")
			l.RequestTimeout = 20 * time.Second
			l.backOff(time.Hour)
			began := time.Now()
			rttest.Do(t, l.connect(within(t, 25*time.Second)))
			if took := time.Since(began); took > 5*time.Second || l.server() != "a" {
				t.Errorf("open at %q after %v, want a, without the time-out of the query", l.server(),
					took)
			}
		})
	}
}
