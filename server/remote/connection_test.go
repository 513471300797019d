package remote

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// link is a connection to a server. link.takes has the times for its next answers.
type link struct {
	takes []time.Duration
	ended chan struct{}
}

func (l *link) Ended() <-chan struct{} { return l.ended }
func (*link) Why() error               { return io.EOF }
func (*link) Close() error             { return nil }

// A policy is served even if each of its chunks takes longer than answerTime, because the blank inputs took as long.
// But their time does not raise the limit of the first inference above Protocol.First.
func TestASlowPolicyIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 2 * answerTime
		server := &link{takes: []time.Duration{slow, time.Hour, slow, slow, time.Hour, 0}}
		c := rttest.Must(Open(t.Context(), Protocol[*link]{
			Meta:  new(policy.Meta),
			First: time.Minute,
			Log:   slog.New(slog.DiscardHandler),
			Dial:  func(context.Context) (*link, error) { return server, nil },
			Ask: func(ctx context.Context, l *link, _ *Row) error {
				select {
				case <-ctx.Done():
				case <-time.After(l.takes[0]):
				}
				l.takes = l.takes[1:]
				return ctx.Err()
			},
			IsAnswer: func(error) bool { return false },
		}))(t)
		defer c.Close()
		rows := []*Row{newRow(c.Meta)}
		rttest.FailsAs(t, c.Batch(rows), policy.ErrAway, "no answer within 1m0s")
		time.Sleep(time.Minute)
		rttest.Do(t, c.Batch(rows))
		rttest.FailsAs(t, c.Batch(rows), policy.ErrAway, "no answer within 3m20s")
	})
}

// A server that ends each connection after its blank inputs is called less and less often.
func TestAServerThatEndsEachConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, dials := make(chan struct{}), 0
		close(ended)
		c := rttest.Must(Open(t.Context(), Protocol[*link]{
			Meta:  new(policy.Meta),
			First: time.Minute,
			Log:   slog.New(slog.DiscardHandler),
			Dial: func(context.Context) (*link, error) {
				if dials++; dials > 1000 {
					return nil, errors.New("a thousand connections")
				}
				return &link{ended: ended}, nil
			},
			Ask: func(context.Context, *link, *Row) error { return nil },
		}))(t)
		time.Sleep(time.Minute)
		rttest.Do(t, c.Close())
		if dials < 10 || dials > 20 {
			t.Errorf("%d connections in a minute, want 10 to 20", dials)
		}
	})
}
