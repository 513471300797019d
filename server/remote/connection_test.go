package remote

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// link is a connection to a server that takes a while for each answer.
type link struct{ takes time.Duration }

func (*link) Ended() <-chan struct{} { return nil }
func (*link) Why() error             { return nil }
func (*link) Close() error           { return nil }

// A policy is served although each of its chunks takes longer than answerTime, because the blank inputs took as long.
func TestASlowPolicyIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &link{takes: 2 * answerTime}
		c := rttest.Must(Open(t.Context(), Protocol[*link]{
			Meta:  new(policy.Meta),
			First: time.Minute,
			Log:   slog.New(slog.DiscardHandler),
			Dial:  func(context.Context) (*link, error) { return server, nil },
			Ask: func(ctx context.Context, l *link, _ *Row) error {
				select {
				case <-ctx.Done():
				case <-time.After(l.takes):
				}
				return ctx.Err()
			},
			IsAnswer: func(error) bool { return false },
		}))(t)
		defer c.Close()
		rttest.Do(t, c.Batch([]*Row{newRow(c.Meta)}))
		server.takes = time.Hour
		rttest.FailsAs(t, c.Batch([]*Row{newRow(c.Meta)}), policy.ErrAway, "no answer within 3m20s")
	})
}
