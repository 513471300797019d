package zenoh

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
)

// patient is the configuration of a session that retries quickly and keeps its links on an
// overloaded machine.
func patient(at string) Config {
	cfg := quick(at)
	cfg.Lease = 20 * time.Second
	return cfg
}

// Goal: wire.Session's promises hold between a client and our listener.
func TestContractAtOurListener(t *testing.T) {
	sessiontest.Run(t, func(t *testing.T) sessiontest.Net {
		server, at := listener(t, Config{Lease: 20 * time.Second})
		left := mustOpen(t, patient(at))
		return sessiontest.Net{Left: left, Right: server, Cut: func() { cut(left) }}
	})
}

// Goal: the promises of wire.Session hold between two clients of our listener.
func TestContractThroughOurListener(t *testing.T) {
	sessiontest.Run(t, func(t *testing.T) sessiontest.Net {
		_, at := listener(t, Config{Lease: 20 * time.Second})
		left, right := mustOpen(t, patient(at)), mustOpen(t, patient(at))
		return sessiontest.Net{Left: left, Right: right, Cut: func() { cut(left); cut(right) }}
	})
}

// Goal: the promises of wire.Session hold between the clients of two listeners, one of which has
// dialled the other.
func TestContractThroughTwoListeners(t *testing.T) {
	sessiontest.Run(t, func(t *testing.T) sessiontest.Net {
		_, at := listener(t, Config{Lease: 20 * time.Second})
		cfg := patient(at)
		cfg.Listen = []string{"tcp/127.0.0.1:0"}
		second, next := listener(t, cfg)
		rttest.Eventually(t, "the listeners to meet", second.Connected)
		left, right := mustOpen(t, patient(at)), mustOpen(t, patient(next))
		return sessiontest.Net{Left: left, Right: right, Cut: func() { cut(left); cut(right) }}
	})
}

// over opens a listener and a client of that listener, with the configurations for one transport.
func over(t *testing.T, listen, dial Config) (server, client *Session) {
	t.Helper()
	listen.Lease = 20 * time.Second
	server, at := listener(t, listen)
	quiet := patient(at)
	quiet.TLS = dial.TLS
	return server, mustOpen(t, quiet)
}

// Goal: the promises that depend on a link's transport hold over TLS, mutual TLS and a socket file, and through a
// listener between links of two transports.
func TestContractOverEveryTransport(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds for each transport")
	}
	for name, at := range transports(t) {
		if name == "tcp" {
			continue // covered by the tests above
		}
		t.Run(name, func(t *testing.T) {
			sessiontest.Carried(t, func(t *testing.T) sessiontest.Net {
				server, client := over(t, at.listen, at.dial)
				return sessiontest.Net{Left: client, Right: server, Cut: func() { cut(client) }}
			})
		})
	}
	t.Run("mtls to unix", func(t *testing.T) {
		way := transports(t)
		secure, file := way["mtls"], way["unix"]
		secure.listen.Listen = append(secure.listen.Listen, file.listen.Listen...)
		sessiontest.Carried(t, func(t *testing.T) sessiontest.Net {
			server, left := over(t, secure.listen, secure.dial)
			right := mustOpen(t, patient(server.Endpoints()[1]))
			return sessiontest.Net{Left: left, Right: right, Cut: func() { cut(left); cut(right) }}
		})
	})
}
