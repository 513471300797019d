package manifest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

const (
	// DefaultListen is the endpoint of a server whose manifest names no endpoint to listen on or to
	// dial: only this machine can connect.
	DefaultListen = "tcp/127.0.0.1:7447"

	// linksPerSession is the number of links that the transport accepts for each session. It leaves room for robots
	// that come back before their old link is given up, and for robots that are refused.
	linksPerSession = 2
	linksMin        = 128
	// sessionMemory is the memory that a robot's link takes in the transport: its buffers, an
	// observation that arrives in fragments, and the next observation.
	sessionMemory = 512 << 10
)

// Listen returns the endpoints to listen on: the manifest's, or DefaultListen if the manifest names no endpoint to
// listen on or to dial.
func (c *Config) Listen() []string {
	if len(c.Zenoh.ListenEndpoints) == 0 && len(c.Zenoh.ConnectEndpoints) == 0 {
		return []string{DefaultListen}
	}
	return c.Zenoh.ListenEndpoints
}

// HealthAddress returns the address of the HTTP server; "" when it is off. HTTP is open to the same machines as the
// robots' endpoints: if only this machine can connect, only this machine can read the metrics. If robots use IPv4 only,
// HTTP listens on IPv4 only.
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

// checkFronts refuses an address that a front cannot listen on.
func (c *Config) checkFronts() error {
	for _, f := range []struct{ key, address string }{
		{"fronts.lerobot", c.Fronts.LeRobot.Listen}, {"fronts.openpi", c.Fronts.OpenPI.Listen},
	} {
		host, port, err := net.SplitHostPort(f.address)
		n, failed := strconv.ParseUint(port, 10, 16)
		switch {
		case f.address == "" && c.lines[f.key] == 0 && c.flagIn(f.key) == "":
		case f.address == "":
			return c.Errorf(f.key, "%s has no listen: write the address for its clients, such as listen: "+
				"\"127.0.0.1:8080\", or remove the key", f.key)
		case err != nil || failed != nil || n == 0 || host == "":
			return c.Errorf(f.key+".listen", "%s.listen: got '%s', want HOST:PORT, such as 127.0.0.1:8080, or "+
				"0.0.0.0:8080 for other machines", f.key, f.address)
		}
	}
	for i, camera := range c.Fronts.OpenPI.Cameras {
		if camera.Name == "" || camera.Key == "" || slices.ContainsFunc(c.Fronts.OpenPI.Cameras[:i],
			func(k CameraKey) bool { return k.Name == camera.Name }) {
			return c.Errorf("fronts.openpi.cameras",
				"fronts.openpi.cameras: entry %d has name '%s' and key '%s', want "+
					"each camera of the policy once, with its key in an observation", i+1, camera.Name, camera.Key)
		}
	}
	return nil
}

// place is an address HOST:PORT to listen on, and the manifest's key that sets it.
type place struct{ key, address string }

// checkPorts refuses an address that another key, or another endpoint, has taken. Without this check, the system's
// error would blame another program.
func (c *Config) checkPorts() error {
	all := []place{{"health_port", c.HealthAddress()}}
	for _, e := range c.Listen() {
		if parsed, err := endpoint.Parse(e, endpoint.Security{}); err == nil && parsed.Protocol != endpoint.Unix {
			all = append(all, place{"zenoh.listen_endpoints", parsed.Address})
		}
	}
	all = append(all, place{"fronts.lerobot.listen", c.Fronts.LeRobot.Listen},
		place{"fronts.openpi.listen", c.Fronts.OpenPI.Listen})
	for i, f := range all {
		for _, other := range all[:i] {
			if f.address != "" && overlap(f.address, other.address) {
				return c.Errorf(f.key, "%s is %s, and %s listens on this port, too (%s): give one of them another port",
					f.key, f.address, other.key, other.address)
			}
		}
	}
	return nil
}

// overlap reports whether two listeners cannot have these addresses at the same time.
func overlap(a, b string) bool {
	host, port, _ := net.SplitHostPort(a)
	other, otherPort, _ := net.SplitHostPort(b)
	every := func(host string) bool { return host == "" || net.ParseIP(host).IsUnspecified() }
	return port == otherPort && (host == other || every(host) || every(other))
}

