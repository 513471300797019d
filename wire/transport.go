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

// Priority orders traffic on one link; the values are Zenoh's.
type Priority uint8

// Zenoh's priorities. Data is the default.
const (
	RealTime        Priority = 1
	InteractiveHigh Priority = 2
	InteractiveLow  Priority = 3
	DataHigh        Priority = 4
	Data            Priority = 5
	DataLow         Priority = 6
	Background      Priority = 7
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

// Encoding is what a payload is: an id of Zenoh's table and an optional schema
// of at most 255 bytes. Its zero value is plain bytes. Both ends only carry it.
type Encoding struct {
	ID     uint16
	Schema string
}

// Encodings that Zenoh's table has for what we carry.
var (
	EncodingBytes = Encoding{}
	EncodingText  = Encoding{ID: 4}
	EncodingJSON  = Encoding{ID: 5}
	EncodingJPEG  = Encoding{ID: 17}
)

// Sample is one publication as it arrived. Its slices are lent until the
// callback returns; Key is valid for as long.
type Sample struct {
	Key        string
	Payload    []byte
	Attachment []byte // nil: none
	Encoding   Encoding
	Time       uint64 // when a clock on its way stamped it: NTP64 since 1970, 0 for never
	Delete     bool   // the key was deleted; there is no payload
	QoS        QoS    // as it arrived
}

// Query is one request to a queryable. Reply, ReplyErr and ReplyWith may be
// called from the callback or later from another goroutine; Finish must be
// called exactly once, after the last reply. Key, Parameters, Payload and
// Attachment stay valid until Finish.
type Query interface {
	Key() string
	Parameters() string
	Payload() []byte
	Attachment() []byte // nil: none
	Reply(key string, payload []byte) error
	ReplyErr(payload []byte) error
	// ReplyWith is Reply with everything that a sample can carry. Its QoS is the
	// query's.
	ReplyWith(s Sample) error
	Finish()
}

// Reply is one answer to a query; its slices are the caller's to keep.
type Reply struct {
	Key        string // empty for an error that no queryable made
	Payload    []byte
	Err        bool // the queryable answered with an error, Payload is its text
	Attachment []byte
	Encoding   Encoding
	Time       uint64 // as in Sample
	Delete     bool   // the answer is that the key was deleted
}

// Target is which queryables a question is for.
type Target uint8

// The targets.
const (
	// TargetAll asks every queryable that matches.
	TargetAll Target = iota
	// TargetBest asks the nearest complete one that covers the question's key,
	// and where there is none every one that matches.
	TargetBest
	// TargetComplete asks all complete ones that cover the key, and no others.
	TargetComplete
)

// Consolidation is what an asker makes of several replies on one key. Errors are
// never consolidated.
type Consolidation uint8

// The consolidations.
const (
	// ConsolidateNone returns all replies.
	ConsolidateNone Consolidation = iota
	// ConsolidateMonotonic passes over replies that are older than one on the
	// same key that came before.
	ConsolidateMonotonic
	// ConsolidateLatest returns the newest reply on each key: by Time, and among
	// those without one the last that came.
	ConsolidateLatest
)

// Question is what Ask asks. Key and Timeout are required.
type Question struct {
	Key        string // may have wildcards
	Parameters string // k=v;k2=v2, at most 64 KiB; `_anyke` accepts replies on any key
	Payload    []byte // nil: none
	Attachment []byte // nil: none
	Encoding   Encoding
	Target     Target
	Consolidation
	Timeout time.Duration // at least 1 ms
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
	// PutWith is Put with everything that a sample can carry. Its Key and QoS are
	// the publisher's.
	PutWith(s Sample) error
	// Matching reports whether anybody is known to subscribe to the key. It
	// follows what links tell, so a subscriber shows a round trip after it was
	// declared. Put does not depend on it.
	Matching() bool
}

// Session is a connection to a Zenoh network, alive through reconnects: every
// declaration is made again on a new link. A session hears its own publications
// and answers its own questions like anybody else's.
//
// Callbacks come one at a time, on goroutines of the session; none comes after
// its Undeclare has returned. They must only deposit, and may call nothing of
// the session but Put, PutLatest, PutWith and the replies to a query.
type Session interface {
	Publisher(key string, qos QoS) (Publisher, error)
	Subscribe(keyexpr string, deposit func(Sample)) (Declaration, error)
	Queryable(keyexpr string, answer func(Query)) (Declaration, error)
	// CompleteQueryable is Queryable with the promise that it knows every value
	// under its key.
	CompleteQueryable(keyexpr string, answer func(Query)) (Declaration, error)
	// Get asks all queryables that match and collects all replies until every
	// one has finished or timeout. A timeout is not an error: the replies so far
	// are returned.
	Get(ctx context.Context, keyexpr string, payload []byte, timeout time.Duration) ([]Reply, error)
	// Ask is Get with everything that a question can carry.
	Ask(ctx context.Context, q Question) ([]Reply, error)
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
