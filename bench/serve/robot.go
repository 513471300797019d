package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const (
	// answerLimit is the time after which a chunk counts as lost. With a slow policy this time is
	// longer: answerTurns inferences for each robot.
	answerLimit = 10 * time.Second
	answerTurns = 3
	// longestInference bounds the inference time that a server reports.
	longestInference = 10 * time.Minute
	prefixRows       = 3
)

// robot sends requests to a server over a link of its own. Owner: the goroutine that sends the requests.
type robot struct {
	*stage.FakeRobot
	answered int
	lost     int
	trips    []float64     // ms
	limit    time.Duration // longest time for an answer
}

// crowd is a server and its robots.
type crowd struct {
	*stage.Server
	robots []*robot
}

// crowd starts a server, and opens the sessions of n robots. The names of the server's files contain the parameter
// name.
func (s *stand) crowd(ctx context.Context, name string, n int, scheduler, audit string, more ...string) (c *crowd,
	err error) {
	observation, err := stage.ObservationOf(&s.bundle.Meta, prefixRows)
	if err != nil {
		return nil, err
	}
	c = new(crowd)
	if c.Server, err = s.server(ctx, name, n, scheduler, audit, more...); err != nil {
		return nil, err
	}
	for i := range n {
		r, err := s.newRobot(ctx, c.Endpoint, fmt.Sprintf("arm-%03d", i), observation)
		if err != nil {
			c.leave(&err)
			return nil, err
		}
		inference := time.Duration(min(r.Ack.InferenceMsP99,
			longestInference.Seconds()*1e3) * float64(time.Millisecond))
		r.limit = max(answerLimit, answerTurns*time.Duration(n)*inference)
		c.robots = append(c.robots, r)
	}
	return c, nil
}

// leave closes the robots' links and stops the server. It adds the server's error to err.
func (c *crowd) leave(err *error) {
	for _, r := range c.robots {
		_ = r.Link.Close()
	}
	*err = errors.Join(*err, c.Stop())
}

func (s *stand) newRobot(ctx context.Context, endpoint, id string, o wire.Observation) (*robot, error) {
	link, err := network.Open(ctx, zenoh.Config{Connect: []string{endpoint}})
	if err != nil {
		return nil, err
	}
	r, err := stage.OpenFakeRobot(ctx, link, stage.OpenOf(&s.bundle.Meta, id), s.bundle.ChunkSize)
	if err != nil {
		return nil, errors.Join(err, link.Close())
	}
	r.Observation = o
	return &robot{FakeRobot: r}, nil
}

// writePictures writes the decoded pictures of the robots, for a client that sends them raw.
func (s *stand) writePictures() (folder string, err error) {
	o, err := stage.ObservationOf(&s.bundle.Meta, prefixRows)
	if err != nil {
		return "", err
	}
	decoder, err := jpeg.NewDecoder()
	if err != nil {
		return "", err
	}
	defer decoder.Close()
	folder = filepath.Join(s.dir, "pictures")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	for i, camera := range s.bundle.Cameras {
		pix := make([]byte, camera.Bytes())
		if err := decoder.DecodeRGB(pix, o.Images[i].Data, camera.W, camera.H); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(folder, camera.Name+".rgb"), pix, 0o600); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// ask sends an observation and waits for its chunk; it returns false if no chunk came.
func (r *robot) ask(ctx context.Context) bool {
	trip, ok := time.Duration(0), r.Send() == nil
	if ok {
		trip, ok = r.Await(ctx, r.limit)
	}
	switch {
	case ok:
		r.answered++
		r.trips = append(r.trips, trip.Seconds()*1e3)
	case ctx.Err() == nil:
		r.lost++
	}
	return ok
}

// flood lets all robots send requests as fast as they are answered, and returns the chunks per
// second.
func (c *crowd) flood(ctx context.Context, slice time.Duration) (perS float64, err error) {
	before, begin := c.answered(), time.Now()
	var all sync.WaitGroup
	for _, r := range c.robots {
		all.Go(func() {
			for ctx.Err() == nil && time.Since(begin) < slice {
				if !r.ask(ctx) {
					return
				}
			}
		})
	}
	all.Wait()
	return float64(c.answered()-before) / time.Since(begin).Seconds(), context.Cause(ctx)
}

func (c *crowd) answered() (n int) {
	for _, r := range c.robots {
		n += r.answered
	}
	return n
}

// lost returns the number of requests without a chunk.
func (c *crowd) lost() (n int) {
	for _, r := range c.robots {
		n += r.lost + r.Failures()
	}
	return n
}

// answers returns the robots' counts.
func (c *crowd) answers() (to Answers) {
	var trips []float64
	var sum, squares float64
	for _, r := range c.robots {
		trips = append(trips, r.trips...)
		to.Answered += r.answered
		sum, squares = sum+float64(r.answered), squares+float64(r.answered)*float64(r.answered)
	}
	to.Lost, to.RoundTrip = c.lost(), bench.SpreadOf(trips)
	if squares > 0 {
		to.Jain = bench.Round(sum * sum / (float64(len(c.robots)) * squares))
	}
	return to
}

// served lets each robot send one more request, and returns how many robots got a chunk.
func (c *crowd) served(ctx context.Context) (n int) {
	var all sync.WaitGroup
	var served atomic.Int64
	for _, r := range c.robots {
		all.Go(func() {
			if r.ask(ctx) {
				served.Add(1)
			}
		})
	}
	all.Wait()
	return int(served.Load())
}
