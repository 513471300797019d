package chunk

// trigger decides on which tick drtc asks for the next chunk, and which delay to announce. It fires when at most H -
// s_min actions are left and the cooldown has run out; firing sets the cooldown to the latency estimate plus epsilon,
// or less (cooldownRunway). It never waits for an answer: after a lost request it fires again within estimate + epsilon
// + 1 ticks, or later after a long silence (spread).
//
// Owner: the tick thread.
type trigger struct {
	c        Config
	latency  estimator
	cooldown int  // ticks until the trigger may fire again
	due      bool // the next tick fires, however many actions are left
	waited   int  // ticks since an answer joined, or since askNow
}

// onTick advances the cooldown and reports whether to ask now. The parameter size is the number of actions left after
// Pop and OnChunk. The result delay is the delay to announce: the estimate, but at most size. On a tick without an
// observation, call onTickWithoutObservation instead.
//
//rt:noalloc
func (t *trigger) onTick(size int) (fire bool, delay int) {
	if !t.due && (size > t.c.Horizon-t.c.SMin || t.cooldown > 0) {
		t.onTickWithoutObservation()
		return false, 0
	}
	t.due = false
	estimate := t.estimate()
	t.cooldown = max(t.timeout(estimate, size)+t.c.Epsilon, spread(t.waited))
	return true, min(estimate, size)
}

// timeout returns the number of ticks, without epsilon, after which drtc repeats a request without an answer.
//
//rt:noalloc
func (t *trigger) timeout(estimate, size int) int {
	e, ok := t.latency.(*jacobsonKarels)
	if t.c.Cooldown != cooldownRunway || !ok || !e.seeded {
		return estimate
	}
	return min(estimate, max(size/2, steps(e.mean, t.c.FPS, t.c.Horizon)))
}

//rt:noalloc
func (t *trigger) onTickWithoutObservation() {
	t.cooldown = max(t.cooldown-1, 0)
	t.waited = min(t.waited+1, stepsMax)
}

// answered notes that an answer joined.
//
//rt:noalloc
func (t *trigger) answered(rtt float64) {
	t.waited = 0
	t.latency.observe(rtt)
}

// askNow makes the next tick fire, because the request under way is lost, or because the actions left are older than
// usual.
//
//rt:noalloc
func (t *trigger) askNow() { t.cooldown, t.waited, t.due = 0, 0, true }

// estimate returns the predicted round trip in action steps, 1 to max(1, H/2).
//
//rt:noalloc
func (t *trigger) estimate() int { return steps(t.latency.seconds(), t.c.FPS, t.c.Horizon) }
