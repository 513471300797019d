// Package access decides which messages the remote of a link may send to a listener, in the terms of the official
// router's access control: a message is allowed when one of the key expressions for its kind includes the message's
// key.
//
// The listener (package router) checks links that showed a certificate. The application maps the names in a certificate
// to rights.
package access

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
)

// Message is a kind of message that a remote sends.
type Message uint8

// The kinds; their names are those of access_control in the official router's configuration. Put
// includes delete, LivelinessQuery includes declare_liveliness_subscriber.
const (
	Put Message = iota
	DeclareSubscriber
	Query
	DeclareQueryable
	LivelinessToken
	LivelinessQuery
	NumMessages
)

func (m Message) String() string {
	return [NumMessages]string{
		"put", "declare_subscriber", "query", "declare_queryable", "liveliness_token", "liveliness_query"}[m]
}

// does returns the kind as a verb, for people.
func (m Message) does() string {
	return [NumMessages]string{"publish on", "subscribe to", "ask", "answer", "show a token at", "watch tokens at"}[m]
}

// Rights are the permissions of one link. A nil *Rights allows everything.
type Rights struct {
	Name  string                // the certificate's name
	Allow [NumMessages][]string // key expressions, by kind of message

	// Payload returns an error for a query that may not pass because of its payload, although its key is allowed. The
	// payload is lent until Payload returns. If Payload is nil, every query with an allowed key passes.
	Payload func(key string, payload []byte) error

	Denied *Counters // counts the denied messages of all links together; nil: they are not counted
}

// Counters count denied messages by kind.
type Counters [NumMessages]atomic.Uint64

// Allows reports whether a message of kind m on key may pass. key must have passed
// keyexpr.Check.
func (r *Rights) Allows(m Message, key string) bool {
	if r == nil {
		return true
	}
	for _, allowed := range r.Allow[m] {
		if keyexpr.Includes(allowed, key) {
			return true
		}
	}
	return false
}

// Concerns reports whether a declaration on key intersects the keys that the link may use in a
// message of kind m. The listener announces no other declarations to the link.
func (r *Rights) Concerns(m Message, key string) bool {
	if r == nil {
		return true
	}
	for _, allowed := range r.Allow[m] {
		if keyexpr.Intersects(allowed, key) {
			return true
		}
	}
	return false
}

// Check returns the reason why a query may not pass, or nil when it may.
func (r *Rights) Check(key string, payload []byte) error {
	if !r.Allows(Query, key) {
		return r.Why(Query, key)
	}
	if r == nil || r.Payload == nil {
		return nil
	}
	if err := r.Payload(key, payload); err != nil {
		return fmt.Errorf("%s%w", denied, err)
	}
	return nil
}

// Count counts one denied message.
func (r *Rights) Count(m Message) {
	if r.Denied != nil {
		r.Denied[m].Add(1)
	}
}

const denied = "access denied: "

// Why returns the error for a denied message of kind m on key, with the link's rights.
func (r *Rights) Why(m Message, key string) error {
	may := "nothing"
	if allow := r.Allow[m]; len(allow) > 0 {
		may = strings.Join(allow, ", ")
	}
	return fmt.Errorf("%sits certificate names %s, which may not %s %s, but %s", denied, r.Name, m.does(), key, may)
}

// IsDenied reports whether an error reply is a listener's denial of the query.
func IsDenied(reply []byte) bool { return strings.HasPrefix(string(reply), denied) }
