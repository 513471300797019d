package serve

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"edgert/bench"
)

// schedulers are compared, the default first.
var schedulers = []string{"runway", "round_robin"}

// targetLoad is the share of the server's time that the robots ask for.
const targetLoad = 0.95

// dry is a robot whose actions run out. Times are in multiples of an inference, as in
// the simulation of server/queue's tests.
type dry struct {
	*robot
	lasts, ahead, way time.Duration // of a chunk; how early it asks; one way of the link
	offset            time.Duration
	starved           time.Duration
}

// fleet is robots that together ask for targetLoad of a server that takes so long for
// a chunk: half have actions for 15 inferences, half for 200, and links of up to three
// inferences each way.
func fleet(took time.Duration) (list []dry) {
	random := rand.New(rand.NewPCG(1, 2))
	for load := 0.0; load < targetLoad; {
		d := dry{lasts: 15 * took, ahead: 10 * took, way: time.Duration(random.Int64N(int64(3 * took)))}
		if len(list)%2 == 1 {
			d.lasts, d.ahead = 200*took, 150*took
		}
		d.offset = time.Duration(random.Int64N(int64(10 * took)))
		load += float64(took) / float64(d.lasts-d.ahead+2*d.way+2*took)
		list = append(list, d)
	}
	return list
}

// starve lets the same robots run dry under each scheduler, in turn.
func (s *stand) starve(ctx context.Context, tookS float64, limit time.Duration) (list []Scheduler, err error) {
	took := time.Duration(tookS * float64(time.Second))
	var crowds [][]dry
	for _, name := range schedulers {
		robots := fleet(took)
		s.cfg.Progress("%d robots that run dry, %s\n", len(robots), name)
		var server *bench.Server
		if server, err = s.server(ctx, name, len(robots), name, ""); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		joined, err := s.join(ctx, server.Endpoint, len(robots))
		if err != nil {
			return nil, err
		}
		defer joined.leave()
		for i := range robots {
			robots[i].robot = joined.robots[i]
		}
		crowds, list = append(crowds, robots), append(list, Scheduler{Scheduler: name, Robots: len(robots), Load: targetLoad})
	}
	slice := max(s.cfg.Slice, 400*took)
	for end, round := time.Now().Add(2*limit), 0; round < len(schedulers) || time.Now().Before(end); round++ {
		i := bench.Turned([]int{0, 1}, round/2)[round%2]
		var all sync.WaitGroup
		begin := time.Now()
		for k := range crowds[i] {
			all.Go(func() { crowds[i][k].play(ctx, begin, slice) })
		}
		all.Wait()
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		list[i].Seconds += time.Since(begin).Seconds()
	}
	for i := range list {
		for _, d := range crowds[i] {
			list[i].StarvedMs += d.starved.Seconds() * 1e3
			list[i].Requests += d.answered
			list[i].Lost += d.lost
		}
		list[i].Seconds, list[i].StarvedMs = round(list[i].Seconds), round(list[i].StarvedMs)
	}
	return list, nil
}

// play runs actions and asks for the next in time, for a slice.
func (d *dry) play(ctx context.Context, begin time.Time, slice time.Duration) {
	asks := begin.Add(d.offset)
	ends := asks.Add(d.ahead) // of its actions
	d.observation.HasRunway = true
	for time.Since(begin) < slice && ctx.Err() == nil {
		time.Sleep(time.Until(asks.Add(d.way)))
		left := time.Until(ends) - d.way
		d.observation.RunwayMs = max(0, left.Seconds()*1e3)
		if !d.ask(ctx) {
			return
		}
		time.Sleep(d.way)
		now := time.Now()
		if now.After(ends) {
			d.starved += now.Sub(ends)
			ends = now
		}
		ends = now.Add(d.lasts)
		asks = ends.Add(-d.ahead)
	}
}
