package wire

import (
	"context"
	"errors"
	"time"
)

// Errors of a Session that callers distinguish.
var (
	ErrClosed       = errors.New("wire: session closed")
	ErrDisconnected = errors.New("wire: no link to any endpoint")
)

// Priority orders traffic on one link, with Zenoh's values: 1 is the most urgent, 7 the least. The zero value means
// Data.
type Priority uint8

// The priorities that schema 1 uses.
const (
	InteractiveHigh Priority = 2
	Data            Priority = 5
)

// QoS is the transport's treatment of a publisher's samples.
type QoS struct {
	Priority Priority
	Reliable bool // hop by hop, not end to end
	Block    bool // on a congested link, wait for room instead of dropping the sample
	Express  bool // send at once, without batching
}

// The QoS of the two data topics of schema 1.
//
// Source: docs/wire.md, "Keys".
var (
	ObservationQoS = QoS{Priority: Data}
	ActionQoS      = QoS{Priority: InteractiveHigh, Reliable: true, Express: true}
)

// Sample is one publication as received. Its slices and Key are valid until the callback returns.
type Sample struct {
	Key        string
	Payload    []byte
	Attachment []byte // nil: no attachment
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

// Reply is one answer to a query. Its slices belong to the caller of Get.
type Reply struct {
	Key     string // may be empty in an error
	Payload []byte
	Err     bool // the queryable answered with an error, whose text is Payload
}

// Declaration is a subscriber, queryable or token that a Session announces until Undeclare is
// called or the session is closed.
type Declaration interface{ Undeclare() error }

// Publisher sends samples on one key.
type Publisher interface {
	Declaration
	// Put copies payload and attachment before it returns, and allocates nothing in steady state. If the QoS drops
	// samples, it never waits.
	Put(payload, attachment []byte) error
	// PutLatest does the same as Put, with a slot for one sample in place of the queue. The next PutLatest replaces
	// that sample until its first byte is sent, so that the newest sample is sent. replaced reports whether an unsent
	// sample was replaced.
	PutLatest(payload, attachment []byte) (replaced bool, err error)
}

// Session is a connection to a Zenoh network that survives reconnects: every declaration is made
// again on a new link. Its samples and queries are for other sessions; whether it also receives
// them itself is the transport's choice. It sees its own tokens.
//
// Callbacks run one at a time, on goroutines of the session; no callback runs after its Undeclare
// has returned. They must return quickly, and may call no method of the session except Put, PutLatest and the replies
// to a query.
type Session interface {
	Publisher(key string, qos QoS) (Publisher, error)
	Subscribe(keyexpr string, deposit func(Sample)) (Declaration, error)
	Queryable(keyexpr string, answer func(Query)) (Declaration, error)
	// Get queries all matching queryables and collects their replies until every queryable has finished or timeout has
	// passed. A timeout is not an error: the replies so far are returned.
	Get(ctx context.Context, keyexpr string, payload []byte, timeout time.Duration) ([]Reply, error)
	// Token declares a liveliness token.
	Token(key string) (Declaration, error)
	// SubscribeTokens reports tokens that appear (alive is true) and vanish. It also reports the tokens that already
	// exist. When the link is lost, all tokens of other sessions vanish.
	SubscribeTokens(keyexpr string, deposit func(key string, alive bool)) (Declaration, error)
	// Tokens lists the live tokens that match.
	Tokens(ctx context.Context, keyexpr string, timeout time.Duration) ([]string, error)
	// Connected reports whether at least one link is up.
	Connected() bool
	Close() error
}
