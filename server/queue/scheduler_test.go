package queue

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

const ms = rt.Instant(time.Millisecond)

// order returns the ids in the order in which a scheduler serves them at the instant 1000 ms, in batches of n robots
// that take 10 ms.
func order(s Scheduler, n int, waiting ...Waiting) string {
	s.Order(waiting, n, 1000*ms, 1010*ms, 10*time.Millisecond)
	var ids []string
	for _, w := range waiting {
		ids = append(ids, w.ID)
	}
	return strings.Join(ids, " ")
}

func TestRunwayOrder(t *testing.T) {
	w := func(id string, since, deadline rt.Instant) Waiting {
		return Waiting{ID: id, Since: since * ms, Deadline: deadline * ms}
	}
	silent := func(id string, since rt.Instant) Waiting {
		return Waiting{ID: id, Since: since * ms, Deadline: NoDeadline}
	}
	for _, tt := range []struct {
		name    string
		n       int
		waiting []Waiting
		want    string
	}{
		{"the shortest runway first", 1, []Waiting{w("a", 990, 1300), w("b", 995, 1100), w("c", 980, 1200)}, "b c a"},
		{"without runways by arrival", 1, []Waiting{silent("a", 990), silent("b", 980)}, "b a"},
		{"without a runway beside some", 1, []Waiting{silent("a", 990), w("b", 990, 1200), w("c", 990, 1400)}, "b a c"},
		{"who is too late gives way", 1, []Waiting{w("a", 900, 1005), w("b", 990, 1015)}, "b a"},
		{"and fills a gap", 1, []Waiting{w("a", 900, 1005), w("b", 990, 1025)}, "a b"},
		{"a gap for the second of two", 1, []Waiting{w("a", 900, 1005), w("b", 990, 1025), w("c", 990, 1026)}, "b c a"},
		{"two at a time", 2, []Waiting{w("a", 900, 1005), w("b", 990, 1025), w("c", 990, 1026)}, "a b c"},
		{"all late: the longest wait", 1, []Waiting{w("a", 990, 1000), w("b", 980, 1000)}, "b a"},
		{"after the bound before all", 1, []Waiting{w("a", 990, 1012), w("b", 0, 60000)}, "b a"},
		{"also who is late", 1, []Waiting{w("a", 990, 1012), w("b", 0, 5)}, "b a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Want(t, order(Runway{}, tt.n, tt.waiting...), tt.want, "order of the robots")
		})
	}
}

func TestSchedulersByName(t *testing.T) {
	for _, name := range Schedulers {
		s := rttest.Must(New(name))(t)
		list := make([]Waiting, 300)
		rttest.NoAllocs(t, name+" allocates %v times", 20, func() {
			for i := range list {
				list[i] = Waiting{ID: "x", Since: rt.Instant(i), Deadline: rt.Instant(1000 * (i % 7))}
			}
			s.Order(list, 4, 500, 3500, 1000)
		})
	}
	rttest.Fails(t, rttest.Err(New("lottery")), "runway")
}

func TestRoundRobinTurns(t *testing.T) {
	s, got := new(RoundRobin), []string{}
	for range 3 {
		list := []Waiting{{ID: "a"}, {ID: "b"}, {ID: "c"}}
		s.Order(list, 2, 0, 0, 0)
		got = append(got, list[0].ID, list[1].ID)
	}
	if want := []string{"a", "b", "c", "a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
}

func TestDeadline(t *testing.T) {
	for _, tt := range []struct {
		ms   float64
		said bool
		want rt.Instant
	}{{0, false, NoDeadline}, {250, true, 350 * ms}, {-5, true, 100 * ms}, {1e300, true, 60_100 * ms}} {
		rttest.Want(t, Deadline(100*ms, tt.ms, tt.said), tt.want, "Deadline(100 ms, %g, %v)", tt.ms, tt.said)
	}
}
