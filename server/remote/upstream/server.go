package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/wire/ndarray"
)

// firstTime bounds the first inference of a connection, in which JAX compiles.
const firstTime = 10 * time.Minute

// Config describes a server and the policy that it computes.
type Config struct {
	Kind string // openPI or GR00T
	URL  string // ws://HOST:PORT or tcp://HOST:PORT
	Key  string // API key; empty: none
	Task string // task of the inferences that test a connection
	Spec Spec   // the mapping, after resolve
	Meta policy.Meta
	Log  *slog.Logger
}

// Shown returns the address for messages, without a password.
func (c *Config) Shown() string { return plain.Address(c.URL) }

// connection is a link together with the messages that write its observations and read its answers.
type connection struct {
	link
	*messages
}

// ErrFit marks a server that does not fit the manifest.
var ErrFit = errors.New("the server does not fit the manifest")

// Open connects, compares the server with the manifest, and requests one chunk. It fails with
// policy.ErrAway when the server does not answer, and with ErrFit when the server does not fit the
// manifest.
func Open(ctx context.Context, c Config) (*remote.Policy, error) {
	if err := checkURL(c.Kind, c.URL); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	}
	var served ndarray.Map // metadata of the first connection
	dial := func(ctx context.Context) (*connection, error) {
		l, err := c.dial(ctx)
		if err != nil {
			return nil, err
		}
		if served == nil {
			served = l.metadata()
		} else if fmt.Sprint(l.metadata()) != fmt.Sprint(served) { // fmt prints maps in the order of their keys
			c.Log.Warn("the server came back with other metadata: is it the same policy?", "url", c.Shown())
		}
		return &connection{l, newMessages(c.Kind, &c.Spec, &c.Meta)}, nil
	}
	runtime, err := remote.Open(ctx, remote.Protocol[*connection]{
		Server:   c.Shown(),
		Meta:     &c.Meta,
		Task:     c.Task,
		First:    firstTime,
		Log:      c.Log,
		Dial:     dial,
		Ask:      c.ask,
		IsAnswer: isAnswer,
	})
	switch {
	case errors.Is(err, remote.ErrBlank):
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	case errors.Is(err, ErrFit):
		return nil, err
	case err != nil:
		return nil, &remote.Away{Server: c.Shown(), Err: err}
	}
	return &remote.Policy{
		Meta:      c.Meta,
		Runtime:   runtime,
		SHA256:    c.identity(served),
		Where:     c.Shown(),
		Version:   c.Kind,
		Program:   c.Shown(),
		Device:    "cpu",
		ReadsTask: c.Spec.Prompt != "",
		MaxBatch:  1,
	}, nil
}

// identity returns a checksum of all that the manifest and the server describe of the policy.
func (c *Config) identity(meta ndarray.Map) string {
	known := fmt.Sprintf("%s\n%s\n%+v\n%+v\n%v", c.Kind, c.URL, c.Spec, c.Meta, meta)
	sum := sha256.Sum256([]byte(known))
	return hex.EncodeToString(sum[:])
}

// dial connects and compares the server's description with the manifest.
func (c *Config) dial(ctx context.Context) (l link, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTime, fmt.Errorf("no answer within %v", handshakeTime))
	defer cancel()
	if c.Kind == GR00T {
		l, err = dialGR00T(ctx, c.URL, c.Key)
	} else {
		l, err = dialOpenPI(ctx, c.URL, c.Key)
	}
	switch {
	case errors.Is(err, errText):
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case c.Kind == GR00T:
		if err := compareModalities(l.metadata(), &c.Spec, c.Meta.ChunkSize); err != nil {
			l.Close()
			return nil, fmt.Errorf("%w: %w", ErrFit, err)
		}
	}
	return l, nil
}

func (c *Config) ask(ctx context.Context, l *connection, row *remote.Row) error {
	v, err := l.ask(ctx, l.observation(row, c.Key))
	if err != nil {
		return err
	}
	return l.answer(row.ChunkRobot, v)
}
