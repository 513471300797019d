package lerobot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/lerobot"
	"github.com/edge-rt/edge-rt/wire/pickle"
)

const (
	// observationWait is how long GetActions waits for an observation, as the released server does by
	// default (obs_queue_timeout).
	observationWait = 2 * time.Second
	// similar is the distance of two states below which an observation is dropped, in the robot's
	// units, as in the released server.
	similar = 1.0
	// predictedMax bounds how many steps are remembered as predicted. At the bound, all are forgotten, which does no
	// harm because a client's steps only grow.
	predictedMax = 4096
)

// client is a connected client of LeRobot, which drives one robot.
type client struct {
	f       *Front
	address string
	held    *front.Held // bytes of the observations that the client holds

	calls sync.Mutex // held by GetActions, SendPolicyInstructions and end while they use robot

	mu        sync.Mutex
	view      *view          // nil before SendPolicyInstructions; guarded by mu, like the fields below
	waiting   *queued        // newest observation that is to be answered
	predicted map[int64]bool // steps whose observations were answered or are being answered
	// state of the observation that was answered last; nil: there is no such observation
	processed []float64
	cancel    context.CancelFunc // cancels the inference under way
	receiving bool               // an observation is arriving
	lost      bool               // an observation with must_go may have been refused
	arrived   chan struct{}      // capacity 1: signals that waiting has changed

	robot *front.Robot // guarded by calls
}

// queued is an observation that holds bytes of its client's account until it is answered or dropped.
type queued struct {
	*lerobot.Observation
	bytes int
}

func newClient(f *Front, address string) *client {
	return &client{
		f:         f,
		address:   address,
		held:      f.to.Budget.Client(),
		predicted: map[int64]bool{},
		arrived:   make(chan struct{}, 1),
	}
}

// end ends the session; the client may begin a new one.
func (c *client) end() {
	c.mu.Lock()
	c.view = nil
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	c.restart()
	c.calls.Lock()
	defer c.calls.Unlock()
	c.close()
}

// viewed returns the client's view; nil before SendPolicyInstructions.
func (c *client) viewed() *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

// restart forgets the observations of a connection that has ended, because another client of the same host may have
// sent them.
func (c *client) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(nil)
	c.lost = false
	c.processed = nil
	clear(c.predicted)
}

// keep makes o the waiting observation, or removes it when o is nil, and releases the bytes of the
// previous one. The caller holds mu.
func (c *client) keep(o *queued) {
	if c.waiting != nil {
		c.held.Release(c.waiting.bytes)
	}
	c.waiting = o
}

func (c *client) close() {
	if c.robot != nil {
		c.robot.Close()
		c.robot = nil
	}
}

// instruct compares the client's policy with the served one and opens a session.
func (c *client) instruct(ctx context.Context, data []byte) error {
	asked, err := lerobot.ParsePolicy(data)
	if err != nil {
		return err
	}
	v, open, err := compare(asked, c.f.to.Meta)
	if err != nil {
		return err
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	c.close()
	robot, err := c.f.to.Open(ctx, front.LeRobot, c.address, open)
	if err != nil {
		return err
	}
	c.robot = robot
	log := c.f.log.With("client", robot.Name(), "session", robot.Ack().SessionID)
	for _, text := range robot.Ack().Warnings {
		log.Warn("a LeRobot client's session has a warning", "why", text)
	}
	if asked.ActionsPerChunk == 1 {
		log.Warn("this client runs one action and no more, if it is the released one: it skips the first action of "+
			"each chunk", "cure", "--actions_per_chunk=2 or more")
	}
	if robot.Ack().Simulation {
		log.Warn("THE POLICY IS FOR A SIMULATED ARM ONLY, and this client may drive a real one")
	}
	log.Info("a LeRobot client's policy is served", "asked", fmt.Sprintf("%.200s", asked.Path),
		"actions", asked.ActionsPerChunk, "fps", c.f.to.Meta.FPS)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = v
	return nil
}

// begin reserves the client's place for one arriving observation, which bounds its memory.
func (c *client) begin() (*view, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view == nil {
		return nil, errOrder
	}
	if c.receiving {
		c.lost = true
		return nil, fmt.Errorf("%w: another observation of this client is still arriving", lerobot.ErrTooLarge)
	}
	if err := c.held.Take(c.view.bytes); err != nil {
		c.lost = true
		return nil, err
	}
	c.receiving = true
	return c.view, nil
}

// observe receives an observation.
func (c *client) observe(next lerobot.Next) (err error) {
	v, err := c.begin()
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			c.held.Release(v.bytes)
		}
		c.mu.Lock()
		c.receiving = false
		c.lost = c.lost || err != nil
		c.mu.Unlock()
	}()
	data, err := lerobot.Gather(next, v.bytes)
	if errors.Is(err, lerobot.ErrTooLarge) {
		return fmt.Errorf("%w: send pictures of uint8 in the sizes that the client has announced", err)
	}
	if err != nil || data == nil {
		return err
	}
	o, err := lerobot.ParseObservation(data)
	if err != nil {
		return err
	}
	if _, err := v.stateOf(o); err != nil {
		return err
	}
	kept = c.enqueue(o, v)
	return nil
}

