// Package lerobot is the front for LeRobot's released robot client: it answers as LeRobot's policy
// server does, with the policy that this server serves.
//
// front.go listens and finds the client of a call, client.go keeps a client's session and answers its
// calls, policy.go compares the policy that a client asks for with the one that is served.
package lerobot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/wire/lerobot"
	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/pickle"
)

const (
	// connectionsMax bounds the connections; a further one is closed at once.
	connectionsMax = 128
	// streamsMax bounds the calls of one connection that are under way; a client has two.
	streamsMax = 4
	// greetMax bounds the calls under way of all clients without a session: each may hold a message of
	// lerobot.MaxMessage, which gRPC receives before the call is known here. A client repeats a call
	// that is refused so.
	greetMax = 8
	// greetHostMax bounds those of one host, and greetTime the time of such a call: a client that sends a byte
	// a second keeps no other one out.
	greetHostMax = greetMax / 2
	greetTime    = 20 * time.Second
	headerMax    = 16 << 10 // bytes of a call's header
	// arriveTime bounds the time of an observation's arrival.
	arriveTime = 30 * time.Second
	// idleTime bounds a connection without a call; a client that runs always waits in GetActions.
	idleTime = time.Minute
	// aliveTime and aliveTimeout find a connection whose client is gone.
	aliveTime, aliveTimeout = 10 * time.Second, 5 * time.Second
	// returnTime is how long a client's session waits for a new connection after its old one has
	// ended. gRPC reconnects by itself, after at most 2 s with the client's settings.
	returnTime = 5 * time.Second
	// refusalWait is the time after which a client without a session is refused actions.
	refusalWait = time.Second
	// stopTime is how long calls in hand may take at the end.
	stopTime = 500 * time.Millisecond
)

// Front answers robot clients.
type Front struct {
	listener net.Listener
	log      *slog.Logger
	to       *front.Gateway // set by Serve
	limit    *front.Limited // set by Serve
	greet    time.Duration  // greetTime, but in tests

	mu      sync.Mutex
	greeted map[string]int     // calls of clients without a session by their host, guarded by mu
	clients map[string]*client // by the address of their connection, guarded by mu
	ended   map[string]*client // without a connection, by their last address, guarded by mu
}

// Listen binds an address HOST:PORT.
func Listen(address string, log *slog.Logger) (front.Front, error) {
	listener, err := listen.TCP(address)
	if err != nil {
		return nil, err
	}
	return &Front{
		listener: listener,
		log:      log,
		greet:    greetTime,
		greeted:  map[string]int{},
		clients:  map[string]*client{},
		ended:    map[string]*client{},
	}, nil
}

// Addr returns the bound address.
func (f *Front) Addr() net.Addr { return f.listener.Addr() }

// Close implements front.Front.
func (f *Front) Close() error { return f.listener.Close() }

// Serve implements front.Front.
func (f *Front) Serve(ctx context.Context, to *front.Gateway) error {
	f.to = to
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(lerobot.Codec{}),
		grpc.MaxRecvMsgSize(lerobot.MaxMessage),
		grpc.MaxConcurrentStreams(streamsMax),
		grpc.MaxHeaderListSize(headerMax),
		grpc.InTapHandle(f.admit),
		grpc.ConnectionTimeout(aliveTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: idleTime,
			Time:              aliveTime,
			Timeout:           aliveTimeout,
		}),
		grpc.StatsHandler(connections{f}),
	)
	lerobot.Register(server, calls{f})
	served := make(chan error, 1)
	f.limit = front.Limit(f.listener, connectionsMax, to.Crowded(front.LeRobot, "LeRobot's", connectionsMax))
	go func() { served <- server.Serve(f.limit) }()
	var err error
	select {
	case <-ctx.Done():
		hurry := time.AfterFunc(stopTime, server.Stop)
		server.GracefulStop()
		hurry.Stop()
		<-served
	case err = <-served:
		err = fmt.Errorf("fronts.lerobot: %w", err)
	}
	for _, c := range f.all() {
		c.end()
	}
	return err
}

func (f *Front) all() (list []*client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range []map[string]*client{f.clients, f.ended} {
		for _, c := range known {
			list = append(list, c)
		}
		clear(known)
	}
	return list
}

// admit bounds the calls that are not those of a client's session, before their messages are received.
func (f *Front) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	host, address := "", ""
	if from, _ := peer.FromContext(ctx); from != nil {
		address = from.Addr.String()
		host, _, _ = net.SplitHostPort(address)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clients[address]; c != nil && c.viewed() != nil {
		switch info.FullMethodName {
		case lerobot.PathActions:
			return ctx, nil
		case lerobot.PathObservations:
			ctx, cancel := context.WithTimeout(ctx, arriveTime)
			context.AfterFunc(ctx, cancel)
			return ctx, nil
		}
	}
	all := 0
	for _, n := range f.greeted {
		all += n
	}
	if all >= greetMax || f.greeted[host] >= greetHostMax {
		f.to.Counts.Refused[front.LeRobot][front.TooLarge].Add(1)
		return nil, status.Error(codes.Unavailable, "many clients connect at this moment: try again")
	}
	f.greeted[host]++
	leave := sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.greeted[host]--; f.greeted[host] == 0 {
			delete(f.greeted, host)
		}
	})
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, placeKey{}, leave), f.greet)
	context.AfterFunc(ctx, func() {
		cancel()
		leave()
	})
	return ctx, nil
}

// placeKey is the key of a function in a call's context, which gives back its place among the calls without a
// session.
type placeKey struct{}

// connections notices the ends of connections.
type connections struct{ f *Front }

