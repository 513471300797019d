package front

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/listen"
)

const (
	// queryTimeout bounds an open and a reset. It can be short, because the server is in this process.
	queryTimeout = 5 * time.Second
	// A robot waits for a chunk for patienceTimes the time that the server announces for its
	// slowest answer, but at least for patienceMin. The wait is bounded because the server may drop
	// an observation without an event, when it has sent an event just before.
	patienceMin   = 5 * time.Second
	patienceTimes = 4
)

// Errors of a Robot.
var (
	// ErrRefused marks a session that the server did not open. The error's text has the reason.
	ErrRefused = errors.New("the server opens no session")
	// ErrTemporary marks an ErrRefused that has a temporary reason, such as a full server. A later attempt may succeed.
	ErrTemporary = errors.New("try again later")
	// ErrUnanswered marks an observation without a chunk.
	ErrUnanswered = errors.New("no chunk")
)

// Robot is the session of one foreign client.
//
// Owner: one goroutine at a time.
type Robot struct {
	gateway *Gateway
	kind    Kind
	addr    string
	from    wire.Origin
	open    wire.SessionOpen
	release func() // gives the name back
	once    sync.Once

	session wire.Session
	obs     wire.Publisher
	ack     wire.SessionAck
	header  wire.Header // header of the newest request
	stamp   [8]byte

	answers chan struct{} // capacity 1: signals that box has changed

	mu   sync.Mutex
	box  answer // answer to the newest request; guarded by mu
	want wire.Header
}

// answer is a server's answer to a request.
type answer struct {
	chunk wire.ActionChunk
	event wire.Event
	err   error
	full  bool
}

// Open opens a session for the client at addr. The parameter asked has the robot's joints, cameras, rate and task.
// Open adds the robot's name, which is made of the front's kind and the client's host.
func (g *Gateway) Open(ctx context.Context, kind Kind, addr string, asked wire.SessionOpen) (*Robot, error) {
	name, release := g.name(kind.String(), addr)
	r := &Robot{
		gateway: g,
		kind:    kind,
		addr:    addr,
		from:    origin(kind.String(), addr),
		open:    asked,
		release: release,
		answers: make(chan struct{}, 1),
	}
	r.open.ClientUUID = name
	r.open.SchemaVersion = wire.SchemaVersion
	r.open.Instance = rand.Text()
	r.open.Host, _, _ = net.SplitHostPort(addr) // empty for an address without a port
	r.open.Tags = append(r.open.Tags, wire.Tag{Key: "front", Value: kind.String()})
	if err := r.connect(ctx); err != nil {
		r.Close() // a server that answers after the end of ctx has opened the session
		g.Counts.Refused[kind][Session].Add(1)
		return nil, err
	}
	return r, nil
}

// Name returns the robot's name in the server's log, page and audit.
func (r *Robot) Name() string { return r.open.ClientUUID }

// Ack is the server's description of its policy.
func (r *Robot) Ack() *wire.SessionAck { return &r.ack }

// connect opens a session of the next epoch.
func (r *Robot) connect(ctx context.Context) error {
	server, err := r.server(ctx)
	if err != nil {
		return err
	}
	r.disconnect()
	// the client must not get the model of a roll-out
	r.open.ServerID, r.open.ModelSHA256 = server.ServerID, server.ModelSHA256
	r.open.SessionEpoch++
	r.ack.SessionID = ""
	r.session = r.gateway.Bus.Client(r.from)
	key, err := wire.RobotSessionKey(r.gateway.Prefix, r.open.ClientUUID)
	if err != nil {
		return err
	}
	body := wire.Append(nil, &r.open)
	if err := r.query(ctx, key, body, func(reply []byte) error {
		return wire.Parse(&r.ack, reply)
	}); err != nil {
		return err
	}
	switch {
	case r.ack.HeldBy != "": // another robot has the name, perhaps a client of another server's front
		name, release := r.gateway.name(r.kind.String(), r.addr)
		r.open.ClientUUID = name
		held := r.release
		r.release = func() { held(); release() }
		taken := r.ack.Error
		err := r.connect(ctx)
		if errors.Is(err, ErrRefused) && !errors.Is(err, ErrTemporary) { // for example, clients lacks the name
			err = fmt.Errorf("%w: %s: %w", ErrRefused, taken, ErrTemporary)
		}
		return err
	case r.ack.Temporary():
		return fmt.Errorf("%w: %s: %w", ErrRefused, r.ack.Error, ErrTemporary)
	case !r.ack.Accepted:
		return fmt.Errorf("%w: %s", ErrRefused, r.ack.Error)
	}
	return r.declare()
}

