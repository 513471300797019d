// Package lerobot is the front for LeRobot's released robot client: it answers as LeRobot's policy server does, but
// with the one policy that this server serves.
//
// front.go listens and finds the client of a call, client.go keeps a client's session and answers its
// calls, policy.go compares the policy that a client asks for with the one that is served.
package lerobot

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/wire/lerobot"
	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/pickle"
)

const (
	// messageTime is the longest time from a message's first byte to its last.
	messageTime = 30 * time.Second
	// instructionsMost is the most bytes of a SendPolicyInstructions message: some ten times the size of the message of
	// a robot with two arms.
	instructionsMost = 64 << 10
	// returnTime is how long a client's session waits for a new connection after its old one has
	// ended. gRPC reconnects by itself, after at most 2 s with the client's settings.
	returnTime = 5 * time.Second
	// refusalWait is how long the front waits before it refuses actions to a client without a session. The released
	// client asks again at once after a refusal and, after a restart of the server, does so for ever.
	refusalWait = time.Second
)

// Front answers robot clients.
type Front struct {
	net.Listener
	log      *slog.Logger
	to       *front.Gateway // set by Serve
	patience time.Duration  // messageTime, or a shorter time in tests

	mu      sync.Mutex
	clients map[string]*client // clients by the address of their connection, guarded by mu
	ended   map[string]*client // clients without a connection, by their last address, guarded by mu
}

// Listen binds an address HOST:PORT.
func Listen(address string, log *slog.Logger) (front.Front, error) {
	listener, err := listen.TCP(address)
	if err != nil {
		return nil, err
	}
	return &Front{
		Listener: listener,
		log:      log,
		patience: messageTime,
		clients:  map[string]*client{},
		ended:    map[string]*client{},
	}, nil
}

// Serve implements front.Front.
func (f *Front) Serve(ctx context.Context, to *front.Gateway) error {
	f.to = to
	server := lerobot.NewServer(f.call)
	answer := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(f.patience)) // never fails for HTTP/2
		answer.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), addressKey{}, r.RemoteAddr)))
	})
	server.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			to.Counts.Clients[front.LeRobot].Add(1)
		case http.StateClosed:
			f.disconnected(c.RemoteAddr().String())
		}
	}
	err := to.Serve(ctx, front.LeRobot, f.Listener, server)
	for _, c := range f.all() {
		c.end()
	}
	return err
}

// addressKey is the key of the client's address in a call's context.
type addressKey struct{}

func addressOf(ctx context.Context) string {
	from, _ := ctx.Value(addressKey{}).(string)
	return from
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

// disconnected keeps the client of a connection for returnTime.
func (f *Front) disconnected(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clients[address]
	if c == nil {
		return
	}
	delete(f.clients, address)
	if was := f.ended[address]; was != nil { // no timer would end this client any more
		go was.end()
	}
	f.ended[address] = c
	time.AfterFunc(returnTime, func() {
		f.mu.Lock()
		gone := f.ended[address] == c
		if gone { // otherwise another client has had the address meanwhile
			delete(f.ended, address)
		}
		f.mu.Unlock()
		if gone {
			c.end()
		}
	})
}

// client returns the client of a call. A new connection continues a client of the same host whose
// connection has ended, unless the call is the first of a new client.
func (f *Front) client(ctx context.Context, first bool) *client {
	address := addressOf(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clients[address]; c != nil {
		return c
	}
	c := newClient(f, address)
	if ctx.Err() != nil { // the connection has ended, so nothing would remove its client
		return c
	}
	old, alike := f.returning(address)
	switch {
	case first: // the client's program was restarted
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
	}
	f.clients[address] = c
	return c
}

// returning returns, as the result old, the addresses of the clients on address's host whose connections have ended.
// A call does not identify its client. So a client may continue at this address only if the result alike is true:
// then all these clients have the same view and differ only in their names.
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

// call executes the gRPC call of a client: path is its method, and next receives its messages.
func (f *Front) call(ctx context.Context, path string, next lerobot.Next) (out []byte, err error) {
	c := f.client(ctx, path == lerobot.PathReady)
	switch path {
	case lerobot.PathReady:
		c.end()
	case lerobot.PathInstructions:
		var m lerobot.Message
		if m, err = next(make([]byte, instructionsMost)); err == nil {
			err = c.instruct(ctx, m.Data)
		}
	case lerobot.PathObservations:
		err = c.observe(next)
	case lerobot.PathActions: // the request is empty and is never received
		if out, err = c.actions(ctx); errors.Is(err, errOrder) {
			select {
			case <-ctx.Done():
			case <-time.After(refusalWait):
			}
		}
	default:
		err = status.Errorf(codes.Unimplemented, "there is no call %.100q", path)
	}
	return out, f.answer(ctx, err)
}

// errMismatch marks a client's policy that differs from the served policy. errOrder marks a call that a client without
// a session may not make yet.
var (
	errMismatch = errors.New("another policy than this server's")
	errOrder    = errors.New("call SendPolicyInstructions first: this server has no session of the client, which has " +
		"to be started again after a restart of the server, or after 5 s without a connection")
)

// reasons are the errors of calls, each with its gRPC code and the reason under which it is
// counted. The gateway itself counts errors with the reason front.NumReasons. The client repeats no
// call that ends with one of these codes.
var reasons = []struct {
	err    error
	reason front.Reason
	code   codes.Code
}{
	{pickle.ErrOpcode, front.Opcode, codes.InvalidArgument},
	{pickle.ErrGlobal, front.Global, codes.InvalidArgument},
	{pickle.ErrTooLarge, front.TooLarge, codes.ResourceExhausted},
	{lerobot.ErrTooLarge, front.TooLarge, codes.ResourceExhausted},
	{os.ErrDeadlineExceeded, front.TooLarge, codes.Aborted}, // a message took too long
	{pickle.ErrMalformed, front.Malformed, codes.InvalidArgument},
	{front.ErrNoMemory, front.NoMemory, codes.ResourceExhausted},
	{lerobot.ErrMessage, front.Malformed, codes.InvalidArgument},
	{errMismatch, front.Mismatch, codes.FailedPrecondition},
	{errOrder, front.NumReasons, codes.FailedPrecondition},
	{front.ErrTemporary, front.NumReasons, codes.ResourceExhausted}, // counted by the gateway
	{front.ErrRefused, front.NumReasons, codes.FailedPrecondition},
	{front.ErrUnanswered, front.NumReasons, codes.Aborted},
}

// answer counts and logs an error, and returns it as the error of a gRPC call.
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
		f.log.Warn("a LeRobot client's call is refused", "from", addressOf(ctx), "why", err)
		return status.Error(known.code, err.Error())
	}
	return err
}
