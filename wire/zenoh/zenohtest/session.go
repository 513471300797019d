package zenohtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/wire"
)

// Config configures an official session.
type Config struct {
	Mode    string // client, peer or router
	Connect []string
	Listen  []string
	More    map[string]any // further keys of the session's configuration, such as access_control
}

// Session is an official session as a wire.Session. PutLatest does the same as Put.
type Session struct {
	node   *Node
	events chan head
	closed chan struct{}
	once   sync.Once
	ended  sync.WaitGroup // the goroutine that delivers

	deliver sync.Mutex // held while a callback runs

	mu      sync.Mutex
	objects map[string]*object     // guarded by mu
	asking  map[string]chan<- head // queries that wait for replies, by name; guarded by mu
}

// object is a declaration in the node, identified by its name in the node.
type object struct {
	s       *Session
	name    string
	deposit func(wire.Sample)
	answer  func(wire.Query)
	watch   func(key string, alive bool)
	over    bool // the object was undeclared; guarded by Session.deliver
}

var (
	_     wire.Session = (*Session)(nil)
	names atomic.Uint64
)

// newName returns a name that no object of any session has had.
func newName() string { return strconv.FormatUint(names.Add(1), 10) }

// Open opens the node's session, after closing the previous one.
func (n *Node) Open(cfg Config) (*Session, error) {
	n.mu.Lock()
	old := n.session
	n.mu.Unlock()
	if old != nil {
		old.Close()
	}
	s := &Session{
		node:    n,
		events:  make(chan head, maxEvents),
		closed:  make(chan struct{}),
		objects: map[string]*object{},
		asking:  map[string]chan<- head{},
	}
	n.mu.Lock()
	n.session = s
	n.mu.Unlock()
	list := func(v []string) []string { return append([]string{}, v...) }
	more := map[string]any{}
	maps.Copy(more, cfg.More)
	if _, err := n.do("open", args{"mode": cfg.Mode, "connect": list(cfg.Connect), "listen": list(cfg.Listen),
		"config": more}, nil, nil); err != nil {
		return nil, err
	}
	s.ended.Go(s.run)
	return s, nil
}

// run delivers events one at a time, until the session is closed or its process has ended.
func (s *Session) run() {
	for {
		select {
		case h := <-s.events:
			s.happen(h)
		case <-s.closed:
			return
		case <-s.node.gone:
			return
		}
	}
}

func (s *Session) happen(h head) {
	s.mu.Lock()
	o := s.objects[h.Name]
	s.mu.Unlock()
	if o == nil {
		return
	}
	s.deliver.Lock()
	defer s.deliver.Unlock()
	switch {
	case o.over || s.isClosed():
	case h.Event == "sample":
		o.deposit(wire.Sample{Key: h.Key, Payload: h.payload, Attachment: h.attachment})
	case h.Event == "token":
		o.watch(h.Key, h.Alive)
	case h.Event == "query":
		o.answer(&query{s: s, head: h})
	}
}

func (s *Session) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

func (s *Session) do(command string, a args, payload, attachment []byte) (head, error) {
	if s.isClosed() {
		return head{}, wire.ErrClosed
	}
	return s.node.do(command, a, payload, attachment)
}

// declare makes an object in the node.
func (s *Session) declare(o *object, command string, a args) (*object, error) {
	o.s, o.name = s, newName()
	a["name"] = o.name
	s.mu.Lock()
	s.objects[o.name] = o
	s.mu.Unlock()
	if _, err := s.do(command, a, nil, nil); err != nil {
		s.mu.Lock()
		delete(s.objects, o.name)
		s.mu.Unlock()
		return nil, err
	}
	return o, nil
}

// Undeclare ends the object; no callback of it runs afterwards.
func (o *object) Undeclare() error {
	_, err := o.s.do("undeclare", args{"name": o.name}, nil, nil)
	o.s.deliver.Lock()
	o.over = true
	o.s.deliver.Unlock()
	return err
}

// Subscribe declares a subscriber.
func (s *Session) Subscribe(key string, deposit func(wire.Sample)) (wire.Declaration, error) {
	return declaration(s.declare(&object{deposit: deposit}, "subscribe", args{"key": key}))
}

// Queryable declares a queryable.
func (s *Session) Queryable(key string, answer func(wire.Query)) (wire.Declaration, error) {
	return declaration(s.declare(&object{answer: answer}, "queryable", args{"key": key}))
}

// Token declares a liveliness token.
func (s *Session) Token(key string) (wire.Declaration, error) {
	return declaration(s.declare(new(object), "token", args{"key": key}))
}

// SubscribeTokens declares a liveliness subscriber with history.
func (s *Session) SubscribeTokens(key string, deposit func(string, bool)) (wire.Declaration, error) {
	return declaration(s.declare(&object{watch: deposit}, "watch", args{"key": key, "history": true}))
}

// SubscribeNewTokens declares a watcher without history, which does not get the existing tokens.
func (s *Session) SubscribeNewTokens(key string, deposit func(string, bool)) (wire.Declaration, error) {
	return declaration(s.declare(&object{watch: deposit}, "watch", args{"key": key, "history": false}))
}

