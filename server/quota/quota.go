// Package quota counts the sessions of each link and each host, bounds both numbers, and makes the
// robots of one link, and all robots of a crowded host, share turns (queue.Group). It also bounds
// the inferences of each robot, by their rate and by their share of the device's time (Meter).
//
// A link is a robot's process or, if it has one, its certificate. A link of a router or a peer carries several robots
// and does not identify them. Neither does a host name, because half of all robots are called raspberrypi. The sessions
// of such robots are not counted, and neither is the host of a robot on this machine.
package quota

import (
	"fmt"

	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/wire"
)

// Up to hostAlone robots of one host, such as a station with several arms, do not share turns. If
// there are more, they share the turns of one robot.
const hostAlone = 8

// Limits are the most sessions of one link and of one host, and the quotas of each robot.
type Limits struct {
	Link, Host int
	Robot      RobotLimits
}

// Counter holds the number of sessions of each link and host.
//
// Owner: housekeeping.
type Counter struct {
	limits Limits
	groups map[string]*queue.Group // groups by kind and name
	meters map[string]*Meter       // meters by robot id
	beside *Counter                // counter of another server of this process; nil: there is no other server
}

// NewCounter returns an empty counter.
func NewCounter(l Limits) *Counter {
	return &Counter{limits: l, groups: map[string]*queue.Group{}, meters: map[string]*Meter{}}
}

// Beside returns the counter of a second server of this process, with the same limits. Each of the
// two counts the sessions of both servers. A robot has the same meter at both. Groups are separate,
// because each server has its own scheduler. Part ends this common counting.
func (b *Counter) Beside() *Counter {
	b.beside = NewCounter(b.limits)
	b.beside.meters, b.beside.beside = b.meters, b
	return b.beside
}

// Part ends the common counting that Beside began.
func (b *Counter) Part() { b.beside = nil }

// Place is the link and the host for which a robot's session is counted.
type Place struct {
	counter    *Counter
	group      *queue.Group // nil: the session is not counted
	link, host string       // keys in Counter.groups; empty: unknown
}

// Place returns the place of a session that was opened from this origin. The session is counted only when Enter is
// called.
func (b *Counter) Place(from wire.Origin) Place {
	p := Place{counter: b, link: from.Name}
	if from.Host != "" {
		p.host = "host " + from.Host
	}
	return p
}

// members returns the number of sessions of the link and of the host of a place; 0 for an unknown
// link or host.
func (p Place) members() (link, host int) {
	link, host = p.counter.members(p.link), p.counter.members(p.host)
	if other := p.counter.beside; other != nil {
		link, host = link+other.members(p.link), host+other.members(p.host)
	}
	return link, host
}

func (b *Counter) members(key string) int {
	if g := b.groups[key]; g != nil {
		return g.Members()
	}
	return 0
}

// Refuse returns the reason why there is no room for one more session; "" when there is room. The parameter own is
// the place of the robot's session that the new session replaces; zero: there is no such session.
func (p Place) Refuse(own Place) string {
	link, host := p.members()
	if own.counter != nil && own.link == p.link {
		link--
	}
	if own.counter != nil && own.host == p.host {
		host--
	}
	const cure = "close sessions that are not needed, open from elsewhere, or raise it in the server's manifest"
	switch {
	case p.link != "" && link >= p.counter.limits.Link:
		return fmt.Sprintf("too many sessions: %s has %d, and one link may have %d (sessions_per_link): %s", p.link,
			link, p.counter.limits.Link, cure)
	case p.host != "" && host >= p.counter.limits.Host:
		return fmt.Sprintf("too many sessions: %s has %d, and one host may have %d (sessions_per_host): %s", p.host,
			host, p.counter.limits.Host, cure)
	}
	return ""
}

// Above reports whether p's link and host each have at least as many sessions as o's link and host would have with one
// more session.
func (p Place) Above(o Place) bool {
	link, host := p.members()
	otherLink, otherHost := o.members()
	return max(link, 1) > otherLink && max(host, 1) > otherHost
}

// Enter counts a session. The caller must call Leave on the returned place when the session ends.
func (p Place) Enter() Place {
	b := p.counter
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

// open returns the group with this key. If there is none, it makes a complete one, because a scheduler may read it at
// once.
func (b *Counter) open(key string, alone int, host *queue.Group) *queue.Group {
	g := b.groups[key]
	if g == nil {
		g = &queue.Group{Alone: alone, Host: host}
		b.groups[key] = g
	}
	return g
}

// Leave ends the counting that Enter began.
func (p Place) Leave() {
	if p.group == nil {
		return
	}
	p.group.Leave()
	for _, key := range []string{p.link, p.host} {
		if key != "" && p.counter.members(key) == 0 {
			delete(p.counter.groups, key)
		}
	}
}

// Group is the group with which the session shares its turns; nil: no group.
func (p Place) Group() *queue.Group { return p.group }
