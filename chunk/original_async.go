package chunk

import "github.com/edge-rt/edge-rt/rt"

// originalAsync is LeRobot's RobotClient with its PolicyServer's filter. It differs from async in these points. A chunk
// begins with the last step run, so its first row is never used. A late chunk empties the queue, and chunks are
// accepted in any order. The filter compares with the observation that the server is processing. A step is never
// requested twice, so one lost answer with an empty queue stops the arm for good.
//
// Source: lerobot async_inference/{robot_client,policy_server}.py.
type originalAsync struct {
	queueBase
	mustGo          bool
	actionChunkSize int         // rows of the longest chunk so far; -1 before the first
	predicted       int64       // newest of the server's _predicted_timesteps, noStep before the first
	lastProcessed   stateFilter // the server's last_processed_obs
	serves          int         // ticks since the server took an observation; 0: the server waits for the next one
	// state that waits in the server's observation_queue until the present answer is computed
	queued []float32
	full   bool // queued is valid
}

func newOriginalAsync(b queueBase) *originalAsync {
	return &originalAsync{
		queueBase:       b,
		mustGo:          true,
		actionChunkSize: -1,
		predicted:       noStep,
		lastProcessed:   newStateFilter(b.c),
		queued:          make([]float32, b.c.DOF),
	}
}

// OnChunk does the work of receive_actions and _aggregate_action_queues.
//
//rt:noalloc
func (d *originalAsync) OnChunk(now rt.Instant, c *Chunk) Result {
	_, executed, r := d.answer(now, c)
	if r.Outcome != Joined {
		return r
	}
	d.actionChunkSize = max(d.actionChunkSize, c.Rows)
	d.mustGo = true
	d.serveNext()
	return d.blend(c, executed, r)
}

// serveNext ends the server's work on an observation, and begins it on the queued one.
//
//rt:noalloc
func (d *originalAsync) serveNext() {
	if d.serves = 0; d.full {
		d.lastProcessed.compareWith(d.queued)
		d.serves, d.full = 1, false
	}
}

// originalTrips is the number of expected round trips after which an answer counts as lost.
const originalTrips = 2

// OnTick does the work of control_loop_observation in the client, and of _enqueue_observation in the server.
//
//rt:noalloc
func (d *originalAsync) OnTick(now rt.Instant, state []float32, a *Ask) bool {
	d.waiting()
	if d.serves > 0 {
		d.serves++
	}
	if d.serves > originalTrips*d.estimate()+1 {
		d.serveNext() // the answer is lost
	}
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
	if d.full = d.serves > 0; d.full {
		copy(d.queued, state)
	} else {
		d.serves = 1
		d.lastProcessed.compareWith(state)
	}
	return true
}

//rt:noalloc
func (d *originalAsync) RequestNow() {
	d.queueBase.RequestNow()
	d.mustGo = true
	d.serves, d.full = 0, false
}

//rt:noalloc
func (d *originalAsync) Resume() {}

//rt:noalloc
func (d *originalAsync) Reset() {
	d.queueBase.Reset()
	d.mustGo = true
	d.serves, d.full = 0, false
	d.lastProcessed.active = false
	d.predicted = noStep
}
