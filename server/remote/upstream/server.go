package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/wire/ndarray"
)

const (
	// firstTime bounds the first inference of a connection, in which JAX compiles.
	firstTime = 10 * time.Minute
	// answerTime bounds an inference, or answerTimes the longest so far if that is more.
	answerTime  = 10 * time.Second
	answerTimes = 10
	// The wait between two attempts to connect doubles from one to the other.
	retryFirst, retryMost = 100 * time.Millisecond, 5 * time.Second
)

// Config is a server and the policy that it computes.
type Config struct {
	Kind string // openPI or GR00T
	URL  string // ws://HOST:PORT or tcp://HOST:PORT
	Key  string // API key; empty: none
	Task string // of the inferences that test a connection
	Spec Spec   // resolved
	Meta policy.Meta
	Log  *slog.Logger
}

// shown returns the address for messages, without a password.
func (c *Config) shown() string { return shown(c.URL) }

// server is a runtime: it keeps a connection and asks for chunks.
type server struct {
	remote.Connection
	Config
	messages *messages // of Batch
	tests    *messages // of the keeper
	ctx      context.Context
	stop     context.CancelFunc
	lost     chan struct{} // wakes the keeper
	kept     sync.WaitGroup
	meta     ndarray.Map // of the first connection; owner: the keeper

	link    link          // guarded by the connection; nil: none
	longest time.Duration // of an answer; owner: Batch's thread
}

// Open connects, compares the server with the manifest, and asks for one chunk. It fails with
// policy.ErrAway where the server does not answer, and with ErrFit where it does not fit.
func Open(ctx context.Context, c Config) (*remote.Policy, error) {
	if err := checkURL(c.Kind, c.URL); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	}
	s := &server{Config: c, lost: make(chan struct{}, 1)}
	s.messages, s.tests = newMessages(c.Kind, &s.Spec, &s.Meta), newMessages(c.Kind, &s.Spec, &s.Meta)
	s.ctx, s.stop = context.WithCancel(context.Background())
	l, err := s.connect(ctx)
	switch {
	case err == nil:
	case errors.Is(err, ErrFit):
		return nil, err
	default:
		return nil, &remote.Away{Server: c.shown(), Err: err}
	}
	s.meta = l.metadata()
	s.install(l)
	s.kept.Add(1)
	go s.keep()
	return &remote.Policy{
		Meta:      c.Meta,
		Runtime:   s,
		SHA256:    s.identity(),
		Where:     c.shown(),
		Version:   c.Kind,
		Program:   c.shown(),
		Device:    "cpu",
		ReadsTask: c.Spec.Prompt != "",
		MaxBatch:  1,
	}, nil
}

// identity returns a sum of all that is known of the policy.
func (s *server) identity() string {
	known := fmt.Sprintf("%s\n%s\n%+v\n%+v\n%v", s.Kind, s.URL, s.Spec, s.Meta, s.meta)
	sum := sha256.Sum256([]byte(known))
	return hex.EncodeToString(sum[:])
}

// ErrFit marks a server that does not fit the manifest.
var ErrFit = errors.New("the server does not fit the manifest")

