// Package front lets programs that speak a foreign protocol use the server. A front listens on its own address. For
// each of its clients it acts as a robot of this server (Robot), over the bus of wire/local. So the same admission,
// quotas, scheduler, audit and metrics apply to a foreign client as to a robot that speaks docs/wire.md, and package
// server contains nothing of the client's protocol.
package front

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/local"
)

// ImagePrefix is the prefix of LeRobot's name of a camera's feature. That whole name is the camera's name on the wire.
const ImagePrefix = "observation.images."

// ImageName returns the name that a camera of the policy has on the wire.
func ImageName(camera string) string {
	if strings.HasPrefix(camera, "observation.") {
		return camera
	}
	return ImagePrefix + camera
}

// Front speaks one foreign protocol on its own address, which it has bound already.
type Front interface {
	// Serve answers clients until ctx is done, then ends their sessions and returns nil. When it returns an error, the
	// server ends. The server calls it once, when it is ready to compute chunks.
	Serve(ctx context.Context, to *Gateway) error
	// Close releases the address.
	Close() error
}

// Gateway opens sessions for the clients of one front.
//
// Owner: any goroutine.
type Gateway struct {
	Bus    *local.Bus
	Prefix string       // beginning of the service's keys
	Meta   *policy.Meta // description of the served policy
	Log    *slog.Logger // never blocks
	Counts *Counts      // counters of all fronts of this server
	Budget *Budget      // budget of all fronts

	mu    sync.Mutex
	names map[string]bool // names in use, guarded by mu

	sending sync.Mutex
	body    []byte // observation that is being encoded and sent; guarded by sending
}

// origin returns the origin of a client at addr, by which the quotas of links and hosts count the
// client's sessions.
func origin(kind, addr string) wire.Origin {
	o := wire.Origin{Name: kind + " " + addr}
	if host, _, err := net.SplitHostPort(addr); err == nil && !net.ParseIP(host).IsLoopback() {
		o.Host = host
	}
	return o
}

// name reserves a robot's name for a client: KIND-HOST, followed by a number where KIND-HOST is taken. The manifest's
// list of clients may contain such a name. The result release makes the name free again.
func (g *Gateway) name(kind, addr string) (name string, release func()) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	first, err := wire.Slug(kind + "-" + host)
	if err != nil {
		first = kind
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.names == nil {
		g.names = map[string]bool{}
	}
	name = first
	for n := 2; g.names[name]; n++ {
		name = fmt.Sprintf("%s-%d", first, n)
	}
	g.names[name] = true
	return name, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.names, name)
	}
}

// Kind is a front's protocol.
type Kind uint8

// The fronts.
const (
	LeRobot Kind = iota
	OpenPI
	NumKinds
)

func (k Kind) String() string { return [NumKinds]string{"lerobot", "openpi"}[k] }

// Reason is why a front refused something.
type Reason uint8

// The reasons.
const (
	Malformed  Reason = iota // not a message of the protocol
	TooLarge                 // a message or a number of clients beyond a limit
	Opcode                   // a pickle with an opcode outside the table
	Global                   // a pickle that names a module or class outside the table
	Mismatch                 // the client expects another policy, other joints or other cameras than the server has
	Session                  // the server refused the session
	Unanswered               // the server gave no chunk for an observation
	NoMemory                 // the budget of the fronts had no room for an observation
	NumReasons
)

func (r Reason) String() string {
	return [NumReasons]string{"malformed", "too_large", "opcode", "global", "mismatch", "session", "unanswered",
		"memory"}[r]
}

// Counts are the counters of all fronts of a server.
//
// Atomic.
type Counts struct {
	Clients  [NumKinds]atomic.Uint64             // clients that connected
	Received [NumKinds]atomic.Uint64             // observations
	Filtered [NumKinds]atomic.Uint64             // observations that the protocol's own filter dropped
	Answered [NumKinds]atomic.Uint64             // chunks sent
	Refused  [NumKinds][NumReasons]atomic.Uint64 // refused messages and sessions
}
