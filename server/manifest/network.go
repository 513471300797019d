package manifest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"edgert/internal/bind"
	"edgert/internal/network"
	"edgert/wire/zenoh"
	"edgert/wire/zenoh/endpoint"
)

const (
	// DefaultListen is where the server waits when the manifest names neither
	// an endpoint to listen on nor one to dial: this machine only.
	DefaultListen = "tcp/127.0.0.1:7447"

	// linksPerSession leaves room for robots that come back before their old
	// link is given up, and for those that are refused.
	linksPerSession = 2
	linksMin        = 128
	// SessionMemory is what a robot's link may make the transport hold: its
	// buffers, an observation that arrives in fragments and the next one.
	SessionMemory = 512 << 10
)

// Listen is the endpoints to listen on: the manifest's, or DefaultListen when
// it names no endpoint at all.
func (c *Config) Listen() []string {
	if len(c.Zenoh.ListenEndpoints) == 0 && len(c.Zenoh.ConnectEndpoints) == 0 {
		return []string{DefaultListen}
	}
	return c.Zenoh.ListenEndpoints
}

// HealthAddress is where HTTP listens, "" when off. It reaches as far as the data
// plane: a server for this machine only keeps its metrics to it, and one that robots
// reach by IPv4 alone shows them there.
func (c *Config) HealthAddress() string {
	if c.HealthPort == 0 {
		return ""
	}
	const loopback, every4, every = "127.0.0.1", "0.0.0.0", ""
	host := loopback
	if len(c.Zenoh.ConnectEndpoints) > 0 {
		host = every
	}
	for _, e := range c.Listen() {
		protocol, address, _ := strings.Cut(e, "/")
		address, _, _ = strings.Cut(address, "#")
		if protocol == endpoint.Unix {
			continue
		}
		h, _, err := net.SplitHostPort(address)
		ip := net.ParseIP(h)
		switch {
		case err != nil, h == "localhost", ip != nil && ip.IsLoopback():
		case ip.To4() != nil && host != every:
			host = every4
		case ip.To4() == nil:
			host = every
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(c.HealthPort))
}

func (c *Config) checkEndpoints(key string, endpoints []string) error {
	for _, e := range endpoints {
		parsed, err := endpoint.Parse(e, endpoint.Security{})
		if err == nil && strings.HasSuffix(parsed.Address, ":0") && parsed.Protocol != endpoint.Unix {
			err = errors.New("port 0 is no port that a robot could know, want 1 to 65535")
		}
		if err != nil {
			return c.Errorf(key, "'%s' of %s: %w", e, key, err)
		}
	}
	return nil
}

// CheckTransport refuses bad endpoints, unusable certificates, and TLS keys without
// an endpoint: a manifest that asks for encryption must not get a server without.
func (c *Config) CheckTransport() error {
	tls, z := c.Zenoh.TLS, c.Zenoh
	dials, listens := encrypted(z.ConnectEndpoints), encrypted(c.Listen())
	const idle = "%s is set, but no endpoint of %s begins with tls/: write tls/host:port there, or remove the key"
	switch {
	case tls.ConnectCertificate != "" && !dials:
		return c.Errorf("zenoh.tls.connect_certificate", idle, "zenoh.tls.connect_certificate", "zenoh.connect_endpoints")
	case tls.ListenCertificate != "" && !listens:
		return c.Errorf("zenoh.tls.listen_certificate", idle, "zenoh.tls.listen_certificate", "zenoh.listen_endpoints")
	case tls != TLS{VerifyNameOnConnect: true} && !dials && !listens:
		return c.Errorf("zenoh.tls", idle, "zenoh.tls", "zenoh.connect_endpoints or zenoh.listen_endpoints")
	}
	if e := c.onHealthPort(); e != "" {
		return c.Errorf("health_port", "health_port is %d, and so is the port of '%s', where robots dial in: choose another for HTTP with --health-port or health_port, or 0 for none", c.HealthPort, e)
	}
	if len(c.Routers) > 0 && !c.Zenoh.TLS.EnableMTLS {
		return c.Errorf("routers", "routers is set, but nobody is asked for a certificate: set zenoh.tls.enable_mtls too, or remove the key")
	}
	if err := network.Check(c.Transport()); err != nil {
		return c.Errorf("zenoh.tls", "zenoh: %w", err)
	}
	return nil
}

// onHealthPort is an endpoint to listen on whose port is HTTP's, too; empty: none is.
func (c *Config) onHealthPort() string {
	for _, e := range c.Listen() {
		parsed, err := endpoint.Parse(e, endpoint.Security{})
		if err != nil || parsed.Protocol == endpoint.Unix {
			continue
		}
		if _, port, err := net.SplitHostPort(parsed.Address); err == nil && c.HealthPort != 0 && port == strconv.Itoa(c.HealthPort) {
			return e
		}
	}
	return ""
}

func encrypted(endpoints []string) bool {
	return slices.ContainsFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, endpoint.TLS+"/") })
}

// Transport is the session that the manifest describes.
func (c *Config) Transport() zenoh.Config {
	limit, _ := c.Sessions()
	tls := c.Zenoh.TLS
	return zenoh.Config{
		Connect: c.Zenoh.ConnectEndpoints, Listen: c.Listen(), MaxSessions: max(linksMin, linksPerSession*limit),
		Memory: int(c.TransportMemory()),
		TLS: endpoint.Security{
			RootCA:             tls.RootCACertificate,
			ConnectCertificate: tls.ConnectCertificate, ConnectKey: tls.ConnectPrivateKey,
			ListenCertificate: tls.ListenCertificate, ListenKey: tls.ListenPrivateKey,
			MutualTLS: tls.EnableMTLS, AnyName: !tls.VerifyNameOnConnect,
		},
	}
}

// CheckListen reports an endpoint that is taken before the policy is loaded,
// which takes seconds; the transport binds it for good afterwards.
func (c *Config) CheckListen() error {
	cfg := c.Transport()
	for _, text := range cfg.Listen {
		e, err := endpoint.Parse(text, cfg.TLS)
		if err != nil {
			return err
		}
		probe, err := e.Listen()
		if err != nil {
			return fmt.Errorf("zenoh.listen_endpoints: %w", bind.Explain(err, "choose another with --listen or zenoh.listen_endpoints"))
		}
		if err := probe.Close(); err != nil {
			return err
		}
	}
	return nil
}
