//go:build zenohc

package zenohgo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/BooleanCat/option"
	zenohc "github.com/eclipse-zenoh/zenoh-go/zenoh"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

const (
	maxWaiting = 1024            // callbacks that wait for the running one
	waitLimit  = 5 * time.Second // longest time for which a full queue of callbacks may block the library
)

// Session implements wire.Session.
type Session struct {
	events  chan func()
	closing chan struct{}
	ended   sync.WaitGroup // the goroutine of the callbacks

	deliver sync.Mutex // held while a callback runs

	// Overflows is the number of callbacks that were dropped because earlier callbacks took too long.
	Overflows atomic.Uint64

	// mu is held for reading during every call of the library, and held for writing by Close.
	mu      sync.RWMutex
	closed  bool
	session zenohc.Session
}

var _ wire.Session = (*Session)(nil)

// Open starts a session of the library with the parts of cfg that the library supports: endpoints to connect to and to
// listen on, TLS, lease and pauses. It accepts every endpoint that the library supports.
func Open(ctx context.Context, cfg zenoh.Config) (wire.Session, error) {
	conf, err := configOf(cfg)
	if err != nil {
		return nil, err
	}
	s := &Session{events: make(chan func(), maxWaiting), closing: make(chan struct{})}
	type opened struct {
		session zenohc.Session
		err     error
	}
	done := make(chan opened, 1)
	go func() {
		session, err := zenohc.Open(conf, nil)
		done <- opened{session, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, fmt.Errorf("wire/zenohgo: cannot open a session to %v, listening on %v: %w", cfg.Connect,
				cfg.Listen, o.err)
		}
		s.session = o.session
	case <-ctx.Done():
		go func() { // the library's call cannot be interrupted
			if o := <-done; o.err == nil {
				o.session.Drop()
			}
		}()
		return nil, fmt.Errorf("wire/zenohgo: nobody answers at %v: %w", cfg.Connect, ctx.Err())
	}
	s.ended.Go(s.run)
	return s, nil
}

// configOf translates cfg to the library's configuration.
func configOf(cfg zenoh.Config) (conf zenohc.Config, err error) {
	conf = zenohc.NewConfigDefault()
	mode := "client"
	if len(cfg.Listen) > 0 {
		mode = "peer"
	}
	millis := func(d, or time.Duration) int64 { return cmp.Or(d, or).Milliseconds() }
	set := map[string]any{
		zenohc.ConfigModeKey: mode, zenohc.ConfigConnectKey: list(cfg.Connect),
		zenohc.ConfigListenKey:            list(cfg.Listen),
		zenohc.ConfigMulticastScoutingKey: false, "scouting/gossip/enabled": false,
		"transport/link/tx/lease": millis(cfg.Lease, zenoh.DefaultLease), "connect/timeout_ms": -1,
		"connect/retry": map[string]any{"period_init_ms": millis(cfg.BackoffMin, zenoh.DefaultBackoffMin),
			"period_max_ms": millis(cfg.BackoffMax, zenoh.DefaultBackoffMax), "period_increase_factor": 2},
	}
	tls(set, cfg.TLS)
	for key, value := range set {
		text, err := json.Marshal(value)
		if err != nil {
			return conf, err
		}
		if err := conf.InsertJson5(key, string(text)); err != nil {
			return conf, fmt.Errorf("wire/zenohgo: %s = %s: %w", key, text, err)
		}
	}
	return conf, nil
}

func list(v []string) []string { return append([]string{}, v...) }

// tls adds the TLS settings that were given.
func tls(set map[string]any, s endpoint.Security) {
	const at = "transport/link/tls/"
	for key, file := range map[string]string{
		"root_ca_certificate": s.RootCA,
		"connect_certificate": s.ConnectCertificate, "connect_private_key": s.ConnectKey,
		"listen_certificate": s.ListenCertificate, "listen_private_key": s.ListenKey,
	} {
		if file != "" {
			set[at+key] = file
		}
	}
	set[at+"enable_mtls"] = s.MutualTLS || s.ConnectCertificate != ""
	set[at+"verify_name_on_connect"] = !s.AnyName
}

// run runs the queued callbacks one at a time.
func (s *Session) run() {
	for {
		select {
		case f := <-s.events:
			f()
		case <-s.closing:
			return
		}
	}
}

// later makes the session's own goroutine run f, after the callbacks that are already waiting. The
// caller is on a thread of the library, or in a callback that publishes to its own session.
func (s *Session) later(f func()) {
	select {
	case s.events <- f:
		return
	default:
	}
	select {
	case s.events <- f:
	case <-s.closing:
	case <-time.After(waitLimit):
		s.Overflows.Add(1)
	}
}