// server returns the status of this process's server.
func (r *Robot) server(ctx context.Context) (status wire.Status, err error) {
	probe := r.gateway.Bus.Client(r.from)
	defer probe.Close()
	replies, err := probe.Get(ctx, wire.StatusKey(r.gateway.Prefix), nil, queryTimeout)
	if err != nil {
		return status, err
	}
	for _, reply := range replies {
		if !reply.Err && wire.Parse(&status, reply.Payload) == nil {
			return status, nil
		}
	}
	return status, fmt.Errorf("%w: it does not answer: %w", ErrRefused, ErrTemporary)
}

func (r *Robot) query(ctx context.Context, key string, body []byte, parse func([]byte) error) error {
	replies, err := r.session.Get(ctx, key, body, queryTimeout)
	switch {
	case err != nil:
		return err
	case len(replies) == 0:
		return fmt.Errorf("%w: it does not answer within %v: %w", ErrRefused, queryTimeout, ErrTemporary)
	case replies[0].Err:
		return fmt.Errorf("%w: %s: %w", ErrRefused, replies[0].Payload, ErrTemporary)
	}
	return parse(replies[0].Payload)
}

// declare subscribes to the chunks and shows the robot's tokens.
func (r *Robot) declare() error {
	prefix, name := r.gateway.Prefix, r.open.ClientUUID
	action, err1 := wire.ActionKey(prefix, name)
	obs, err2 := wire.ObsKey(prefix, name)
	alive, err3 := wire.EpochAliveKey(prefix, name, r.open.SessionEpoch)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	_, err1 = r.session.Subscribe(action, r.deposit)
	_, err2 = r.session.Token(alive)
	var err error
	r.obs, err = r.session.Publisher(obs, wire.ObservationQoS)
	return errors.Join(err1, err2, err)
}

// deposit keeps the answer to the newest request.
func (r *Robot) deposit(s wire.Sample) {
	h, err := wire.ParseHeader(s.Attachment)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.box.full:
		return
	case h.MsgType == wire.MsgActionChunk && h == r.want.Reply(wire.MsgActionChunk):
		r.box.err = wire.ParseActionChunk(&r.box.chunk, s.Payload)
	case h.MsgType == wire.MsgEvent && h.SeqID == r.want.SeqID && wire.Parse(&r.box.event, s.Payload) == nil:
		r.box.err = fmt.Errorf("%w: %s: %s", ErrUnanswered, r.box.event.Code, r.box.event.Text)
	default:
		return
	}
	r.box.full = true
	select {
	case r.answers <- struct{}{}:
	default:
	}
}

// Infer sends an observation and returns its chunk, whose data is valid until the next call. It sets o.T to the
// request's number. After the first chunk, the connection of ctx keeps its place when a new connection needs one (see
// Gateway.Serve). Errors wrap ErrUnanswered or ErrRefused. When the server has ended the session, Infer opens it
// again.
func (r *Robot) Infer(ctx context.Context, o *wire.Observation) (*wire.ActionChunk, error) {
	r.gateway.Counts.Received[r.kind].Add(1)
	chunk, err := r.infer(ctx, o)
	if errors.Is(err, wire.ErrDisconnected) || err != nil && r.code() == wire.EventUnknownSession {
		if err = r.connect(ctx); err == nil {
			chunk, err = r.infer(ctx, o)
		}
	}
	if err != nil {
		r.gateway.Counts.Refused[r.kind][Unanswered].Add(1)
		return nil, err
	}
	r.gateway.Counts.Answered[r.kind].Add(1)
	listen.Keep(ctx)
	return chunk, nil
}

