package serve

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/stage"
)

// schedulers are the compared schedulers, the default first.
var schedulers = []string{"runway", "round_robin"}

// With Config.Starving the time of a chunk is measured for 1/starvingShare of the whole time, but
// at most for starvingLook.
const starvingShare, starvingLook = 8, 6 * time.Second

// dry is a robot whose actions run out. Its times are multiples of an inference, as in the
// simulation of server/queue's tests.
type dry struct {
	*robot
	// duration of a chunk's actions; how early it sends a request; time of the link, one way
	lasts, ahead, way time.Duration
	offset            time.Duration
	starved           time.Duration
}

// fleet returns robots whose requests amount to the given load on a server that needs the time took for each chunk.
// Every second robot has actions for 200 inferences, the others for 15; links take up to three inferences each way. A
// fleet of a higher load begins with the same robots.
func fleet(took time.Duration, load float64) (list []dry) {
	random := rand.New(rand.NewPCG(1, 2))
	for asked := 0.0; asked < load; {
		d := dry{lasts: 15 * took, ahead: 10 * took, way: time.Duration(random.Int64N(int64(3 * took)))}
		if len(list)%2 == 1 {
			d.lasts, d.ahead = 200*took, 150*took
		}
		d.offset = time.Duration(random.Int64N(int64(10 * took)))
		asked += float64(took) / float64(d.lasts-d.ahead+2*d.way+2*took)
		list = append(list, d)
	}
	return list
}

// trial is a fleet that demands one load, under one scheduler, on a machine that is quiet or busy.
type trial struct {
	Scheduler
	robots []dry
}

// starve measures robots whose actions run out, under each scheduler and at each load, on a quiet machine and on a busy
// machine. The trials take turns of a slice, in rotating order, so that the machine's other work affects all of them
// equally.
func (s *stand) starve(ctx context.Context, tookS float64, limit time.Duration) (list []Scheduler, err error) {
	took := time.Duration(tookS * float64(time.Second))
	most := len(fleet(took, slices.Max(s.cfg.Loads)))
	var joined []*crowd
	for _, name := range schedulers {
		s.cfg.Progress("%d robots that run dry, %s\n", most, name)
		one, openErr := s.crowd(ctx, name, most, name, "")
		if openErr != nil {
			return nil, openErr
		}
		defer one.leave(&err)
		joined = append(joined, one)
	}
	trials := s.trials(took, joined)
	order := make([]int, len(trials))
	for i := range order {
		order[i] = i
	}
	slice := max(s.cfg.Slice, 400*took)
	for end, round := time.Now().Add(2*limit), 0; round < len(trials) || time.Now().Before(end); round++ {
		t := &trials[bench.Turned(order, round/len(trials))[round%len(trials)]]
		if err := t.play(ctx, slice); err != nil {
			return nil, err
		}
	}
	for i := range trials {
		list = append(list, trials[i].sum())
	}
	return list, nil
}

// trials returns all compared trials: one for each load, each state of the machine and each scheduler.
func (s *stand) trials(took time.Duration, joined []*crowd) (list []trial) {
	machines := []int{0}
	if s.cfg.Busy > 0 {
		machines = append(machines, s.cfg.Busy)
	}
	for _, busy := range machines {
		for _, load := range s.cfg.Loads {
			for i, name := range schedulers {
				t := trial{Scheduler: Scheduler{Scheduler: name, Load: load, Busy: busy}, robots: fleet(took, load)}
				for k := range t.robots {
					t.robots[k].robot = joined[i].robots[k]
				}
				t.Robots = len(t.robots)
				list = append(list, t)
			}
		}
	}
	return list
}

// play gives the trial a turn.
func (t *trial) play(ctx context.Context, slice time.Duration) (err error) {
	stop, err := occupy(t.Busy)
	if err != nil {
		return err
	}
	defer stop()
	before, gone := t.count()
	var all sync.WaitGroup
	begin := time.Now()
	for k := range t.robots {
		all.Go(func() { t.robots[k].play(ctx, begin, slice) })
	}
	all.Wait()
	t.Seconds += time.Since(begin).Seconds()
	answered, lost := t.count()
	t.Requests += answered - before
	t.Lost += lost - gone
	return context.Cause(ctx)
}

// count returns how many requests of the trial's robots were answered and lost so far. Trials with
// the same robots share these numbers.
func (t *trial) count() (answered, lost int) {
	for _, d := range t.robots {
		answered, lost = answered+d.answered, lost+d.lost
	}
	return answered, lost
}

func (t *trial) sum() Scheduler {
	for _, d := range t.robots {
		t.StarvedMs += d.starved.Seconds() * 1e3
	}
	t.Seconds, t.StarvedMs = bench.Round(t.Seconds), bench.Round(t.StarvedMs)
	return t.Scheduler
}

// occupy starts n processes that only compute. stop ends them.
func occupy(n int) (stop func(), err error) {
	var children []*stage.Child
	stop = func() {
		for _, c := range children {
			c.Kill()
		}
	}
	for range n {
		c, err := stage.StartGroup(exec.Command("sh", "-c", "while :; do :; done"))
		if err != nil {
			stop()
			return nil, err
		}
		children = append(children, c)
	}
	return stop, nil
}

// play lets the robot use up its actions for a slice, and request each next chunk before they end.
func (d *dry) play(ctx context.Context, begin time.Time, slice time.Duration) {
	asks := begin.Add(d.offset)
	ends := asks.Add(d.ahead) // instant at which its actions end
	d.Observation.HasRunway = true
	for time.Since(begin) < slice && ctx.Err() == nil {
		stage.Sleep(ctx, time.Until(asks.Add(d.way)))
		left := time.Until(ends) - d.way
		d.Observation.RunwayMs = max(0, left.Seconds()*1e3)
		if ctx.Err() != nil || !d.ask(ctx) {
			return
		}
		stage.Sleep(ctx, d.way)
		now := time.Now()
		if now.After(ends) {
			d.starved += now.Sub(ends)
			ends = now
		}
		ends = now.Add(d.lasts)
		asks = ends.Add(-d.ahead)
	}
}