// call runs f while the session is open.
func (s *Session) call(f func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return wire.ErrClosed
	}
	return f()
}

// declared is a declaration of the session.
type declared struct {
	s         *Session
	undeclare func() error
	over      bool // undeclared; guarded by Session.deliver
	once      sync.Once
}

// Undeclare ends d. When it returns, no callback of d runs or will run.
func (d *declared) Undeclare() (err error) {
	d.once.Do(func() { err = d.s.call(d.undeclare) })
	d.s.deliver.Lock()
	d.over = true
	d.s.deliver.Unlock()
	return err
}

// happen runs a callback of d, unless d is undeclared.
func (d *declared) happen(f func()) {
	d.s.later(func() {
		d.s.deliver.Lock()
		defer d.s.deliver.Unlock()
		if !d.over {
			f()
		}
	})
}

func keyOf(key string) (k zenohc.KeyExpr, err error) {
	if key == "" {
		return k, errors.New("wire/zenohgo: an empty key")
	}
	if k, err = zenohc.NewKeyExpr(key); err != nil {
		err = fmt.Errorf("wire/zenohgo: key %q: %w", key, err)
	}
	return k, err
}

// declare makes a declaration on a key.
func (s *Session) declare(key string, make func(*declared, zenohc.KeyExpr) error) (*declared, error) {
	d := &declared{s: s}
	return d, s.call(func() error {
		k, err := keyOf(key)
		if err != nil {
			return err
		}
		return make(d, k)
	})
}

func declaration(d *declared, err error) (wire.Declaration, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Subscribe calls deposit for every sample whose key matches.
func (s *Session) Subscribe(key string, deposit func(wire.Sample)) (wire.Declaration, error) {
	return declaration(s.declare(key, func(d *declared, k zenohc.KeyExpr) error {
		on := func(m zenohc.Sample) {
			if m.Kind() == zenohc.SampleKindDelete {
				return
			}
			d.happen(func() {
				deposit(wire.Sample{Key: m.KeyExpr().String(), Payload: m.Payload().Bytes(),
					Attachment: bytesOf(m.Attachement())})
			})
		}
		sub, err := s.session.DeclareSubscriber(k, zenohc.Closure[zenohc.Sample]{Call: on}, nil)
		d.undeclare = sub.Undeclare
		return err
	}))
}

// Token declares a liveliness token.
func (s *Session) Token(key string) (wire.Declaration, error) {
	return declaration(s.declare(key, func(d *declared, k zenohc.KeyExpr) error {
		token, err := s.session.Liveliness().DeclareToken(k, nil)
		d.undeclare = token.Undeclare
		return err
	}))
}

// SubscribeTokens reports existing tokens, and tokens that appear and vanish.
func (s *Session) SubscribeTokens(key string, deposit func(string, bool)) (wire.Declaration, error) {
	return declaration(s.declare(key, func(d *declared, k zenohc.KeyExpr) error {
		on := func(m zenohc.Sample) {
			d.happen(func() { deposit(m.KeyExpr().String(), m.Kind() == zenohc.SampleKindPut) })
		}
		sub, err := s.session.Liveliness().DeclareSubscriber(k, zenohc.Closure[zenohc.Sample]{Call: on},
			&zenohc.LivelinessSubscriberOptions{History: true})
		d.undeclare = sub.Undeclare
		return err
	}))
}

// Tokens lists the live tokens that match.
func (s *Session) Tokens(ctx context.Context, key string, timeout time.Duration) (keys []string, err error) {
	replies, err := s.gather(ctx, key, func(k zenohc.KeyExpr, h zenohc.Handler[zenohc.Reply]) error {
		_, err := s.session.Liveliness().Get(k, h,
			&zenohc.LivelinessGetOptions{TimeoutMs: uint64(max(timeout.Milliseconds(), 1))})
		return err
	})
	for _, r := range replies {
		if !r.Err {
			keys = append(keys, r.Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}

// Connected reports whether the library has a link to a router, a peer or a client.
func (s *Session) Connected() (yes bool) {
	s.call(func() error {
		all, err := s.session.Transports()
		yes = len(all) > 0
		return err
	})
	return yes
}

// Close ends the session. No callback runs afterwards.
func (s *Session) Close() error {
	s.deliver.Lock()
	select {
	case <-s.closing:
		s.deliver.Unlock()
		return wire.ErrClosed
	default:
	}
	close(s.closing)
	s.deliver.Unlock()
	s.ended.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	err := s.session.Close(nil)
	s.session.Drop()
	return err
}

func some[T any](v T) option.Option[T] { return option.Some(v) }
