package zenoh

import (
	"testing"
	"time"

	"edgert/wire/zenoh/contract"
)

// silent is a quick session that does not log, and that a starved machine does
// not make lose its links.
func silent(at string) Config {
	cfg := quick(at)
	cfg.Log = func(string) {}
	cfg.Lease = 20 * time.Second
	return cfg
}

// Goal: what wire.Session promises holds between a client and our listener.
func TestContractAtOurListener(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Net {
		server, at := listener(t, Config{Log: func(string) {}, Lease: 20 * time.Second})
		return contract.Net{Left: mustOpen(t, silent(at)), Right: server, Cut: func() { cut(server) }}
	})
}

// Goal: and between two clients that meet at our listener.
func TestContractThroughOurListener(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Net {
		server, at := listener(t, Config{Log: func(string) {}, Lease: 20 * time.Second})
		return contract.Net{Left: mustOpen(t, silent(at)), Right: mustOpen(t, silent(at)), Cut: func() { cut(server) }}
	})
}

// Goal: and between the clients of two listeners, one of which has dialled the
// other.
func TestContractThroughTwoListeners(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Net {
		first, at := listener(t, Config{Log: func(string) {}, Lease: 20 * time.Second})
		cfg := silent(at)
		cfg.Listen = []string{"tcp/127.0.0.1:0"}
		second, next := listener(t, cfg)
		eventually(t, "the listeners to meet", second.Connected)
		return contract.Net{Left: mustOpen(t, silent(at)), Right: mustOpen(t, silent(next)), Cut: func() { cut(first); cut(second) }}
	})
}
