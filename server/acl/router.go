package acl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
)

// Fleet lists the certificates that may pass a router, by their common names: an official router
// checks no other part of a certificate. The caller has checked the names.
type Fleet struct {
	Robots  []string // ids of the robots
	Servers []string // servers of this service
	Routers []string // names with all rights: the other routers of a mesh, an operator's tools
}

// rule, subject and policy are entries of access_control in an official router's configuration.
//
// Source: DEFAULT_CONFIG.json5 of eclipse-zenoh/zenoh, 1.9.0.
type rule struct {
	ID         string   `json:"id"`
	Permission string   `json:"permission"`
	Flows      []string `json:"flows"`
	Messages   []string `json:"messages"`
	KeyExprs   []string `json:"key_exprs"`
}

type subject struct {
	ID    string   `json:"id"`
	Names []string `json:"cert_common_names"`
}

type policy struct {
	Rules    []string `json:"rules"`
	Subjects []string `json:"subjects"`
}

// For each kind of message that a node has the right to send, ingress lists the messages that the router accepts from
// the node, and egress the messages that it sends to the node. For example, a node that may query gets replies, and a
// subscriber gets samples.
var (
	ingress = [access.NumMessages][]string{
		access.Put:               {"put", "delete"},
		access.DeclareSubscriber: {"declare_subscriber"},
		access.Query:             {"query"},
		access.DeclareQueryable:  {"declare_queryable", "reply"},
		access.LivelinessToken:   {"liveliness_token"},
		access.LivelinessQuery:   {"liveliness_query", "declare_liveliness_subscriber"},
	}
	egress = [access.NumMessages][]string{
		access.DeclareSubscriber: {"put", "delete"},
		access.Query:             {"reply"},
		access.DeclareQueryable:  {"query"},
		access.LivelinessQuery:   {"liveliness_token"},
	}
	// shown lists the declarations of other nodes that the router passes on to the node. The node
	// needs them: an official publisher sends nothing until it knows of a subscriber.
	shown = [access.NumMessages][]string{
		access.Put:   {"declare_subscriber"},
		access.Query: {"declare_queryable"},
	}
	everyMessage = []string{
		"put", "delete", "declare_subscriber", "query", "reply", "declare_queryable",
		"liveliness_token", "liveliness_query", "declare_liveliness_subscriber",
	}
)

// everything matches all keys. ** alone does not, because in Zenoh it matches no chunk that begins with @.
var everything = []string{"**", wire.KeyRoot + "/**", "@/**"}

const (
	allow    = "allow"
	inward   = "ingress"
	outward  = "egress"
	ofServer = "servers"
	ofRouter = "routers"
	ofAll    = "robots"
)

// RouterRules writes the access_control of an official router, by which each robot has the rights
// that Rights gives it at this server's own listener, with one exception: it may open its session
// only at its own key, because a router does not parse a query.
func (s *Service) RouterRules(w io.Writer, f Fleet) error {
	if err := f.check(); err != nil {
		return err
	}
	var rules []rule
	var subjects []subject
	var policies []policy
	grant := func(names []string, id string, granted []rule) {
		if len(names) == 0 {
			return
		}
		p := policy{Subjects: []string{id}}
		for _, r := range granted {
			p.Rules = append(p.Rules, r.ID)
		}
		rules, policies = append(rules, granted...), append(policies, p)
		subjects = append(subjects, subject{id, names})
	}
	both := []string{inward, outward}
	grant(f.Routers, ofRouter, []rule{{ofRouter, allow, both, everyMessage, everything}})
	grant(f.Servers, ofServer, []rule{{ofServer, allow, both, everyMessage, []string{s.Prefix + "/**"}}})
	grant(f.Robots, ofAll, rulesOf(ofAll, s.public(), s.public()))
	for _, id := range f.Robots {
		grant([]string{id}, "robot "+id, rulesOf("robot "+id, s.robot(id), s.robot("*")))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Made by lean-server acl for %s: certificates that are not named here have no rights.\n",
		s.Prefix)
	b.WriteString("{\n  \"enabled\": true,\n  \"default_permission\": \"deny\",\n")
	err := errors.Join(list(&b, "rules", rules), list(&b, "subjects", subjects), list(&b, "policies", policies))
	b.WriteString("}\n")
	if err == nil {
		_, err = w.Write(b.Bytes())
	}
	return err
}

// check refuses a name that two certificates have.
func (f *Fleet) check() error {
	seen := map[string]bool{}
	for _, name := range slices.Concat(f.Robots, f.Servers, f.Routers) {
		if seen[name] {
			return fmt.Errorf("%q is named twice: a robot, a server and a router each need a certificate of their own",
				name)
		}
		seen[name] = true
	}
	return nil
}

// rulesOf returns the rules for the rights k: messages on the keys of k, and declarations also on the keys of all
// robots (parameter all), because a server declares its keys for all robots.
func rulesOf(id string, k, all keys) (rules []rule) {
	add := func(flow string, messages, exprs []string) {
		if len(messages) > 0 && len(exprs) > 0 {
			rules = append(rules, rule{id + ", " + flow + " " + messages[0], allow, []string{flow}, messages, exprs})
		}
	}
	for m := range k {
		add(inward, ingress[m], k[m])
		add(outward, egress[m], k[m])
		both := slices.Concat(k[m], all[m])
		slices.Sort(both)
		add(outward, shown[m], slices.Compact(both))
	}
	return rules
}

// list writes a list of the configuration, one entry per line.
func list[T any](b *bytes.Buffer, name string, entries []T) error {
	fmt.Fprintf(b, "  %q: [\n", name)
	for _, e := range entries {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "    %s,\n", text)
	}
	b.WriteString("  ],\n")
	return nil
}
