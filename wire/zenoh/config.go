package zenoh

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

// Config holds the endpoints and limits of a Session. Zero values are the defaults.
//
// Endpoints are Zenoh's: tcp/host:port, tls/host:port or unixsock-stream/path.
type Config struct {
	Connect []string // endpoints of one network; the session keeps a link to one of them
	Listen  []string // endpoints to listen on; port 0 means a free port

	TLS endpoint.Security // for those tls/ endpoints that have no options of their own

	Lease     time.Duration // peers end a link on which we send nothing for this time; default 2 s
	KeepAlive time.Duration // longest time between two messages that we send; default a quarter of Lease

	BackoffMin time.Duration // first pause when no endpoint answers; default 0.5 s
	BackoffMax time.Duration // longest pause; default 4 s

	MaxMessage  int // most bytes of one message, sent or received; default 16 MiB
	MaxSessions int // accepted links; default 256

	// Memory bounds the buffers of all links together, in bytes: messages that are being received or that wait to be
	// sent. A busy link takes about 300 KiB. When this memory is exhausted, the links that use the most of it are
	// ended. Default: the size of one largest message and 4 MiB.
	Memory int

	// Rights returns the rights of an accepted link whose TLS certificate has these names: the DNS names of its
	// subjectAltName or, without these, its common name. Nil rights, or no function, allow everything. Default: no
	// function.
	Rights func(names []string) *access.Rights

	// Log gets one line for each link that begins or ends. It must not block. Default: no log.
	Log func(line string)

	// Links is called for every link that begins or ends and for every failed attempt. LinkEvent.Err is the reason, for
	// errors.As and errors.Is. Links must not block. Default: no calls.
	Links func(LinkEvent)

	connect, listen []endpoint.Endpoint // parsed by check
}

// LinkEvent is the start or the end of a link, or a failed attempt.
type LinkEvent struct {
	Endpoint string // the dialled endpoint, or the address of the node that dialled us
	Dialled  bool
	Up       bool
	Err      error // the reason when Up is false: an error of package link, package endpoint or the system
}

// Defaults.
const (
	DefaultLease       = 2 * time.Second
	DefaultBackoffMin  = 500 * time.Millisecond
	DefaultBackoffMax  = 4 * time.Second
	defaultMaxMessage  = wire.MaxCarriedBytes
	defaultMaxSessions = 256

	maxEndpoints = 64 // endpoints in each list

	memoryBeside = 4 << 20 // Config.Memory's default is one largest message and this number of bytes

	DefaultMemory = defaultMaxMessage + memoryBeside
)

// Check refuses all values that Open would refuse before it uses the network: malformed endpoints, unusable certificate
// files and impossible numbers.
func (c Config) Check() error { return c.check() }

func (c *Config) check() error {
	if len(c.Connect) == 0 && len(c.Listen) == 0 {
		return errors.New("wire/zenoh: neither an endpoint to connect to nor one to listen on, give one like " +
			"tcp/127.0.0.1:7447")
	}
	if err := c.checkEndpoints(); err != nil {
		return err
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = c.Lease / 4
	}
	if c.Lease < 100*time.Millisecond || c.Lease > time.Hour || c.KeepAlive <= 0 || c.KeepAlive > c.Lease/2 {
		return fmt.Errorf("wire/zenoh: lease %v with keep-alive %v, want a lease of 100ms to 1h and at least two "+
			"keep-alives in it", c.Lease, c.KeepAlive)
	}
	if c.BackoffMin == 0 {
		c.BackoffMin = DefaultBackoffMin
	}
	if c.BackoffMax == 0 {
		c.BackoffMax = max(DefaultBackoffMax, c.BackoffMin)
	}
	if c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin {
		return fmt.Errorf("wire/zenoh: backoff of %v to %v, want a longest pause that is no shorter than the first",
			c.BackoffMin, c.BackoffMax)
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = defaultMaxMessage
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = defaultMaxSessions
	}
	if c.Memory == 0 {
		c.Memory = c.MaxMessage + memoryBeside
	}
	if c.MaxMessage < 0 || c.MaxSessions < 0 || c.Memory < c.MaxMessage {
		return fmt.Errorf("wire/zenoh: messages of at most %d bytes, %d sessions and %d bytes of memory, want room "+
			"for one message at least",
			c.MaxMessage, c.MaxSessions, c.Memory)
	}
	if c.Log == nil {
		c.Log = func(string) {}
	}
	if c.Links == nil {
		c.Links = func(LinkEvent) {}
	}
	return nil
}

// checkEndpoints parses both lists.
func (c *Config) checkEndpoints() error {
	if n := max(len(c.Connect), len(c.Listen)); n > maxEndpoints {
		return fmt.Errorf("wire/zenoh: %d endpoints in one list, want at most %d", n, maxEndpoints)
	}
	var err error
	if c.connect, err = c.parse(c.Connect, endpoint.Endpoint.CheckDial); err == nil {
		c.listen, err = c.parse(c.Listen, endpoint.Endpoint.CheckListen)
	}
	return err
}

func (c *Config) parse(list []string, check func(endpoint.Endpoint) error) (all []endpoint.Endpoint, err error) {
	for _, text := range list {
		e, err := endpoint.Parse(text, c.TLS)
		if err == nil {
			err = check(e)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// Certificates lists the present and coming faults of the certificates that a session of this configuration would show
// and require. Check reports unusable files.
func (c *Config) Certificates(now time.Time) (found []endpoint.Finding) {
	for _, text := range c.Listen {
		if e, err := endpoint.Parse(text, c.TLS); err == nil {
			found = addFindings(found, e.Listening(now))
		}
	}
	var connect []endpoint.Endpoint
	for _, text := range c.Connect {
		if e, err := endpoint.Parse(text, c.TLS); err == nil {
			connect = append(connect, e)
		}
	}
	return addFindings(found, dialling(connect, now))
}

// dialling returns the findings for the endpoints to dial, without the mark Refused. These faults alone refuse no
// robot, because an established link stays up.
func dialling(connect []endpoint.Endpoint, now time.Time) (found []endpoint.Finding) {
	for _, e := range connect {
		for _, f := range e.Dialling(now) {
			f.Refused = false
			found = addFindings(found, []endpoint.Finding{f})
		}
	}
	return found
}

// dialEvery is the interval at which the session checks the certificate files of the endpoints to dial. Each attempt to
// dial reads these files again.
const dialEvery = time.Minute

// dialFindings are the findings of a session's endpoints to dial.
type dialFindings struct {
	mu    sync.Mutex
	found []endpoint.Finding // guarded by mu
	at    time.Time          // guarded by mu
}

func (d *dialFindings) current(connect []endpoint.Endpoint, now time.Time) []endpoint.Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || now.Sub(d.at).Abs() >= dialEvery {
		d.found, d.at = dialling(connect, now), now
	}
	return d.found
}

// addFindings appends to the list found each finding of the list more that found lacks. Several endpoints may show the
// same certificate.
func addFindings(found, more []endpoint.Finding) []endpoint.Finding {
	for _, f := range more {
		if !slices.Contains(found, f) {
			found = append(found, f)
		}
	}
	return found
}
