package main

import (
	"context"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/scene"
)

// handSpeed is in counts per second, high enough to reach each tick's goal within the tick.
const handSpeed = 6000

// hand is the teacher's hand at the leader. It observes the world, and while it leads it moves the
// leader's limp shafts.
type hand struct {
	eye    *scene.Viewer // owner: the goroutine of move; place uses it before move begins
	shafts *sim.Hand
	clock  rt.Clock
	ended  chan struct{}
	stop   chan struct{}

	mu      sync.Mutex
	leads   bool      // guarded by mu
	seen    sim.View  // newest view of the world; guarded by mu
	err     error     // reason why the world has ended; guarded by mu
	legTime time.Time // instant at which the present leg began; guarded by mu
}

func newHand(eye *scene.Viewer, shafts *sim.Hand) *hand {
	return &hand{
		eye:    eye,
		shafts: shafts,
		clock:  rt.KernelClock(),
		ended:  make(chan struct{}),
		stop:   make(chan struct{}),
	}
}

// place moves the leader to the arm's position.
func (h *hand) place() error {
	v, err := h.eye.View()
	if err != nil {
		return err
	}
	h.seen, h.legTime = v, time.Now()
	h.take(v.Q, 1e9)
	return nil
}

func (h *hand) take(q [sim.DOF]float64, speed float64) {
	raw := make([]int, sim.DOF)
	for j := range raw {
		raw[j] = sim.RawOf(j, q[j])
	}
	h.shafts.Lead(h.clock.Now(), raw, speed)
}

// move observes the world at each tick until hand.end is called, and leads as hand.lead has requested.
func (h *hand) move(ctx context.Context) {
	defer close(h.ended)
	var teacher sim.Teacher
	var q [sim.DOF]float64 // the hand's position while it leads
	led := false
	for ticks := time.Tick(tick); ; {
		select {
		case <-ticks:
		case <-h.stop:
			return
		case <-ctx.Done():
			return
		}
		v, err := h.eye.View()
		leads := h.note(v, err)
		if err != nil {
			return
		}
		if leads && !led { // the hand now grasps the leader at its position
			now := h.clock.Now()
			for j := range q {
				q[j] = sim.AngleOf(j, h.shafts.Present(now, j))
			}
		}
		if led = leads; leads {
			// The hand continues from its own position and not from the arm's, which follows some
			// ticks later.
			q = liftToo(teacher.Goal(sim.TipAt(q[0], q[2]), v.Target, v.Post, q[5]))
			h.take(q, handSpeed)
		}
	}
}

// liftToo moves the shoulder's lift a little with its pan, as any person does; the tip's position does not
// depend on the lift. A policy divides by each joint's standard deviation. If the lift never moved, its
// deviation would be almost 0, and an error of one encoder count would dominate all other values.
func liftToo(q [sim.DOF]float64) [sim.DOF]float64 {
	const share, pan, lift = 0.15, 0, 1
	q[lift] += share * (q[pan] - straightPan)
	return q
}

// straightPan is the pan of an arm that reaches straight ahead, in degrees.
const straightPan = 45

// note keeps the view, and reports whether the hand leads.
func (h *hand) note(v sim.View, err error) (leads bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.err = err
		return false
	}
	if judgement(v.Score) != judgement(h.seen.Score) {
		h.legTime = time.Now()
	}
	h.seen = v
	return h.leads
}

// lead begins to lead, or stops.
func (h *hand) lead(leads bool) {
	h.mu.Lock()
	h.leads = leads
	h.mu.Unlock()
}

// sees returns the hand's last view of the world, and how long the present leg has lasted.
func (h *hand) sees() (v sim.View, leg time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen, time.Since(h.legTime), h.err
}

// end removes the hand.
func (h *hand) end() error {
	close(h.stop)
	<-h.ended
	return h.eye.Close()
}