func declaration(o *object, err error) (wire.Declaration, error) {
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Connected reports whether the session has a link.
func (s *Session) Connected() bool {
	h, err := s.do("connected", nil, nil, nil)
	return err == nil && h.Yes
}

// Close ends the session; the node can open another.
func (s *Session) Close() error {
	err := wire.ErrClosed
	s.once.Do(func() {
		_, err = s.node.do("close", nil, nil, nil)
		close(s.closed)
		s.ended.Wait()
		s.node.mu.Lock()
		s.node.session = nil
		s.node.mu.Unlock()
	})
	return err
}

// publisher is a publisher that is declared in the node.
type publisher struct{ *object }

// Publisher declares a publisher.
func (s *Session) Publisher(key string, q wire.QoS) (wire.Publisher, error) {
	if q.Priority == 0 {
		q.Priority = wire.Data
	}
	if strings.Contains(key, "*") {
		return nil, fmt.Errorf("official node: publisher on %q, which the binding takes for all keys at once", key)
	}
	o, err := s.declare(new(object), "publisher", args{"key": key, "priority": q.Priority, "block": q.Block,
		"express": q.Express, "reliable": q.Reliable})
	if err != nil {
		return nil, err
	}
	return &publisher{o}, nil
}

// Put puts a sample.
func (p *publisher) Put(payload, attachment []byte) error {
	_, err := p.s.do("put", args{"name": p.name}, orEmpty(payload), attachment)
	return err
}

// PutLatest is Put.
func (p *publisher) PutLatest(payload, attachment []byte) (bool, error) {
	return false, p.Put(payload, attachment)
}

// orEmpty returns a payload that is not nil, because for the node nil means no payload.
func orEmpty(payload []byte) []byte { return append([]byte{}, payload...) }

// replied passes a reply to the Get that sent the query.
func (s *Session) replied(h head) {
	s.mu.Lock()
	to := s.asking[h.Name]
	s.mu.Unlock()
	if to == nil {
		return
	}
	select {
	case to <- h:
	case <-s.closed:
	}
}

// maxReplies is the largest number of replies of one query that may wait until ask takes them.
const maxReplies = 65536

// ask runs a command that the node answers by replies and a message that ends them.
func (s *Session) ask(ctx context.Context, command string, a args, payload []byte, timeout time.Duration) (all []head,
	err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name, replies := newName(), make(chan head, maxReplies)
	s.mu.Lock()
	s.asking[name] = replies
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.asking, name)
		s.mu.Unlock()
	}()
	a["name"], a["timeout"] = name, timeout.Seconds()
	if _, err := s.do(command, a, payload, nil); err != nil {
		return nil, err
	}
	overdue := time.After(timeout + answerLimit)
	for {
		select {
		case h := <-replies:
			if h.Event == "final" {
				return all, nil
			}
			all = append(all, h)
		case <-ctx.Done():
			return all, ctx.Err()
		case <-s.closed:
			return all, wire.ErrClosed
		case <-s.node.gone:
			return all, wire.ErrDisconnected
		case <-overdue:
			return all, fmt.Errorf("official node: %s: no end within its timeout of %v and %v more", command, timeout,
				answerLimit)
		}
	}
}

// Get queries all nodes.
func (s *Session) Get(ctx context.Context, key string, payload []byte, timeout time.Duration) (all []wire.Reply,
	err error) {
	if timeout < time.Millisecond {
		return nil, errors.New("official node: a query without a timeout")
	}
	heads, err := s.ask(ctx, "get", args{"key": key}, payload, timeout)
	for _, h := range heads {
		if h.Error && string(h.payload) == "Timeout" {
			continue // the official querier marks a timeout with such a reply
		}
		all = append(all, wire.Reply{Key: h.Key, Payload: h.payload, Err: h.Error})
	}
	return all, err
}

// Tokens lists the live tokens that match.
func (s *Session) Tokens(ctx context.Context, key string, timeout time.Duration) (keys []string, err error) {
	heads, err := s.ask(ctx, "tokens", args{"key": key}, nil, timeout)
	for _, h := range heads {
		keys = append(keys, h.Key)
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}

// query is a query to one of the node's queryables.
type query struct {
	s *Session
	head
	once sync.Once
}

func (q *query) Key() string       { return q.head.Key }
func (q *query) Payload() []byte   { return q.payload }
func (q *query) From() wire.Origin { return wire.Origin{} }

func (q *query) Reply(key string, payload []byte) error {
	_, err := q.s.do("reply", args{"query": q.Query, "key": key}, orEmpty(payload), nil)
	return err
}

func (q *query) ReplyErr(payload []byte) error {
	_, err := q.s.do("reply_err", args{"query": q.Query}, payload, nil)
	return err
}

func (q *query) Finish() {
	q.once.Do(func() { q.s.do("finish", args{"query": q.Query}, nil, nil) })
}
