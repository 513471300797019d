package wire

import (
	"context"
	"errors"
	"time"
)

// Errors of a Session that callers tell apart.
var (
	ErrClosed       = errors.New("wire: session closed")
	ErrDisconnected = errors.New("wire: no link to any endpoint")
)

// Priority orders traffic on one link, 1 before 7; the values are Zenoh's. Zero
// is Data.
type Priority uint8

// The priorities that schema 1 uses.
const (
	InteractiveHigh Priority = 2
	Data            Priority = 5
)

// QoS is how a publisher's samples travel.
type QoS struct {
	Priority Priority
	Reliable bool // hop by hop, not end to end
	Block    bool // wait for room on a congested link instead of dropping
	Express  bool // leave at once, skip batching
}

// The two data topics of schema 1.
//
// Source: docs/wire.md, "Keys".
var (
	ObservationQoS = QoS{Priority: Data}
	ActionQoS      = QoS{Priority: InteractiveHigh, Reliable: true, Express: true}
)

// Sample is one publication as it arrived. Its slices are lent until the
// callback returns; Key is valid for as long.
type Sample struct {
	Key        string
	Payload    []byte
	Attachment []byte // nil: none
}

// Query is one request to a queryable. Reply and ReplyErr may be called from the
// callback or later from another goroutine; Finish must be called exactly once,
// after the last reply. Key and Payload stay valid until Finish.
type Query interface {
	Key() string
	Payload() []byte
	From() Origin
	Reply(key string, payload []byte) error
	ReplyErr(payload []byte) error
	Finish()
}

// Reply is one answer to a query; its slices are the caller's to keep.
type Reply struct {
	Key     string // empty for an error that no queryable made
	Payload []byte
	Err     bool // the queryable answered with an error, Payload is its text
}

// Declaration is something a Session announces until it is closed.
type Declaration interface{ Undeclare() error }

// Publisher sends samples on one key.
type Publisher interface {
	Declaration
	// Put copies payload and attachment before it returns and allocates nothing
	// in steady state. With a dropping QoS it never waits.
	Put(payload, attachment []byte) error
	// PutLatest is Put on a slot of its own that the next PutLatest replaces for
	// as long as its first byte has not left: newest wins to the last byte.
	// It reports whether it replaced an unsent one.
	PutLatest(payload, attachment []byte) (replaced bool, err error)
}

// Session is a connection to a Zenoh network, alive through reconnects: every
// declaration is made again on a new link. What a session publishes and asks is
// for others: whether it hears of it itself is the transport's choice. It sees its
// own tokens.
//
// Callbacks come one at a time, on goroutines of the session; none comes after
// its Undeclare has returned. They must only deposit, and may call nothing of
// the session but Put, PutLatest and the replies to a query.
type Session interface {
	Publisher(key string, qos QoS) (Publisher, error)
	Subscribe(keyexpr string, deposit func(Sample)) (Declaration, error)
	Queryable(keyexpr string, answer func(Query)) (Declaration, error)
	// Get asks all queryables that match and collects all replies until every
	// one has finished or timeout. A timeout is not an error: the replies so far
	// are returned.
	Get(ctx context.Context, keyexpr string, payload []byte, timeout time.Duration) ([]Reply, error)
	// Token declares a liveliness token.
	Token(key string) (Declaration, error)
	// SubscribeTokens reports tokens that appear (alive) and vanish; the ones
	// already there are reported too. A lost link makes all of them vanish.
	SubscribeTokens(keyexpr string, deposit func(key string, alive bool)) (Declaration, error)
	// Tokens lists the live tokens that match.
	Tokens(ctx context.Context, keyexpr string, timeout time.Duration) ([]string, error)
	// Connected reports whether at least one link is up.
	Connected() bool
	Close() error
}
