package local

import (
	"context"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/wire"
)

// Query is a query of one client or server to a single queryable in this process.
type Query struct {
	key     string
	from    wire.Origin
	payload []byte // lent
	replies []wire.Reply
	done    chan struct{} // closed by Finish, after which replies may be read
}

// NewQuery returns a query of key. payload is lent until Finish.
func NewQuery(key string, from wire.Origin, payload []byte) *Query {
	return &Query{
		key:     key,
		from:    from,
		payload: payload,
		done:    make(chan struct{}),
	}
}

// Await waits for the given queries and returns their replies. After the time-out it returns the
// replies of the finished queries without an error. When ctx ends, it returns them with the error
// of ctx.
func Await(ctx context.Context, asked []*Query, timeout time.Duration) (replies []wire.Reply, err error) {
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, q := range asked {
		select {
		case <-q.done:
			replies = append(replies, q.replies...)
		case <-limit.Done():
			return replies, ctx.Err() // ctx.Err() is nil after the time-out
		}
	}
	return replies, nil
}

// Key implements wire.Query.
func (q *Query) Key() string { return q.key }

// Payload implements wire.Query.
func (q *Query) Payload() []byte { return q.payload }

// From implements wire.Query.
func (q *Query) From() wire.Origin { return q.from }

// Finish implements wire.Query.
func (q *Query) Finish() { close(q.done) }

// Reply implements wire.Query.
func (q *Query) Reply(key string, payload []byte) error {
	q.replies = append(q.replies, wire.Reply{Key: key, Payload: slices.Clone(payload)})
	return nil
}

// ReplyErr implements wire.Query.
func (q *Query) ReplyErr(payload []byte) error {
	q.replies = append(q.replies, wire.Reply{Payload: slices.Clone(payload), Err: true})
	return nil
}
