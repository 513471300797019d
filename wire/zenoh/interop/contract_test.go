package interop

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
	"github.com/edge-rt/edge-rt/wire/zenoh/zenohtest"
)

// network starts the processes that all cases of one test use. It returns the function that opens the sessions of a
// case.
type network func(t *testing.T, v version) func(t *testing.T) sessiontest.Net

// networks lists all positions that our and the official implementation can have in a network. Networks marked once are
// tested with the newest version only.
var networks = []struct {
	name string
	make network
	once bool
}{
	{"ours and ours at their router", func(t *testing.T, v version) func(*testing.T) sessiontest.Net {
		_, at := v.router(t)
		a, b := proxy(t, at), proxy(t, at)
		return func(t *testing.T) sessiontest.Net {
			return sessiontest.Net{Left: ours(t, connecting(a)), Right: ours(t, connecting(b)), Cut: func() {
				a.Cut()
				b.Cut()
			}}
		}
	}, false},
	{"our listener and their peer", func(t *testing.T, v version) func(*testing.T) sessiontest.Net {
		return atOurs(t, v, "peer")
	}, false},
	{"ours and their client at their router", func(t *testing.T, v version) func(*testing.T) sessiontest.Net {
		_, at := v.router(t)
		theirs := v.start(t)
		return func(t *testing.T) sessiontest.Net {
			return sessiontest.Net{Left: ours(t, zenoh.Config{Connect: []string{at}}),
				Right: open(t, theirs, zenohtest.Config{Mode: "client", Connect: []string{at}}), RightLacks: lacks}
		}
	}, false},
	{"ours and ours at two of their routers in a row", func(t *testing.T, v version) func(*testing.T) sessiontest.Net {
		_, first := v.router(t)
		_, second := v.router(t, first)
		return func(t *testing.T) sessiontest.Net {
			return sessiontest.Net{Left: ours(t, zenoh.Config{Connect: []string{first}}),
				Right: ours(t, zenoh.Config{Connect: []string{second}})}
		}
	}, false},
	{"our listener and their client", func(t *testing.T, v version) func(*testing.T) sessiontest.Net {
		return atOurs(t, v, "client")
	}, false},
	{"our client and their peer", func(t *testing.T, v version) func(*testing.T) sessiontest.Net {
		return atTheirs(t, v, "peer")
	}, false},
	{"our client and their router itself", func(t *testing.T, v version) func(*testing.T) sessiontest.Net {
		return atTheirs(t, v, "router")
	}, true},
	{"ours and their peer at our listener", through("", "peer"), true},
	{"their client and their client at our listener", through("client", "client"), true},
	{"ours behind our listener at their router and their client there",
		func(t *testing.T, v version) func(*testing.T) sessiontest.Net {
			_, far := v.router(t)
			theirs := v.start(t)
			hub := ours(t, zenoh.Config{Connect: []string{far}, Listen: []string{"tcp/127.0.0.1:0"}})
			rttest.Eventually(t, "the listener to meet the router", hub.Connected)
			return func(t *testing.T) sessiontest.Net {
				return sessiontest.Net{Left: ours(t, zenoh.Config{Connect: hub.Endpoints()}), RightLacks: lacks,
					Right: open(t, theirs, zenohtest.Config{Mode: "client", Connect: []string{far}})}
			}
		}, true},
}

// lacks lists the abilities that the official binding does not have. Its watchers report the end of a token when one of
// several holders ends, and a later watcher may report one token twice.
var lacks = sessiontest.Lacks{Latest: true, SharedTokens: true}

func connecting(p *netfault.Proxy) zenoh.Config {
	return zenoh.Config{Connect: []string{p.Endpoint()}}
}

// through returns a network in which two sessions dial our listener, which relays between them. Each is an official
// session in the given mode, or one of our sessions when the mode is empty.
func through(left, right string) network {
	return func(t *testing.T, v version) func(*testing.T) sessiontest.Net {
		hub := ours(t, zenoh.Config{Listen: []string{"tcp/127.0.0.1:0"}})
		a, b := v.start(t), v.start(t)
		return func(t *testing.T) sessiontest.Net {
			n := sessiontest.Net{RightLacks: lacks}
			if left == "" {
				n.Left = ours(t, zenoh.Config{Connect: hub.Endpoints()})
			} else {
				n.Left, n.LeftLacks = open(t, a, zenohtest.Config{Mode: left, Connect: hub.Endpoints()}), lacks
			}
			n.Right = open(t, b, zenohtest.Config{Mode: right, Connect: hub.Endpoints()})
			return n
		}
	}
}

// atOurs makes an official node dial our listener.
func atOurs(t *testing.T, v version, mode string) func(*testing.T) sessiontest.Net {
	theirs := v.start(t)
	return func(t *testing.T) sessiontest.Net {
		left := ours(t, zenoh.Config{Listen: []string{"tcp/127.0.0.1:0"}})
		way := proxy(t, left.Endpoints()[0])
		right := open(t, theirs, zenohtest.Config{Mode: mode, Connect: []string{way.Endpoint()},
			More: map[string]any{"connect/retry": map[string]any{"period_init_ms": 50, "period_max_ms": 200,
				"period_increase_factor": 2}}})
		return sessiontest.Net{Left: left, Right: right, RightLacks: lacks, Cut: way.Cut}
	}
}

// atTheirs makes our session dial an official node.
func atTheirs(t *testing.T, v version, mode string) func(*testing.T) sessiontest.Net {
	theirs, at := v.start(t), sessiontest.FreeEndpoint(t)
	way := proxy(t, at)
	return func(t *testing.T) sessiontest.Net {
		right := open(t, theirs, zenohtest.Config{Mode: mode, Listen: []string{at}})
		return sessiontest.Net{Left: ours(t, connecting(way)), Right: right, RightLacks: lacks, Cut: way.Cut}
	}
}

func TestContract(t *testing.T) {
	over(t, func(t *testing.T, v version) {
		some := networks
		if len(required) == 0 {
			some = networks[:2] // make interop runs all networks
		}
		for _, n := range some {
			if n.once && !v.newest {
				continue
			}
			t.Run(n.name, func(t *testing.T) {
				sessiontest.Run(t, n.make(t, v))
			})
		}
	})
}
