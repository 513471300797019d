package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// machines are a quiet machine, a machine with jitter, a machine whose inferences stall now and then,
// and a machine whose cores are taken by other programs for seconds.
var machines = []struct {
	name string
	busy func(r *rand.Rand, now rt.Instant) float64
}{
	{"quiet", func(*rand.Rand, rt.Instant) float64 { return 1 }},
	{"jitter", func(r *rand.Rand, _ rt.Instant) float64 { return 0.8 + 0.4*r.Float64() + 4*math.Pow(r.Float64(), 20) }},
	{"stalls", func(r *rand.Rand, _ rt.Instant) float64 {
		if r.IntN(25) == 0 {
			return 12
		}
		return 1
	}},
	{"bursts", func(r *rand.Rand, now rt.Instant) float64 {
		if now/(2000*ms)%3 == 2 {
			return 2 + r.Float64()
		}
		return 1
	}},
}

// stands simulates robots for a minute of virtual time. The result eachSecond is how many milliseconds per second the
// arms of all robots have no actions, in total. The result longest is the longest wait of an observation at the server.
// When a robot's runway (time until its actions end) arrives, it is out of date by the parameter stale times the
// one-way time of the robot's link. The server expects an inference to take as long as the last ones did.
func stands(s Scheduler, load float64, stale time.Duration, busy func(*rand.Rand, rt.Instant) float64,
	seed uint64) (eachSecond float64, longest time.Duration) {
	type robot struct {
		id                 string
		dry, asks, arrives rt.Instant
		lasts, ahead, way  time.Duration
	}
	const took = 10 * time.Millisecond
	random := rand.New(rand.NewPCG(seed, 7))
	var robots []*robot
	for sum := 0.0; sum < load; {
		r := &robot{
			id:    fmt.Sprintf("%03d", len(robots)),
			lasts: 15 * took,
			ahead: 10 * took,
			way:   time.Duration(random.Int64N(int64(3 * took))),
		}
		if len(robots)%2 == 1 {
			r.lasts, r.ahead = 200*took, 150*took
		}
		r.asks = rt.Instant(random.Int64N(int64(10 * took)))
		r.dry = r.asks.Add(r.ahead)
		sum += float64(took) / float64(r.lasts-r.ahead+2*r.way+2*took)
		robots = append(robots, r)
	}
	const end = rt.Instant(time.Minute)
	stood, expects := time.Duration(0), took
	var waiting []Waiting
	for now := rt.Instant(0); now < end; {
		waiting = waiting[:0]
		next := end
		for i, r := range robots {
			if r.arrives = r.asks.Add(r.way); r.arrives <= now {
				longest = max(longest, now.Sub(r.arrives))
				waiting = append(waiting, Waiting{
					ID:       r.id,
					Robot:    i,
					Since:    r.arrives,
					Deadline: max(r.dry.Add(stale*r.way), r.arrives),
				})
			} else {
				next = min(next, r.arrives)
			}
		}
		if len(waiting) == 0 {
			now = next
			continue
		}
		s.Order(waiting, 1, now, now.Add(expects), expects)
		this := time.Duration(busy(random, now) * float64(took))
		expects += (this - expects) / 8
		now = now.Add(this)
		r := robots[waiting[0].Robot]
		there := now.Add(r.way)
		if there > r.dry {
			stood += there.Sub(r.dry)
			r.dry = there
		}
		r.dry = there.Add(r.lasts)
		r.asks = r.dry.Add(-r.ahead)
	}
	for _, r := range robots { // robots that have no actions at the end
		stood += max(0, end.Sub(r.dry))
	}
	return stood.Seconds() * 1e3 / 60, longest
}

// Goal: at every load and on every machine, arms are without actions for no longer under runway than under round_robin.
// This holds for an exact runway, and for a runway that is out of date by the time of its way to the server. Near
// saturation the time under runway is at most a tenth, and no observation waits for ever. The table of
// docs/lab/serving.md is this test's log.
func TestRunwayIsNeverWorseThanRoundRobin(t *testing.T) {
	if testing.Short() {
		t.Skip("a simulation of many robots, which needs 20 s under the race detector and has one goroutine")
	}
	const seeds = 8
	for _, stale := range []time.Duration{-1, 1} {
		for _, m := range machines {
			for _, load := range []float64{0.5, 0.75, 0.95, 1, 1.25, 1.5, 2} {
				var runway, turns float64
				var longest time.Duration
				for seed := range uint64(seeds) {
					ms, wait := stands(Runway{}, load, stale, m.busy, seed)
					runway, longest = runway+ms/seeds, max(longest, wait)
					ms, _ = stands(new(RoundRobin), load, stale, m.busy, seed)
					turns += ms / seeds
				}
				if m.name == "quiet" && load == 0.95 && (10*runway > turns ||
					longest > starvationBound+200*time.Millisecond) {
					t.Errorf("near saturation arms stand for %.1f ms by runway, %.1f in turn, want a tenth; longest "+
						"wait %v",
						runway, turns, longest)
				}
				if t.Logf("%-6s load %.2f stale %2d: arms stand for %7.1f ms each second by runway, %7.1f in turn",
					m.name, load, stale, runway, turns); runway > turns {
					t.Errorf("%s, load %.2f, stale %d: arms stand for %.1f ms each second by runway, %.1f in turn",
						m.name, load, stale, runway, turns)
				}
			}
		}
	}
}
