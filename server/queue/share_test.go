package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// line holds robots that always wait, and counts how often each was served.
type line struct {
	robots []Waiting
	served map[string]int
}

func (l *line) add(id string, g *Group, runway time.Duration) {
	if g != nil {
		g.Join()
	}
	l.robots = append(l.robots, Waiting{ID: id, Group: g, Deadline: rt.Instant(runway)})
}

// run serves batches of n rows, each of which takes 10 ms. A served robot waits again at once,
// with the same runway.
func (l *line) run(s Scheduler, batches, n int) {
	const took = 10 * time.Millisecond
	l.served = map[string]int{}
	slices.SortFunc(l.robots, func(a, b Waiting) int { return strings.Compare(a.ID, b.ID) })
	since := make([]rt.Instant, len(l.robots))
	for b := range batches {
		now := rt.Instant(b+1) * rt.Instant(took)
		var waiting []Waiting
		for i, r := range l.robots {
			r.Robot = i
			r.Since = since[i]
			r.Deadline = since[i].Add(time.Duration(r.Deadline))
			waiting = append(waiting, r)
		}
		s.Order(waiting, n, now, now.Add(took), took)
		for _, w := range waiting[:min(n, len(waiting))] {
			l.served[w.ID]++
			since[w.Robot] = now.Add(took)
		}
	}
}

// A link with very many robots that report short runways gets about as many turns as one robot, and so does a host
// with many links. For comparison the test also runs the same robots without groups: they take most of the turns.
func TestALinkHasTheTurnsOfOne(t *testing.T) {
	for _, name := range Schedulers {
		for _, n := range []int{1, 4} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				crowd := func(group func(i int) *Group) (honest int) {
					s := rttest.Must(New(name))(t)
					var l line
					for i := range 290 {
						l.add(fmt.Sprintf("bot-%03d", i), group(i), 5*time.Millisecond)
					}
					for i := range 5 {
						l.add(fmt.Sprintf("arm-%d", i), nil, 100*time.Millisecond)
					}
					l.run(s, 1200, n)
					for i := range 5 {
						honest += l.served[fmt.Sprintf("arm-%d", i)]
					}
					return honest
				}
				rows := 1200 * n
				link, host := new(Group), new(Group)
				alone := crowd(func(int) *Group { return nil })
				one := crowd(func(int) *Group { return link })
				many := crowd(func(int) *Group { return &Group{Host: host} })
				want := rows * 5 / 6 * 9 / 10 // nearly five of six robots
				if n > 1 {
					want = 1200 * 3 // of each batch's four rows, the link may have one
				}
				if alone > rows/4 || one < want || many < want {
					t.Errorf("of %d turns honest robots had %d without groups, %d beside a link, %d beside a host; "+
						"want few, then at least %d", rows, alone, one, many, want)
				}
			})
		}
	}
}

// Two arms of one link are served by their runways as long as no other robot waits, and a robot
// that has waited for long comes first in its group whatever runway it reports.
func TestAGroupByItselfIsLeftToTheScheduler(t *testing.T) {
	g := new(Group)
	for range 2 {
		g.Join()
	}
	waiting := func(ids ...Waiting) []Waiting { return ids }
	slow := Waiting{ID: "a", Group: g, Since: 5, Deadline: rt.Instant(500 * time.Millisecond)}
	fast := Waiting{ID: "b", Group: g, Since: 6, Deadline: rt.Instant(300 * time.Millisecond)}
	f := &fair{Scheduler: Runway{}}
	for i := range 3 {
		w := waiting(slow, fast)
		if f.Order(w, 1, 10, 20, 10); w[0].ID != "b" {
			t.Fatalf("call %d: %s is first, want b, whose actions end first", i, w[0].ID)
		}
	}
	other := Waiting{ID: "c", Since: 9, Deadline: rt.Instant(900 * time.Millisecond)}
	f.Order(waiting(slow, fast, other), 1, 10, 20, 10) // b is served, so that the next turn is c's
	w := waiting(slow, fast, other)
	if f.Order(w, 3, 10, 20, 10); w[0].ID != "c" || w[1].ID != "b" || w[2].ID != "a" {
		t.Errorf("order %s %s %s, want c b a", w[0].ID, w[1].ID, w[2].ID)
	}
	late := rt.Instant(starvationBound) + 100
	f, g.next = &fair{Scheduler: Runway{}}, 0
	fast.Since = late
	w = waiting(slow, fast, other)
	if f.Order(w, 1, late, late+10, 10); w[0].ID != "a" {
		t.Errorf("%s is first, want a, which has waited for %v", w[0].ID, starvationBound)
	}
}

