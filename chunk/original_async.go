package chunk

import "github.com/edge-rt/edge-rt/rt"

// originalAsync is LeRobot's RobotClient with its PolicyServer's filter. Unlike ours, a chunk
// begins with the last step run, so its first row is never used; a late chunk empties the queue;
// chunks are accepted in any order; observations are compared with the newest sent; and no step is
// asked for twice, so that one lost answer with an empty queue stops the arm for good.
//
// Source: lerobot async_inference/{robot_client,policy_server}.py.
type originalAsync struct {
	queueBase
	mustGo          bool
	actionChunkSize int         // longest chunk so far, -1 before the first
	predicted       int64       // newest of the server's _predicted_timesteps, noStep before the first
	lastProcessed   stateFilter // the server's last_processed_obs
}

func newOriginalAsync(b queueBase) *originalAsync {
	return &originalAsync{
		queueBase:       b,
		mustGo:          true,
		actionChunkSize: -1,
		predicted:       noStep,
		lastProcessed:   newStateFilter(b.c),
	}
}

// OnChunk is receive_actions and _aggregate_action_queues.
//
//rt:noalloc
func (d *originalAsync) OnChunk(now rt.Instant, c *Chunk) Result {
	_, executed, r := d.answer(now, c)
	if r.Outcome != Joined {
		return r
	}
	d.actionChunkSize = max(d.actionChunkSize, c.Rows)
	d.mustGo = true
	return d.blend(c, executed, r)
}

// OnTick is control_loop_observation, and _enqueue_observation of the server.
//
//rt:noalloc
func (d *originalAsync) OnTick(now rt.Instant, state []float32, a *Ask) bool {
	d.waiting()
	if !(float64(d.queue.size())/float64(d.actionChunkSize) <= d.c.Threshold) {
		return false
	}
	timestep := max(d.n, 0)
	mustGo := d.mustGo && d.queue.size() == 0
	if !mustGo && (timestep == d.predicted || d.lastProcessed.similar(state)) {
		return false
	}
	if mustGo {
		d.mustGo = false
	}
	a.unconditioned()
	d.predicted = timestep
	d.ask(now, a, timestep, d.recovery())
	d.lastProcessed.compareWith(state)
	return true
}

//rt:noalloc
func (d *originalAsync) RequestNow() {
	d.queueBase.RequestNow()
	d.mustGo = true
}

//rt:noalloc
func (d *originalAsync) Resume() {}

//rt:noalloc
func (d *originalAsync) Reset() {
	d.queueBase.Reset()
	d.mustGo = true
	d.lastProcessed.active = false
	d.predicted = noStep
}
