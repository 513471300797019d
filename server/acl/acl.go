// Package acl says what a robot may do at a service: the rule that lean-server's own
// listener keeps for those that show a certificate (Service.Rights).
package acl

import (
	"fmt"
	"slices"
	"strings"

	"edgert/wire"
	"edgert/wire/zenoh/access"
)

// Service is what robots are let in to.
type Service struct {
	Prefix  string   // of its keys
	Routers []string // names in certificates whose links may do everything

	Denied access.Counters // what the listener denied
}

// Rights are those of a link whose certificate has these names: each that can be a
// robot's id is one; nil, everything, when one of them is a router's. A certificate
// without an id may ask for the status and see the servers.
func (s *Service) Rights(names []string) *access.Rights {
	var ids []string
	for _, name := range names {
		if slices.Contains(s.Routers, name) {
			return nil
		}
		if wire.CheckUUID(name) == nil && !slices.Contains(ids, name) {
			ids = append(ids, name)
		}
	}
	r := &access.Rights{Name: strings.Join(names, ", "), Denied: &s.Denied}
	if len(names) == 0 {
		r.Name = "nobody"
	}
	r.Allow[access.Query] = []string{wire.StatusKey(s.Prefix)}
	if len(ids) > 0 {
		r.Allow[access.Query] = append(r.Allow[access.Query], wire.SessionKey(s.Prefix))
	}
	r.Allow[access.LivelinessQuery] = []string{wire.ServerAliveAny, wire.ServerAliveKey(s.Prefix), s.Prefix + "/server/*/alive"}
	for _, id := range ids {
		k := s.robot(id)
		for m := range r.Allow {
			r.Allow[m] = append(r.Allow[m], k[m]...)
		}
	}
	r.Payload = func(key string, payload []byte) error { return s.checkSession(key, payload, ids) }
	return r
}

// robot is what the robot called id may do beside what all may. id has passed
// wire.CheckUUID.
func (s *Service) robot(id string) (keys [access.NumMessages][]string) {
	own := func(leaf string) string { return s.Prefix + "/" + id + leaf }
	tokens := []string{own("/alive"), own("/*/alive")}
	keys[access.Put] = []string{own("/obs")}
	keys[access.DeclareSubscriber] = []string{own("/action")}
	keys[access.Query] = []string{own("/reset")}
	keys[access.LivelinessToken] = tokens
	keys[access.LivelinessQuery] = tokens
	return keys
}

// checkSession reports why a query for a session is not of one of these robots. Only
// a listener can tell: a router looks at keys.
func (s *Service) checkSession(key string, payload []byte, ids []string) error {
	if key != wire.SessionKey(s.Prefix) {
		return nil
	}
	uuid, err := asker(payload)
	if err != nil {
		return err
	}
	if !slices.Contains(ids, uuid) {
		return fmt.Errorf("the certificate names %s and the session is asked for %q: the id must be a name in the robot's certificate (--id)", strings.Join(ids, ", "), uuid)
	}
	return nil
}

// asker is the robot that a session query names.
func asker(payload []byte) (uuid string, err error) {
	op, err := wire.ParseOp(payload)
	switch {
	case err != nil:
		return "", err
	case op == wire.OpClose:
		var c wire.SessionClose
		err = wire.ParseSessionClose(&c, payload)
		return c.ClientUUID, err
	}
	var o wire.SessionOpen
	err = wire.ParseSessionOpen(&o, payload)
	return o.ClientUUID, err
}
