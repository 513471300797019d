package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Waiting describes a robot whose observation waits, for a scheduler.
type Waiting struct {
	ID       string     // name of the robot
	Robot    int        // the caller's index of the robot
	Since    rt.Instant // when the robot began to wait
	Deadline rt.Instant // when the robot's actions end; NoDeadline: not reported
	Group    *Group     // the robots with which it shares turns; nil: it shares turns with no robot

	// Late is set by a scheduler that uses deadlines. It reports that the robot's actions end before the next batch
	// could end.
	Late bool

	rank rank
	due  rt.Instant
}

// Scheduler chooses the next robots.
//
// Owner: one goroutine at a time.
type Scheduler interface {
	// Order moves the robots of the next batch, at most n, to the front, in the order in which they are served. The
	// next batch runs from now to end; batch is the duration of each later one. The list waiting must be sorted by ID.
	// The order after the first n is undefined.
	Order(waiting []Waiting, n int, now, end rt.Instant, batch time.Duration)
}

// Schedulers are the names that New accepts, the default first.
var Schedulers = []string{"runway", "round_robin"}

// New returns the scheduler of the given name, wrapped in a fair, which limits the turns of groups.
func New(name string) (Scheduler, error) {
	switch name {
	case "runway":
		return &fair{Scheduler: Runway{}}, nil
	case "round_robin":
		return &fair{Scheduler: new(RoundRobin)}, nil
	}
	return nil, fmt.Errorf("queue: scheduler is %q, want one of %s", name, strings.Join(Schedulers, ", "))
}

// RoundRobin serves the waiting robots in the byte order of their ids. It begins after the robot served last, and after
// the last id it continues with the first.
//
// Source: LeRobot's remote-inference draft.
type RoundRobin struct{ last string }

// Order implements Scheduler.
//
//rt:noalloc
func (r *RoundRobin) Order(waiting []Waiting, n int, _, _ rt.Instant, _ time.Duration) {
	if len(waiting) == 0 {
		return
	}
	served := 0 // number of robots up to and including the last one served
	for served < len(waiting) && waiting[served].ID <= r.last {
		served++
	}
	slices.Reverse(waiting[:served])
	slices.Reverse(waiting[served:])
	slices.Reverse(waiting)
	r.last = waiting[min(n, len(waiting))-1].ID
}
