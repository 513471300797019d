package fleet

import (
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/sim/netfault"
)

// request is a message on its way: an observation, and later the answer to it.
type request struct {
	key      int64
	obs      Observation
	bytes    int // size of the message: of the observation, or later of the answer
	answer   Answer
	sent     time.Duration // when the message left the robot
	arrived  time.Duration // when the message reached the server, which may have been busy
	served   time.Duration // when the server began to process it
	answered time.Duration // when the answer left the server
	at       time.Duration // when the message arrives at the next receiver
}

// network simulates the network in both directions and the server, which has one worker and a
// mailbox that keeps the newest request. It calls loss for each lost message.
type network struct {
	cfg  *Config
	plan *netfault.Plan
	loss func(key int64, at time.Duration)

	up, down     netfault.Line[*request]
	upAt, downAt time.Duration // end of the last message in each direction, since a stream delivers in order
	inbound      []*request    // under way to the server
	outbound     []*request    // under way to the robot
	waiting      *request      // the request in the server's mailbox
	serving      *request
	done         time.Duration // when the answer to n.serving will leave the server
	began        time.Duration // when the newest inference began
	newest       int64         // newest key that has been in the mailbox
	read         int64         // newest key that the robot has read
	away         bool
	openAgain    time.Duration // when the session will be open after a restart
	reopened     bool
	inferences   int
	superseded   int
	upSize       int // bytes that have left the robot so far
	downSize     int
	scratch      []*request
	messages     messages
}

func newNetwork(cfg *Config, plan *netfault.Plan, loss func(int64, time.Duration)) network {
	return network{
		cfg:   cfg,
		plan:  plan,
		loss:  loss,
		began: -1,
	}
}

// open reports whether the session with the server is open. fresh is true in the first call for a new session. When the
// server has been killed, open calls forget.
func (n *network) open(now time.Duration, forget func()) (open, fresh bool) {
	away := n.plan.ServerDown(now)
	if away && !n.away { // the server was killed, and its queue is lost
		for _, f := range n.inbound {
			n.loss(f.key, now)
		}
		for _, f := range []*request{n.waiting, n.serving} {
			if f != nil {
				n.loss(f.key, now)
			}
		}
		n.inbound = n.inbound[:0]
		n.waiting = nil
		n.serving = nil
		n.up.Drop()
		n.down.Drop()
		forget()
	}
	if n.away && !away {
		n.openAgain, n.reopened = now+n.cfg.Reconnect, true
	}
	n.away = away
	if away || now < n.openAgain {
		return false, false
	}
	fresh, n.reopened = n.reopened, false
	return true, fresh
}

func (n *network) send(now time.Duration, f *request) {
	f.sent = now
	n.upSize += f.bytes
	effect := n.plan.Observation(now)
	n.scratch = n.pass(&n.up, effect, f, now)
	for _, p := range n.scratch {
		n.upAt = max(n.upAt, n.up.Arrival(now, effect, p.bytes)+n.cfg.Network)
		p.at = n.upAt
		n.inbound = append(n.inbound, p)
	}
}

// pass applies an effect to a message and returns the messages that arrive: for example, two for a
// duplicated message.
func (n *network) pass(line *netfault.Line[*request], effect netfault.Effect, f *request, at time.Duration) []*request {
	effect = line.Next(effect)
	var held *request
	if line.Holding() && !effect.Lost && !effect.Reorders {
		held = line.Held()
	}
	passed, _ := line.Pass(effect, f, n.scratch[:0])
	switch {
	case effect.Lost:
		n.loss(f.key, at)
	case held != nil:
		n.loss(held.key, at)
	}
	if len(passed) == 2 && passed[0] == passed[1] {
		second := *f
		passed[1] = &second
	}
	return passed
}

func (n *network) advance(now time.Duration, p Policy) error {
	for {
		arrival := len(n.inbound) > 0 && n.inbound[0].at <= now
		finished := n.serving != nil && n.done <= now
		switch {
		case finished && (!arrival || n.done <= n.inbound[0].at):
			n.finish()
			if next := n.waiting; next != nil {
				n.waiting = nil
				if err := n.begin(next, n.done, p); err != nil {
					return err
				}
			}
		case arrival:
			f := n.inbound[0]
			n.inbound = slices.Delete(n.inbound, 0, 1)
			if err := n.deposit(f, p); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// deposit puts an observation into the server's mailbox, or begins its inference when the worker is
// idle. It drops an observation that is not newer than all earlier ones.
func (n *network) deposit(f *request, p Policy) error {
	if f.key <= n.newest {
		return nil
	}
	n.newest, f.arrived = f.key, f.at
	if n.serving == nil {
		return n.begin(f, f.at, p)
	}
	if n.waiting != nil {
		n.superseded++
	}
	n.waiting = f
	return nil
}

// begin starts an inference. The policy computes the chunk at once. The chunk leaves the server
// after the stops of the due spikes and the simulated time of the inference.
func (n *network) begin(f *request, at time.Duration, p Policy) error {
	stop := n.plan.Spikes(n.began, at)
	n.began = at
	f.served = at + stop
	n.serving, n.done = f, f.served+n.cfg.Compute+n.plan.Compute(at)
	lent, err := p.Answer(&f.obs)
	if err != nil {
		return err
	}
	f.answer = Answer{Robot: slices.Clone(lent.Robot), Model: slices.Clone(lent.Model)}
	n.inferences++
	return nil
}

func (n *network) finish() {
	f := n.serving
	n.serving = nil
	f.answered = n.done
	f.bytes = n.messages.answer(f.key, &f.answer)
	n.downSize += f.bytes
	effect := n.plan.Chunk(f.answered)
	n.downAt = max(n.downAt, n.down.Arrival(f.answered, effect, f.bytes)+n.cfg.Network)
	f.at = n.downAt
	n.outbound = append(n.outbound, f)
}

// receive returns the newest answer that has arrived by now and was not read yet; nil when there is
// none. It drops older answers.
func (n *network) receive(now time.Duration) (newest *request) {
	for len(n.outbound) > 0 && n.outbound[0].at <= now {
		f := n.outbound[0]
		n.outbound = slices.Delete(n.outbound, 0, 1)
		n.scratch = n.pass(&n.down, n.plan.Chunk(f.at), f, f.at)
		for _, p := range n.scratch {
			if p.key <= n.read {
				continue
			}
			newest, n.read = p, p.key
		}
	}
	return newest
}