// CheckTransport refuses bad endpoints, a port that two keys name, unusable certificates, and TLS keys without a tls/
// endpoint, so that a manifest that requests encryption gets no server without encryption.
func (c *Config) CheckTransport() error {
	tls, z := c.Zenoh.TLS, c.Zenoh
	dials, listens := encrypted(z.ConnectEndpoints), encrypted(c.Listen())
	const idle = "%s is set, but no endpoint of %s begins with tls/: write tls/host:port there, or remove the key"
	switch {
	case tls.ConnectCertificate != "" && !dials:
		return c.Errorf("zenoh.tls.connect_certificate", idle, "zenoh.tls.connect_certificate",
			"zenoh.connect_endpoints")
	case tls.ListenCertificate != "" && !listens:
		return c.Errorf("zenoh.tls.listen_certificate", idle, "zenoh.tls.listen_certificate", "zenoh.listen_endpoints")
	case tls != TLS{VerifyNameOnConnect: true} && !dials && !listens:
		return c.Errorf("zenoh.tls", idle, "zenoh.tls", "zenoh.connect_endpoints or zenoh.listen_endpoints")
	}
	if e := c.onHealthPort(); e != "" {
		return c.Errorf("health_port", "health_port is %d, and so is the port of '%s', to which robots connect: "+
			"choose another port for HTTP with --health-port or health_port, or 0 to switch HTTP off", c.HealthPort, e)
	}
	if err := c.checkPorts(); err != nil {
		return err
	}
	if len(c.Routers) > 0 && !c.Zenoh.TLS.EnableMTLS {
		return c.Errorf("routers", "routers is set, but links need no certificate: set zenoh.tls.enable_mtls too, or "+
			"remove the key")
	}
	if err := network.Check(c.Transport()); err != nil {
		return c.Errorf("zenoh.tls", "zenoh: %w", err)
	}
	return nil
}

// onHealthPort returns the first of Listen's endpoints that has HTTP's port; "" when there is none.
func (c *Config) onHealthPort() string {
	for _, e := range c.Listen() {
		parsed, err := endpoint.Parse(e, endpoint.Security{})
		if err != nil || parsed.Protocol == endpoint.Unix {
			continue
		}
		if _, port, err := net.SplitHostPort(parsed.Address); err == nil && c.HealthPort != 0 &&
			port == strconv.Itoa(c.HealthPort) {
			return e
		}
	}
	return ""
}

func encrypted(endpoints []string) bool {
	return slices.ContainsFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, endpoint.TLS+"/") })
}

// Transport returns the configuration of the manifest's Zenoh session.
func (c *Config) Transport() zenoh.Config {
	limit, _ := c.Sessions()
	tls := c.Zenoh.TLS
	return zenoh.Config{
		Connect:     c.Zenoh.ConnectEndpoints,
		Listen:      c.Listen(),
		MaxSessions: max(linksMin, linksPerSession*limit),
		Memory:      int(c.TransportMemory()),
		TLS: endpoint.Security{
			RootCA:             tls.RootCACertificate,
			ConnectCertificate: tls.ConnectCertificate,
			ConnectKey:         tls.ConnectPrivateKey,
			ListenCertificate:  tls.ListenCertificate,
			ListenKey:          tls.ListenPrivateKey,
			MutualTLS:          tls.EnableMTLS,
			AnyName:            !tls.VerifyNameOnConnect,
		},
	}
}

// CheckListen returns an error when an endpoint is already in use. The server calls it before it loads the policy,
// which takes seconds; the transport binds the endpoints only afterwards.
func (c *Config) CheckListen() error {
	cfg := c.Transport()
	for _, text := range cfg.Listen {
		e, err := endpoint.Parse(text, cfg.TLS)
		if err != nil {
			return err
		}
		probe, err := e.Listen()
		if err != nil {
			return fmt.Errorf("zenoh.listen_endpoints: %w",
				listen.Explain(err, "choose another with --listen or zenoh.listen_endpoints"))
		}
		if err := probe.Close(); err != nil {
			return err
		}
	}
	return nil
}