// Up to hostAlone arms of one host do not share turns. With 8 robots of one host and a robot of another, all are served
// by their runways. A ninth robot of the first host makes its robots share turns.
func TestArmsOfAStationAreLeftToTheScheduler(t *testing.T) {
	host := &Group{Alone: 8}
	var waiting []Waiting
	add := func(runway time.Duration, g *Group) {
		g.Join()
		waiting = append(waiting, Waiting{ID: fmt.Sprint(len(waiting)), Group: g, Deadline: rt.Instant(runway)})
	}
	for i := range 8 {
		add(time.Duration(100+i)*time.Millisecond, &Group{Host: host, Alone: 1})
	}
	add(time.Second, &Group{Host: &Group{Alone: 8}, Alone: 1})
	last := func() string {
		w := slices.Clone(waiting)
		(&fair{Scheduler: Runway{}}).Order(w, len(w), 10, 20, 10)
		return w[len(w)-1].ID
	}
	rttest.Want(t, last(), "8", "the robot that is served last")
	add(108*time.Millisecond, &Group{Host: host, Alone: 1})
	rttest.Want(t, last(), "9", "the robot that is served last")
}

// A link with many robots gets the turns of one robot, even beside a host with nine robots: the host gets nine of ten
// turns.
func TestALinkIsOneAmongHosts(t *testing.T) {
	var l line
	link, host := &Group{Alone: 1}, &Group{Alone: 8}
	for i := range 20 {
		l.add(fmt.Sprintf("link-%02d", i), link, 5*time.Millisecond)
	}
	for i := range 9 {
		l.add(fmt.Sprintf("host-%d", i), &Group{Host: host, Alone: 1}, 100*time.Millisecond)
	}
	l.run(&fair{Scheduler: new(RoundRobin)}, 1000, 1)
	served := 0
	for i := range 9 {
		served += l.served[fmt.Sprintf("host-%d", i)]
	}
	if served < 850 {
		t.Errorf("of 1000 turns the host had %d, want 900", served)
	}
}

// When all but one of a link's robots have left, the last one is treated like any other robot.
func TestWhoIsAloneInItsGroupIsLeftToTheScheduler(t *testing.T) {
	g := new(Group)
	g.Join()
	g.Join()
	if g.Leave() || g.Members() != 1 {
		t.Fatalf("%d members, want 1", g.Members())
	}
	f := &fair{Scheduler: Runway{}}
	for i := range 3 {
		w := []Waiting{{ID: "a", Group: g, Deadline: 100}, {ID: "b", Deadline: 200}}
		if f.Order(w, 1, 10, 20, 10); w[0].ID != "a" {
			t.Errorf("call %d: %s is first, want a, whose actions end first", i, w[0].ID)
		}
	}
	if !g.Leave() {
		t.Error("the last has left, and the group is not empty")
	}
}

func TestFairNoAlloc(t *testing.T) {
	g := &Group{Host: new(Group)}
	f := &fair{Scheduler: Runway{}}
	robots := make([]Waiting, 0, 40)
	for i := range 40 {
		w := Waiting{ID: fmt.Sprintf("%03d", i), Deadline: rt.Instant(1000 - i)}
		if i%2 == 0 {
			g.Join()
			w.Group = g
		}
		robots = append(robots, w)
	}
	waiting := make([]Waiting, len(robots))
	rttest.NoAllocs(t, "Order allocates %v times, want 0", 50, func() {
		copy(waiting, robots)
		f.Order(waiting, 4, 10, 20, 10)
	})
}
