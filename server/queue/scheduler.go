package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"edgert/rt"
)

// Waiting is a robot whose observation waits, as a scheduler sees it.
type Waiting struct {
	ID       string     // the robot's
	Robot    int        // where its asker keeps it
	Since    rt.Instant // when it began to wait
	Deadline rt.Instant // when its actions end; NoDeadline: it did not say
	Group    *Group     // whose turns it has with others; nil: its own

	// Late is set by a scheduler that looks at deadlines: the actions end before the
	// next batch could.
	Late bool

	rank rank
	due  rt.Instant
}

// Scheduler decides whose observation is worked on next.
//
// Owner: one goroutine at a time.
type Scheduler interface {
	// Order puts those that are to be served by the next batch first, at most n of
	// them, the first first. A batch that began now would end at that instant, and
	// each later one takes so long. waiting comes sorted by ID; the order behind the
	// first n is the scheduler's own affair.
	Order(waiting []Waiting, n int, now, end rt.Instant, batch time.Duration)
}

// Schedulers are the names that New takes, the default first.
var Schedulers = []string{"runway", "round_robin"}

// New returns the scheduler of that name, behind a Fair.
func New(name string) (Scheduler, error) {
	switch name {
	case "runway":
		return &Fair{Scheduler: Runway{}}, nil
	case "round_robin":
		return &Fair{Scheduler: new(RoundRobin)}, nil
	}
	return nil, fmt.Errorf("queue: scheduler is %q, want one of %s", name, strings.Join(Schedulers, ", "))
}

// RoundRobin gives every robot that waits one inference per turn, in byte order of
// the ids: those after the last one served, then from the beginning.
//
// Source: LeRobot's remote-inference draft.
type RoundRobin struct{ last string }

// Order is Scheduler's.
//
//rt:noalloc
func (r *RoundRobin) Order(waiting []Waiting, n int, _, _ rt.Instant, _ time.Duration) {
	if len(waiting) == 0 {
		return
	}
	behind := 0 // those up to the last one served
	for behind < len(waiting) && waiting[behind].ID <= r.last {
		behind++
	}
	slices.Reverse(waiting[:behind])
	slices.Reverse(waiting[behind:])
	slices.Reverse(waiting)
	r.last = waiting[min(n, len(waiting))-1].ID
}
