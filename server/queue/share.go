package queue

import (
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Group is a set of robots: the robots of one link, or all robots of one host. When a group has more than Alone members
// and robots outside it wait, its robots together get the turns of one robot.
type Group struct {
	// Constant.
	Host  *Group // group of the host of this link; nil: this is a host's group, or the host is unknown
	Alone int    // up to this number of members do not share turns; 0 counts as one

	members atomic.Int32 // robots with a session

	// Owner: the scheduler's caller.
	next uint64 // number of the earliest turn that the group may have next
	call uint64 // last call of Order that considered the group
	best int    // index of the group's candidate among the waiting robots of that call
}

// Join counts one more robot in the group and in its host's group.
func (g *Group) Join() { g.count(1) }

// Leave counts one robot less, and reports whether no robot is left.
func (g *Group) Leave() (empty bool) {
	g.count(-1)
	return g.members.Load() == 0
}

func (g *Group) count(n int32) {
	for ; g != nil; g = g.Host {
		g.members.Add(n)
	}
}

// Members returns the number of robots in the group.
//
//rt:noalloc
func (g *Group) Members() int { return int(g.members.Load()) }

// shares reports whether the robots of the group share the turns of one robot, because they are more than g.Alone.
//
//rt:noalloc
func (g *Group) shares() bool { return g != nil && g.Members() > max(g.Alone, 1) }

// fair limits the turns of groups and leaves the order to another scheduler. A group that shares turns has one
// candidate at a time. After its turn, the group waits for as many turns as other links, or hosts, were waiting. fair
// does not limit the turns of other robots. While only one link or host waits, it limits no turns.
type fair struct {
	Scheduler

	turns, calls uint64
	rest         []Waiting // robots that may not get a turn in this call of Order
}

// Order implements Scheduler.
//
//rt:noalloc
func (f *fair) Order(waiting []Waiting, n int, now, end rt.Instant, batch time.Duration) {
	f.calls++
	links, hosts := f.candidates(waiting, now)
	ahead := f.part(waiting, links > 1, hosts > 1)
	if ahead > 0 {
		f.Scheduler.Order(waiting[:ahead], min(n, ahead), now, end, batch)
	}
	if n > ahead && ahead < len(waiting) {
		f.Scheduler.Order(waiting[ahead:], n-ahead, now, end, batch)
	}
	for i := range waiting[:min(n, len(waiting))] {
		f.turns++
		if g := waiting[i].Group; g != nil {
			g.next = f.turns + uint64(links-1)
			if g.Host != nil {
				g.Host.next = f.turns + uint64(hosts-1)
			}
		}
	}
}

// candidates finds the candidate of each group that shares turns, and counts the waiting links and hosts. The result
// links counts each link that shares turns once, and each robot of the other links. The result hosts counts the robots
// of hosts in the same way.
//
//rt:noalloc
func (f *fair) candidates(waiting []Waiting, now rt.Instant) (links, hosts int) {
	for i := range waiting {
		g := waiting[i].Group
		link := !g.shares() || f.nominate(g, waiting, i, now)
		host := link
		if g != nil && g.Host.shares() {
			host = f.nominate(g.Host, waiting, i, now)
		}
		if link {
			links++
		}
		if host {
			hosts++
		}
	}
	return links, hosts
}

// nominate makes robot i the candidate of its group g, unless another robot of the group comes sooner. It reports
// whether robot i is the first robot of the group that this call of Order considers.
//
//rt:noalloc
func (f *fair) nominate(g *Group, waiting []Waiting, i int, now rt.Instant) (first bool) {
	if first = g.call != f.calls; first || sooner(&waiting[i], &waiting[g.best], now) {
		g.call, g.best = f.calls, i
	}
	return first
}

// sooner reports whether a comes before b in their group. Robots that have waited for starvationBound come first, the
// longest wait first. Among other robots, the robot whose actions end first comes first.
//
//rt:noalloc
func sooner(a, b *Waiting, now rt.Instant) bool {
	long := func(w *Waiting) bool { return now.Sub(w.Since) >= starvationBound }
	if la, lb := long(a), long(b); la || lb {
		return la && (!lb || a.Since < b.Since)
	}
	if a.Deadline != b.Deadline {
		return a.Deadline < b.Deadline
	}
	return a.Since < b.Since
}

// part moves the robots that may have a turn to the front and returns their number. Both these robots and the rest
// keep their order. The parameters links and hosts report whether more than one link, or host, waits. If links is
// false, the turns of links are not limited, and if hosts is false, those of hosts are not.
//
//rt:noalloc
func (f *fair) part(waiting []Waiting, links, hosts bool) (ahead int) {
	f.rest = f.rest[:0]
	for i := range waiting {
		if w := waiting[i]; w.Group == nil || (!links || f.mayRun(w.Group, i)) &&
			(!hosts || f.mayRun(w.Group.Host, i)) {
			waiting[ahead] = w
			ahead++
		} else {
			f.rest = append(f.rest, w)
		}
	}
	copy(waiting[ahead:], f.rest)
	return ahead
}

//rt:noalloc
func (f *fair) mayRun(g *Group, i int) bool {
	return !g.shares() || g.best == i && f.turns >= g.next
}
