// Package acl holds a robot's rights at a service: the rule that lean-server's own listener applies
// to links with a certificate (Service.Rights), and the same rule for the official router
// (RouterRules).
package acl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
)

// Service is the service whose keys robots may use.
type Service struct {
	Prefix  string   // beginning of the service's keys
	Routers []string // certificate names of links with all rights

	Denied access.Counters // messages that the listener denied
}

// Rights returns the rights of a link whose certificate has these names: the rights of each robot
// whose id is among them. It returns nil, which means all rights, when one of the names is a
// router's. A certificate without a robot's id may query the status and see the servers.
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
		r.Name = "no robot"
	}
	r.Allow = s.public()
	if len(ids) > 0 {
		// the payload may name any robot; Payload checks it
		r.Allow[access.Query] = append(r.Allow[access.Query], wire.SessionKey(s.Prefix))
	}
	for _, id := range ids {
		for m, more := range s.robot(id) {
			r.Allow[m] = append(r.Allow[m], more...)
		}
	}
	r.Payload = func(key string, payload []byte) error { return s.checkSession(key, payload, ids) }
	return r
}

// keys are key expressions for each kind of message.
type keys [access.NumMessages][]string

// public returns the rights that every certificate has, with or without a robot's id.
func (s *Service) public() (k keys) {
	k[access.Query] = []string{wire.StatusKey(s.Prefix)}
	k[access.LivelinessQuery] = []string{wire.ServerAliveAny, wire.ServerAliveKey(s.Prefix),
		s.Prefix + "/server/*/alive"}
	return k
}

// robot returns the rights that the robot called id has in addition to the rights of public, as far as key
// expressions can state these rights. The id has passed wire.CheckUUID, or is "*".
func (s *Service) robot(id string) (k keys) {
	own := func(leaf string) string { return s.Prefix + "/" + id + leaf }
	tokens := []string{own("/alive"), own("/*/alive")}
	k[access.Put] = []string{own("/obs"), own("/telemetry")}
	k[access.DeclareSubscriber] = []string{own("/action")}
	k[access.Query] = []string{own("/session"), own("/reset")}
	k[access.LivelinessToken] = tokens
	k[access.LivelinessQuery] = tokens
	// id may be a robot that uses a leader arm on another machine, or the leader arm itself
	k[access.Put] = append(k[access.Put], wire.LeaderUseKey("*", id), wire.LeaderPoseKey(id))
	k[access.DeclareSubscriber] = append(k[access.DeclareSubscriber], wire.LeaderPoseKey("*"),
		wire.LeaderUseKey(id, "*"))
	k[access.LivelinessToken] = append(tokens[:2:2], wire.LeaderAliveKey(id, "*"))
	k[access.LivelinessQuery] = append(tokens[:2:2], wire.LeaderAliveKey(id, "*"))
	return k
}

// checkSession returns an error for a query at the common session key whose payload names a robot outside ids. Only
// this server's listener can check that, because a router checks keys only.
func (s *Service) checkSession(key string, payload []byte, ids []string) error {
	if key != wire.SessionKey(s.Prefix) {
		return nil
	}
	uuid, err := Asker(payload)
	if err != nil {
		return err
	}
	if !slices.Contains(ids, uuid) {
		return fmt.Errorf("the certificate names %s and the session is asked for %q: the id must be a name in the "+
			"robot's certificate (--id)", strings.Join(ids, ", "), uuid)
	}
	return nil
}

// Asker returns the robot that a session query names.
func Asker(payload []byte) (uuid string, err error) {
	op, err := wire.ParseOp(payload)
	switch {
	case err != nil:
		return "", err
	case op == wire.OpClose:
		var c wire.SessionClose
		err = wire.Parse(&c, payload)
		return c.ClientUUID, err
	}
	var o wire.SessionOpen
	err = wire.Parse(&o, payload)
	return o.ClientUUID, err
}
