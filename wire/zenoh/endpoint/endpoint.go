// Package endpoint parses, dials and listens on the endpoints of Zenoh nodes, such as
// tcp/host:7447.
//
// tcp/ and tls/ take a host and a port, with IPv6 addresses in brackets, and unixsock-stream/ the
// path of a socket file. TLS is 1.3 or newer on both sides.
//
// Source: the crate zenoh-protocol of eclipse-zenoh/zenoh (core/endpoint).
package endpoint

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// The protocols.
const (
	tcp  = "tcp"
	TLS  = "tls"
	Unix = "unixsock-stream"
)

const (
	maxText = 4096 // bytes of an endpoint, certificate paths included
	maxPath = 107  // the longest path of a socket file that fits into the kernel's address
)

// Endpoint is one place to dial or to listen on.
type Endpoint struct {
	Protocol string
	Address  string // host:port, or a path
	Security Security
}

// Parse reads an endpoint. Its TLS options, after '#', take precedence over defaults. Parse refuses options that would
// have no effect.
func Parse(text string, defaults Security) (Endpoint, error) {
	bad := func(format string, args ...any) (Endpoint, error) {
		return Endpoint{}, fmt.Errorf("wire/zenoh: endpoint %q: %w", text, fmt.Errorf(format, args...))
	}
	if len(text) > maxText {
		return Endpoint{}, fmt.Errorf("wire/zenoh: endpoint of %d bytes, want at most %d", len(text), maxText)
	}
	place, options, _ := strings.Cut(text, "#")
	place, metadata, _ := strings.Cut(place, "?")
	protocol, address, ok := strings.Cut(place, "/")
	e := Endpoint{Protocol: protocol, Address: address, Security: defaults}
	switch {
	case !ok || !slices.Contains([]string{tcp, TLS, Unix}, protocol):
		return bad("want tcp/host:port, tls/host:port or unixsock-stream/path")
	case metadata != "":
		return bad("metadata (?%s) changes the handshake and is not supported: remove it", metadata)
	case options != "" && protocol != TLS:
		return bad("options (#%s) are supported on tls/ only: remove them", options)
	}
	if protocol == Unix {
		if err := checkPath(address); err != nil {
			return bad("%w", err)
		}
		return e, nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return bad("want %s/host:port, IPv6 in brackets: %w", protocol, err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return bad("port %q, want 0 to 65535", port)
	}
	if options != "" {
		if err := e.Security.set(options); err != nil {
			return bad("%w", err)
		}
	}
	return e, nil
}

func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("want the path of a socket file")
	case len(path) > maxPath:
		return fmt.Errorf("path of %d bytes, the system takes at most %d", len(path), maxPath)
	case path[0] == '@', strings.IndexByte(path, 0) >= 0:
		return errors.New("want the path of a socket file, not an abstract name")
	}
	return nil
}

// String returns the endpoint without its options.
func (e Endpoint) String() string { return e.Protocol + "/" + e.Address }

// CheckDial refuses an endpoint that can never be dialled: no host, no port, or unusable
// certificate files.
func (e Endpoint) CheckDial() error {
	if e.Protocol == Unix {
		return nil
	}
	host, port, _ := net.SplitHostPort(e.Address)
	if host == "" || port == "0" {
		return fmt.Errorf("wire/zenoh: endpoint %q: want a host and a port to dial", e)
	}
	if e.Protocol == TLS {
		_, err := e.Security.clientConfig(host)
		return err
	}
	return nil
}

// CheckListen refuses certificate files that cannot be used.
func (e Endpoint) CheckListen() error {
	if e.Protocol == TLS {
		_, err := e.Security.serverConfig()
		return err
	}
	return nil
}