func (r *Robot) code() wire.EventCode {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.box.event.Code
}

func (r *Robot) infer(ctx context.Context, o *wire.Observation) (*wire.ActionChunk, error) {
	h := r.next()
	o.HasT, o.T = true, int64(h.SeqID)
	if err := r.put(o, h); err != nil {
		return nil, err
	}
	limit := max(patienceMin, time.Duration(patienceTimes*(r.ack.InferenceMsP99+r.ack.QueueWaitMs)*1e6))
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.answers:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnanswered, ctx.Err())
	case <-timer.C:
		return nil, fmt.Errorf("%w: the server does not answer within %v", ErrUnanswered, limit)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &r.box.chunk, r.box.err
}

// put sends an observation to the server, which copies it. All robots of the gateway share the memory in which put
// encodes it.
func (r *Robot) put(o *wire.Observation, h wire.Header) error {
	g := r.gateway
	g.sending.Lock()
	defer g.sending.Unlock()
	g.body = wire.AppendObservation(g.body[:0], o)
	return r.obs.Put(g.body, wire.AppendHeader(nil, h))
}

// next begins a request.
func (r *Robot) next() wire.Header {
	_, _ = rand.Read(r.stamp[:]) // never fails, according to its documentation
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.answers: // a late answer to an earlier request
	default:
	}
	r.header.SchemaVersion, r.header.MsgType = wire.SchemaVersion, wire.MsgObservation
	r.header.SeqID++
	r.header.SessionEpoch = r.open.SessionEpoch
	r.header.ClientMonoNs = int64(binary.LittleEndian.Uint64(r.stamp[:]) >> 1)
	r.want = r.header
	r.box.full = false
	r.box.err = nil
	r.box.event = wire.Event{}
	return r.header
}

// UnknownClient is the beginning of the server's answer to a reset of a robot without a session.
const UnknownClient = "unknown client "

// Reset begins an episode with the given task; an empty task leaves the task as it was. If the server has ended the
// session, Reset opens it again.
func (r *Robot) Reset(ctx context.Context, task string) error {
	r.header.EpisodeID++
	var ack wire.ResetAck
	ask := func() error {
		key, err := wire.ResetKey(r.gateway.Prefix, r.open.ClientUUID)
		if err != nil {
			return err
		}
		body := wire.Append(nil, &wire.Reset{ClientUUID: r.open.ClientUUID, EpisodeID: r.header.EpisodeID, Task: task})
		return r.query(ctx, key, body, func(reply []byte) error { return wire.Parse(&ack, reply) })
	}
	err := ask()
	// the server has ended the session, and another robot may have its name at another server now
	if errors.Is(err, ErrTemporary) || err == nil && strings.HasPrefix(ack.Error, UnknownClient) {
		if err = r.connect(ctx); err == nil {
			err = ask()
		}
	}
	if err == nil && !ack.OK {
		err = fmt.Errorf("%w: %s", ErrRefused, ack.Error)
	}
	return err
}

// Close ends the session and makes the robot's name free again.
func (r *Robot) Close() {
	r.once.Do(func() {
		if key, err := wire.RobotSessionKey(r.gateway.Prefix, r.open.ClientUUID); err == nil && r.session != nil {
			body := wire.Append(nil, &wire.SessionClose{ClientUUID: r.open.ClientUUID, SessionID: r.ack.SessionID})
			// a server that is ending may not answer, but it also closes the session when the robot's token vanishes
			_, _ = r.session.Get(context.Background(), key, body, time.Second)
		}
		r.disconnect()
		r.release()
	})
}

func (r *Robot) disconnect() {
	if r.session != nil {
		_ = r.session.Close() // never fails
	}
}
