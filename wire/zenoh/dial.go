package zenoh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt/backoff"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// attemptLimit bounds an attempt if there are several endpoints, because the next endpoint may answer sooner.
const attemptLimit = 5 * time.Second

// dialer keeps a link from the session to exactly one of its endpoints. Over a second link to the same network the
// session would receive every sample twice.
type dialer struct {
	s         *Session
	endpoints []endpoint.Endpoint

	// Owner: run.
	next  int       // index of the endpoint to try first
	away  time.Time // time at which the last period without a link began
	lines repeats   // repeated lines of the log
	told  bool      // the log already has a line about the present period without a link

	mu   sync.Mutex
	last []error // error of the last attempt at each endpoint, guarded by mu
}

// run dials until the session closes. It tries one endpoint after the other and pauses when all
// have failed. After a lost link it begins with the same endpoint, or with the next one when that
// endpoint has just fallen silent.
func (d *dialer) run() {
	s := d.s
	d.away, d.told = time.Now(), true
	retry := backoff.Backoff{First: s.cfg.BackoffMin, Max: s.cfg.BackoffMax}
	pause := retry.Next()
	for s.ctx.Err() == nil {
		run := d.round(pause)
		if run == nil {
			// Half the pause is random, so that the robots of a fleet do not all reconnect at the same moment.
			s.sleep(pause/2 + rand.N(pause/2+1))
			pause = retry.Next()
			continue
		}
		at := d.endpoints[d.next].String()
		began := time.Now()
		if away := began.Sub(d.away).Round(time.Second); d.told && away > 0 {
			s.cfg.Log(fmt.Sprintf("connected to %s after %v", at, away))
		} else if d.told {
			s.cfg.Log("connected to " + at)
		}
		d.told = false
		s.cfg.Links(LinkEvent{Endpoint: at, Dialled: true, Up: true})
		err := run()
		if s.ctx.Err() != nil {
			return
		}
		if time.Since(began) > s.cfg.Lease {
			retry.Reset()
			pause = retry.Next()
			clear(d.lines)
		}
		d.away = time.Now()
		wait := rand.N(pause + 1)
		d.failed(err, fmt.Sprintf("lost %s, next attempt in %v: %v", at, wait.Round(time.Millisecond), err))
		if errors.Is(err, link.ErrExpired) || errors.Is(err, link.ErrUnconfirmed) {
			d.next = (d.next + 1) % len(d.endpoints)
		}
		s.sleep(wait)
	}
}

// round tries every endpoint once. It returns the function that runs the first opened link, or nil when no link was
// opened.
func (d *dialer) round(pause time.Duration) (run func() error) {
	for i := range d.endpoints {
		if i > 0 {
			d.next = (d.next + 1) % len(d.endpoints)
		}
		run, err := d.dial(d.endpoints[d.next])
		if err == nil {
			return run
		}
		if d.s.ctx.Err() != nil {
			return nil
		}
		next := "next attempt in about " + pause.String()
		if i < len(d.endpoints)-1 {
			next = "trying the next endpoint"
		}
		d.failed(err, fmt.Sprintf("no link to %s, %s: %v", d.endpoints[d.next], next, err))
	}
	return nil
}

func (d *dialer) failed(err error, line string) {
	d.mu.Lock()
	d.last[d.next] = err
	d.mu.Unlock()
	at, now := d.endpoints[d.next].String(), time.Now()
	if d.lines.due(at, err, now) {
		d.told = true
		if away := now.Sub(d.away).Round(time.Second); away > 0 {
			line += fmt.Sprintf(" (away for %v)", away)
		}
		d.s.cfg.Log(line)
	}
	d.s.cfg.Links(LinkEvent{Endpoint: at, Dialled: true, Err: err})
}

func (d *dialer) dial(e endpoint.Endpoint) (run func() error, err error) {
	s := d.s
	ctx := s.ctx
	if len(d.endpoints) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attemptLimit)
		defer cancel()
	}
	conn, err := e.Dial(ctx, link.Tune)
	if err != nil {
		return nil, err
	}
	// Every attempt uses a new node id. The peer may still hold our last link, and it would refuse the same id until
	// the lease of that link has ended.
	role := codec.Client
	zid := newZID()
	join := s.join
	if s.router != nil {
		// A session with clients is a peer. It keeps its node id, so that two peers never have two links between them,
		// over which samples would arrive twice or circulate.
		role = codec.Peer
		zid = s.zid
		join = s.router.Join
	}
	l, err := link.Dial(ctx, conn, s.linkConfig(role, zid))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("wire/zenoh: no Zenoh session at %s: %w", e, e.Refused(err))
	}
	if run, err = join(l); err != nil {
		l.Discard()
		return nil, fmt.Errorf("wire/zenoh: %s: %w", e, err)
	}
	return run, nil
}

// Reached reports whether Open failed although it reached a node: the node refused the link, or we refused the node.
// The error's text gives the reason. A search for other nodes is of no use.
func Reached(err error) bool {
	var trust *endpoint.AuthError
	var plain *endpoint.PlainError
	return errors.As(err, &trust) || errors.As(err, &plain) || errors.Is(err, link.ErrForeign)
}

// failures returns the error of Open when ctx ended before any endpoint had a link: the last error of each endpoint, on
// one line.
func (d *dialer) failures(ctx context.Context) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, e := range d.last {
		if e == nil {
			e = d.endpoints[i].Unreachable(ctx.Err())
		}
		if err == nil {
			err = e
			continue
		}
		err = fmt.Errorf("%w; %w", err, e)
	}
	return err
}

func (s *Session) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.ctx.Done():
	case <-t.C:
	}
}

func (s *Session) linkConfig(role codec.Role, zid []byte) link.Config {
	return link.Config{
		ZID:        zid,
		Role:       role,
		Lease:      s.cfg.Lease,
		KeepAlive:  s.cfg.KeepAlive,
		MaxMessage: s.cfg.MaxMessage,
		Budget:     s.budget,
		Counters:   &s.counters,
	}
}
