// Package quota counts how many sessions each link and each host has, bounds both, and has the
// robots of one link, and all of a crowded host, share turns (queue.Group).
//
// A link is a robot's process; a certificate counts as one. A link that carries others, of a router
// or a peer, does not identify them, and half of all robots are called raspberrypi: there each
// robot counts by itself, as this machine's own do.
package quota

import (
	"fmt"

	"edgert/server/queue"
	"edgert/wire"
)

// hostAlone is how many robots of one host have turns of their own: a station with
// several arms. More share the turns of one.
const hostAlone = 8

// Limits are how many sessions one may have.
type Limits struct{ Link, Host int }

// Book is who has how many.
//
// Owner: housekeeping.
type Book struct {
	limits Limits
	groups map[string]*queue.Group // by kind and name
}

// NewBook returns one without entries.
func NewBook(l Limits) *Book { return &Book{l, map[string]*queue.Group{}} }

// Place is where a robot's session counts.
type Place struct {
	book       *Book
	group      *queue.Group // nil: it counts by itself
	link, host string       // keys of Book.groups; empty: unknown
}

// Place finds where a session counts that was opened from there. It changes nothing
// before Enter.
func (b *Book) Place(from wire.Origin) Place {
	p := Place{book: b, link: from.Name}
	if from.Host != "" {
		p.host = "host " + from.Host
	}
	return p
}

// Members is how many sessions the link and the host of a place have, 0 of an unknown
// one.
func (p Place) Members() (link, host int) { return p.book.members(p.link), p.book.members(p.host) }

func (b *Book) members(key string) int {
	if g := b.groups[key]; g != nil {
		return g.Members()
	}
	return 0
}

// Refuse returns why there is no place for one more session, "" when there is. own is the count of
// the robot's session that the new one is to replace; zero: it has none.
func (p Place) Refuse(own Place) string {
	link, host := p.Members()
	if own.book != nil && own.link == p.link {
		link--
	}
	if own.book != nil && own.host == p.host {
		host--
	}
	const cure = "close sessions that are not needed, open from elsewhere, or raise it in the server's manifest"
	switch {
	case p.link != "" && link >= p.book.limits.Link:
		return fmt.Sprintf("too many sessions: %s has %d, and one link may have %d (sessions_per_link): %s", p.link, link, p.book.limits.Link, cure)
	case p.host != "" && host >= p.book.limits.Host:
		return fmt.Sprintf("too many sessions: %s has %d, and one host may have %d (sessions_per_host): %s", p.host, host, p.book.limits.Host, cure)
	}
	return ""
}

// Above reports whether one session fewer there would still be no fewer than one more
// at the other place, of links and of hosts.
func (p Place) Above(o Place) bool {
	link, host := p.Members()
	otherLink, otherHost := o.Members()
	return max(link, 1) > otherLink && max(host, 1) > otherHost
}

// Enter counts a session there. Its result is to Leave at the session's end.
func (p Place) Enter() Place {
	b := p.book
	if p.link == "" {
		return p
	}
	var host *queue.Group
	if p.host != "" {
		host = b.open(p.host, hostAlone, nil)
	}
	p.group = b.open(p.link, 1, host)
	p.group.Join()
	return p
}

// open finds the group of that key, or makes it; the scheduler reads it already.
func (b *Book) open(key string, alone int, host *queue.Group) *queue.Group {
	g := b.groups[key]
	if g == nil {
		g = &queue.Group{Alone: alone, Host: host}
		b.groups[key] = g
	}
	return g
}

// Leave ends what Enter began.
func (p Place) Leave() {
	if p.group == nil {
		return
	}
	p.group.Leave()
	for _, key := range []string{p.link, p.host} {
		if key != "" && p.book.members(key) == 0 {
			delete(p.book.groups, key)
		}
	}
}

// Group is the group with which the session shares its turns; nil: no group.
func (p Place) Group() *queue.Group { return p.group }
