package router

import (
	"encoding/hex"
	"fmt"
	"net"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// identity describes the node at the other end of a link, and its rights on this link.
type identity struct {
	origin wire.Origin    // the sender of the link's queries, as wire.Query.From returns it
	rights *access.Rights // nil: everything
}

// identify names the remote by its certificate if rights are configured for this certificate. A remote whose
// certificate Config.Rights allows everything, and a node that may relay for other nodes, get no name. Any other client
// is named by its link.
func (r *Router) identify(conn net.Conn, l *link.Link) identity {
	names, certified := endpoint.CertificateNames(conn)
	if certified && r.cfg.Rights != nil {
		if rights := r.cfg.Rights(names); rights != nil {
			return identity{wire.Origin{Name: "certificate " + rights.Name}, rights}
		}
		return identity{}
	}
	if l.Remote().Role != codec.Client {
		return identity{}
	}
	return identity{origin: wire.Origin{Name: fmt.Sprintf("link %s of %s", hex.EncodeToString([]byte(l.Remote().ZID)),
		l.Addr()), Host: hostOf(l.Addr())}}
}

// hostOf returns the host of an address as text for people. It returns "" for processes of this machine.
func hostOf(addr net.Addr) string {
	h := listen.Host(addr)
	if net.IP(h).IsLoopback() {
		return ""
	}
	switch len(h) {
	case net.IPv4len:
		return net.IP(h).String()
	case net.IPv6len:
		return net.IP(h).String() + "/64"
	}
	return ""
}

// declares maps the kinds of declarations to the right that each needs.
var declares = map[codec.DeclareKind]access.Message{
	codec.DeclareSubscriber: access.DeclareSubscriber,
	codec.DeclareQueryable:  access.DeclareQueryable,
	codec.DeclareToken:      access.LivelinessToken,
}

// concerns maps a kind of declarations to the right without which a link does not see them.
var concerns = map[codec.DeclareKind]access.Message{
	codec.DeclareSubscriber: access.Put,
	codec.DeclareQueryable:  access.Query,
	codec.DeclareToken:      access.LivelinessQuery,
}

// may reports whether the remote may make a declaration on key. It counts every denial, and logs the first of each
// kind. Owner: the link's reader.
func (f *face) may(m access.Message, key string) bool {
	if f.who.rights.Allows(m, key) {
		return true
	}
	f.deny(m)
	f.report(m, key)
	return false
}

// mayWatch reports whether the remote may see the tokens that match key; "" means all tokens.
func (f *face) mayWatch(key string) bool {
	if key == "" && f.who.rights != nil {
		key = "**"
	}
	return f.may(access.LivelinessQuery, key)
}

// mayAsk reports whether the remote may send this query. It answers a denied query with an error.
func (f *face) mayAsk(q *query, key string, payload []byte) bool {
	err := f.who.rights.Check(key, payload)
	if err == nil {
		return true
	}
	f.deny(access.Query)
	f.log(access.Query, err)
	f.send(codec.Response{
		Envelope:  codec.Envelope{QoS: q.qos},
		ID:        q.id,
		Expr:      codec.Key(key),
		Err:       true,
		Responder: codec.Entity{ZID: f.r.cfg.Link.ZID},
		Data:      codec.Data{Payload: []byte(err.Error())},
	}.Message(), link.Delivery{QoS: q.qos, Reliable: true, NoWait: true})
	q.sendFinal()
	return false
}

// deny counts a denied message.
//
//rt:noalloc
func (f *face) deny(m access.Message) {
	f.r.counters.Denied.Add(1)
	f.who.rights.Count(m)
}

// report logs the link's first denied message of a kind.
func (f *face) report(m access.Message, key string) {
	if !f.denials[m] {
		f.log(m, f.who.rights.Why(m, key))
	}
}

func (f *face) log(m access.Message, why error) {
	if !f.denials[m] {
		f.denials[m] = true
		f.r.cfg.Log(fmt.Sprintf("%s: %v (its further ones of this kind are only counted)", f.link.Addr(), why))
	}
}
