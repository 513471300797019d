//go:build zenohc

package zenohgo

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
	"github.com/edge-rt/edge-rt/wire/zenoh/zenohtest"
)

// lacks lists the limits of the binding.
var lacks = sessiontest.Lacks{Latest: true, LongAttachment: true, SharedTokens: true, EndedTokens: true}

// open opens a session of package zenoh when native is set, otherwise one of the library.
func open(t *testing.T, native bool, cfg zenoh.Config) wire.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cfg.BackoffMin, cfg.BackoffMax = 20*time.Millisecond, 200*time.Millisecond
	var s wire.Session
	var err error
	if native {
		s, err = zenoh.Open(ctx, cfg)
	} else {
		s, err = Open(ctx, cfg)
	}
	rttest.Do(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// before starts a proxy for an endpoint. Tests cut the connection at the proxy.
func before(t *testing.T, at string) *netfault.Proxy {
	t.Helper()
	p := rttest.Must(netfault.NewProxy(at))(t)
	t.Cleanup(p.Close)
	return p
}

// Goal: the library's session keeps every promise of wire.Session, with another library session and
// with one of package zenoh, as listener and as dialler.
func TestContract(t *testing.T) {
	for _, n := range []struct {
		name        string
		left, right bool // the session is one of package zenoh, not one of the library
	}{
		{"the library's listener and its client", false, false},
		{"our listener and the library's client", true, false},
		{"the library's listener and our client", false, true},
	} {
		t.Run(n.name, func(t *testing.T) {
			sessiontest.Run(t, func(t *testing.T) sessiontest.Net {
				at := sessiontest.FreeEndpoint(t)
				left := open(t, n.left, zenoh.Config{Listen: []string{at}})
				way := before(t, at)
				right := open(t, n.right, zenoh.Config{Connect: []string{way.Endpoint()}})
				net := sessiontest.Net{Left: left, Right: right, Cut: way.Cut}
				if !n.left {
					net.LeftLacks = lacks
				}
				if !n.right {
					net.RightLacks = lacks
				}
				return net
			})
		})
	}
}

// Goal: the promises also hold when both sessions dial an official router, like a fleet's robots.
func TestContractAtRouter(t *testing.T) {
	python := zenohtest.Python{Path: os.Getenv("EDGERT_PYTHON")}
	if _, err := python.Check(); err != nil {
		t.Skip(err)
	}
	router := rttest.Must(zenohtest.Start(python))(t)
	t.Cleanup(router.Stop)
	at := sessiontest.FreeEndpoint(t)
	rttest.Must(router.Open(zenohtest.Config{Mode: "router", Listen: []string{at}}))(t)
	sessiontest.Run(t, func(t *testing.T) sessiontest.Net {
		cfg := zenoh.Config{Connect: []string{at}}
		return sessiontest.Net{Left: open(t, false, cfg), Right: open(t, true, cfg), LeftLacks: lacks}
	})
}