// enqueue keeps an observation for the next GetActions, and reports whether it did. It drops the observations that
// the released server would drop: those with an answered step, and those whose state is near that of the last
// answered observation. It always keeps an observation with must_go. It also keeps the first observation after a
// refused observation, because the client may wait for an answer to the refused observation if that had must_go.
func (c *client) enqueue(o *lerobot.Observation, v *view) (kept bool) {
	state, _ := v.stateOf(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view != v { // the client has meanwhile begun a new session
		return false
	}
	if must := o.MustGo || c.lost; !must && c.processed != nil &&
		(c.predicted[o.Timestep] || distance(state, c.processed) < similar) {
		c.f.to.Counts.Filtered[front.LeRobot].Add(1)
		return false
	}
	c.keep(&queued{o, v.bytes})
	c.lost = false
	select {
	case c.arrived <- struct{}{}:
	default:
	}
	return true
}

func distance(a, b []float64) (d float64) {
	for i := range a {
		d = math.Hypot(d, a[i]-b[i])
	}
	return d
}

// take waits for an observation and returns it, or nil when no observation came in time.
func (c *client) take(ctx context.Context) *queued {
	timer := time.NewTimer(observationWait)
	defer timer.Stop()
	for {
		select {
		case <-c.arrived:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
		c.mu.Lock()
		o := c.waiting
		c.waiting = nil
		c.mu.Unlock()
		if o != nil {
			return o
		}
	}
}

// actions returns the answer to the newest observation, or nil when no observation came.
func (c *client) actions(ctx context.Context) ([]byte, error) {
	c.calls.Lock()
	defer c.calls.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	v := c.view
	c.cancel = cancel
	c.mu.Unlock()
	if v == nil || c.robot == nil {
		return nil, errOrder
	}
	o := c.take(ctx)
	if o == nil {
		return nil, ctx.Err()
	}
	defer c.held.Release(o.bytes)
	state, _ := v.stateOf(o.Observation)
	c.note(o.Timestep, state)
	actions, err := c.infer(ctx, o.Observation, v, state)
	if err != nil {
		c.forget(o.Timestep)
	}
	return actions, err
}

// note remembers the step and the state of an observation as answered. Like the released server, the front does so
// when the inference begins.
func (c *client) note(step int64, state []float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.predicted) >= predictedMax {
		clear(c.predicted)
	}
	c.predicted[step] = true
	c.processed = state
}

// forget removes the step of an observation that got no answer, as if the observation had never
// come. The released server keeps the step, and then drops every further observation of a client
// that waits at this step.
func (c *client) forget(step int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.predicted, step)
	c.processed = nil
}

func (c *client) infer(ctx context.Context, o *lerobot.Observation, v *view, state []float64) ([]byte, error) {
	obs := &wire.Observation{}
	for _, f := range state {
		obs.State = append(obs.State, float32(f))
	}
	for _, one := range v.cameras {
		value := o.Values.Get(one.key)
		a, ok := value.(*pickle.Array)
		if !ok || a.Type != "u1" || len(a.Shape) != 3 || a.Shape[2] != 3 || len(a.Data) == 0 {
			return nil, fmt.Errorf("%w: camera %s is %s, want an array u1 [height width 3]",
				lerobot.ErrMessage, one.key, pickle.Brief(value))
		}
		obs.Images = append(obs.Images, wire.Image{
			Name:  one.name,
			Codec: wire.Raw,
			H:     a.Shape[0],
			W:     a.Shape[1],
			C:     3,
			Data:  a.Data,
		})
	}
	if task := o.Values.Get("task"); task != nil {
		var ok bool
		if obs.Task, ok = task.(string); !ok {
			return nil, fmt.Errorf("%w: the task is %s, want a text", lerobot.ErrMessage, pickle.Brief(task))
		}
	}
	chunk, err := c.robot.Infer(ctx, obs)
	if err != nil {
		return nil, err
	}
	rows := min(v.rows, chunk.ChunkRobot.Rows)
	return pickle.AppendActions(nil, &pickle.Actions{
		Timestamp: o.Timestamp,
		Interval:  1 / c.f.to.Meta.FPS,
		First:     o.Timestep,
		Cols:      chunk.ChunkRobot.Cols,
		Data:      chunk.ChunkRobot.Data[:rows*chunk.ChunkRobot.Cols],
	}), nil
}

// stateOf returns the joints of an observation in the policy's order.
func (v *view) stateOf(o *lerobot.Observation) ([]float64, error) {
	state := make([]float64, len(v.state))
	for i, name := range v.state {
		var ok bool
		if state[i], ok = o.Number(name); !ok || math.IsNaN(state[i]) || math.IsInf(state[i], 0) {
			v := o.Values.Get(name)
			return nil, fmt.Errorf("%w: joint %s is %s, want a finite number", lerobot.ErrMessage, name,
				pickle.Brief(v))
		}
	}
	return state, nil
}