type addressKey struct{}

func (connections) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, addressKey{}, info.RemoteAddr.String())
}

func (n connections) HandleConn(ctx context.Context, s stats.ConnStats) {
	address, _ := ctx.Value(addressKey{}).(string)
	switch s.(type) {
	case *stats.ConnBegin:
		n.f.to.Counts.Clients[front.LeRobot].Add(1)
	case *stats.ConnEnd:
		n.f.disconnected(address)
	}
}

func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (connections) HandleRPC(context.Context, stats.RPCStats)                       {}

// disconnected keeps the client of a connection for returnTime.
func (f *Front) disconnected(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clients[address]
	if c == nil {
		return
	}
	delete(f.clients, address)
	f.ended[address] = c
	time.AfterFunc(returnTime, func() {
		f.mu.Lock()
		gone := f.ended[address] == c
		delete(f.ended, address)
		f.mu.Unlock()
		if gone {
			c.end()
		}
	})
}

// client returns the client of a call. A new connection continues a client of the same host whose
// connection has ended, unless the call is the first of a new client.
func (f *Front) client(ctx context.Context, first bool) *client {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return newClient(f, "")
	}
	address := from.Addr.String()
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clients[address]; c != nil {
		return c
	}
	c := newClient(f, address)
	old, alike := f.returning(address)
	switch {
	case first: // it was started again
		if alike {
			old = old[:1]
		}
		for _, one := range old {
			go f.ended[one].end()
			delete(f.ended, one)
		}
	case alike:
		c = f.ended[old[0]]
		delete(f.ended, old[0])
		c.restart()
		f.limit.Keep(address)
	}
	f.clients[address] = c
	return c
}

// returning returns the addresses of the clients on the host of address whose connections have ended,
// and whether any of them may continue at address: no call tells which of a host's clients makes it, and
// clients of one view differ in nothing but their name.
func (f *Front) returning(address string) (old []string, alike bool) {
	host, _, _ := net.SplitHostPort(address)
	var first *view
	alike = true
	for was, c := range f.ended {
		v := c.viewed()
		if from, _, _ := net.SplitHostPort(was); from != host || v == nil {
			continue
		}
		if first == nil {
			first = v
		}
		old = append(old, was)
		alike = alike && reflect.DeepEqual(v, first)
	}
	return old, alike && len(old) > 0
}

// calls are the calls of all clients.
type calls struct{ f *Front }

func (s calls) Ready(ctx context.Context) error {
	s.f.client(ctx, true).end()
	return nil
}

func (s calls) SendPolicyInstructions(ctx context.Context, data []byte) error {
	return s.f.answer(ctx, s.f.client(ctx, false).instruct(ctx, data))
}

func (s calls) SendObservations(ctx context.Context, next func() (*lerobot.Message, error)) error {
	return s.f.answer(ctx, s.f.client(ctx, false).observe(next))
}

func (s calls) GetActions(ctx context.Context) ([]byte, error) {
	actions, err := s.f.client(ctx, false).actions(ctx)
	if errors.Is(err, errOrder) {
		s.f.slow(ctx)
	}
	return actions, s.f.answer(ctx, err)
}

// slow delays the refusal of a client that asks for actions again at once, as the released one does for ever
// after a restart of its server. It holds no message, and so no place for its call.
func (f *Front) slow(ctx context.Context) {
	if leave, ok := ctx.Value(placeKey{}).(func()); ok {
		leave()
	}
	select {
	case <-ctx.Done():
	case <-time.After(refusalWait):
	}
}

// errMismatch marks a policy that is not the served one, errOrder a call before the one that it needs.
var (
	errMismatch = errors.New("another policy than this server's")
	errOrder    = errors.New("call SendPolicyInstructions first: this server has no session of the client, which has " +
		"to be started again after a restart of the server, or after 5 s without a connection")
)

// reasons are the errors that are counted here, with their codes. The client repeats no call that ends
// with one of these codes.
var reasons = []struct {
	err    error
	reason front.Reason
	code   codes.Code
}{
	{pickle.ErrOpcode, front.Opcode, codes.InvalidArgument},
	{pickle.ErrGlobal, front.Global, codes.InvalidArgument},
	{pickle.ErrTooLarge, front.TooLarge, codes.ResourceExhausted},
	{lerobot.ErrTooLarge, front.TooLarge, codes.ResourceExhausted},
	{pickle.ErrMalformed, front.Malformed, codes.InvalidArgument},
	{front.ErrNoMemory, front.NoMemory, codes.ResourceExhausted},
	{lerobot.ErrMessage, front.Malformed, codes.InvalidArgument},
	{errMismatch, front.Mismatch, codes.FailedPrecondition},
	{errOrder, front.NumReasons, codes.FailedPrecondition},
	{front.ErrTemporary, front.NumReasons, codes.ResourceExhausted}, // counted by the gateway
	{front.ErrRefused, front.NumReasons, codes.FailedPrecondition},
	{front.ErrUnanswered, front.NumReasons, codes.Aborted},
}

// answer turns an error into that of a call, counts and logs it.
func (f *Front) answer(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, known := range reasons {
		if !errors.Is(err, known.err) {
			continue
		}
		if known.reason < front.NumReasons {
			f.to.Counts.Refused[front.LeRobot][known.reason].Add(1)
		}
		from := ""
		if p, ok := peer.FromContext(ctx); ok {
			from = p.Addr.String()
		}
		f.log.Warn("a LeRobot client's call is refused", "from", from, "why", err)
		return status.Error(known.code, err.Error())
	}
	return err
}