// connect returns a connection whose server fits the manifest and has answered a blank observation.
//
// Owner: Open, then the keeper.
func (s *server) connect(ctx context.Context) (l link, err error) {
	s.State("connecting")
	if s.Kind == GR00T {
		l, err = dialGR00T(ctx, s.URL, s.Key)
	} else {
		l, err = dialOpenPI(ctx, s.URL, s.Key)
	}
	if errors.Is(err, errText) {
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	}
	if err != nil {
		return nil, err
	}
	if err = s.test(ctx, l); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (s *server) test(ctx context.Context, l link) error {
	if s.Kind == GR00T {
		if err := compareModalities(l.metadata(), &s.Spec, s.Meta.ChunkSize); err != nil {
			return fmt.Errorf("%w: %w", ErrFit, err)
		}
	}
	s.State("warming up")
	ctx, cancel := context.WithTimeoutCause(ctx, firstTime, fmt.Errorf("no answer within %v", firstTime))
	defer cancel()
	row := &remote.Row{State: make([]float32, len(s.Meta.StateNames))}
	row.Task = s.Task
	for _, c := range s.Spec.Cameras {
		row.Images = append(row.Images, make([]byte, c.Height*c.Width*channels))
	}
	v, err := l.ask(ctx, s.tests.observation(row, s.Key))
	if err == nil {
		err = s.tests.answer(make([]float32, s.Meta.ChunkSize*s.Meta.ActionDim), v)
	}
	if isAnswer(err) {
		return fmt.Errorf("%w: a blank observation: %w", ErrFit, err)
	}
	return err
}

// install makes l the connection of Batch.
func (s *server) install(l link) {
	s.Update(func(now *remote.Condition) {
		s.link = l
		now.Ready, now.State = true, "serving"
	})
}

func (s *server) current() (l link) {
	s.Update(func(*remote.Condition) { l = s.link })
	return l
}

// keep connects anew whenever the connection is lost.
func (s *server) keep() {
	defer s.kept.Done()
	for s.ctx.Err() == nil {
		l := s.current()
		var ended <-chan struct{}
		if l != nil {
			ended = l.ended()
		}
		select {
		case <-s.ctx.Done():
			return
		case <-ended:
			s.drop(l, l.why())
		case <-s.lost:
		}
		s.reconnect()
	}
}

func (s *server) reconnect() {
	why := ""
	for wait := retryFirst; s.ctx.Err() == nil; wait = min(2*wait, retryMost) {
		if s.current() != nil {
			return
		}
		l, err := s.connect(s.ctx)
		if err == nil {
			if !same(l.metadata(), s.meta) {
				s.Log.Warn("the server came back with other metadata: is it the same policy?", "url", s.shown())
				s.meta = l.metadata()
			}
			s.Update(func(now *remote.Condition) { now.Restarts++ })
			s.install(l)
			s.Log.Info("the policy's server answers again", "url", s.shown())
			return
		}
		if s.ctx.Err() == nil && err.Error() != why {
			why = err.Error()
			s.Log.Warn("the policy's server does not serve", "url", s.shown(), "why", why)
		}
		s.Update(func(now *remote.Condition) { now.Why, now.State = err.Error(), "waiting to reconnect" })
		select {
		case <-s.ctx.Done():
		case <-time.After(wait):
		}
	}
}

// same compares metadata as texts: maps are printed in the order of their keys.
func same(a, b ndarray.Map) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// drop closes l because of err, and wakes the keeper, unless another did so before.
func (s *server) drop(l link, err error) {
	dropped := false
	s.Update(func(now *remote.Condition) {
		if dropped = l != s.link; dropped {
			return
		}
		s.link = nil
		now.Ready = false
		now.State = "connecting"
		now.Why = err.Error()
		now.Failures++
	})
	if dropped {
		return
	}
	l.close()
	s.Log.Warn("the connection to the policy's server is lost", "url", s.shown(), "why", err)
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// Batch asks for the chunk of each row.
func (s *server) Batch(rows []*remote.Row) error {
	for _, row := range rows {
		if err := s.infer(row); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) infer(row *remote.Row) error {
	ctx, release := s.Begin(s.ctx, max(answerTime, answerTimes*s.longest))
	defer release()
	l := s.current()
	if l == nil {
		return &remote.Away{Server: s.shown(), Err: errors.New(s.Condition().Why)}
	}
	began := time.Now()
	v, err := l.ask(ctx, s.messages.observation(row, s.Key))
	if err == nil {
		s.longest = max(s.longest, time.Since(began))
		err = s.messages.answer(row.ChunkRobot, v)
	}
	switch {
	case err == nil:
		copy(row.ChunkModel, row.ChunkRobot)
		return nil
	case isAnswer(err):
		return s.Refused(err)
	}
	err = s.Late(ctx, err)
	s.drop(l, err)
	return &remote.Away{Server: s.shown(), Err: err}
}

// Close ends the connection.
func (s *server) Close() error {
	s.stop()
	s.kept.Wait()
	var l link
	s.Update(func(*remote.Condition) { l, s.link = s.link, nil })
	if l != nil {
		l.close()
	}
	return nil
}
