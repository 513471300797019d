package servo

import "time"

// A read that finds everything there when its sleep ends makes the next sleep
// shorter, one that has to poll makes it longer, and by no more than was missing.
// The step halves until it is the last.
const (
	tuneFirst = 256 * time.Microsecond
	tuneLast  = time.Microsecond
	tuneEach  = 8            // reads of one step
	tuneTick  = 5 * tuneEach // reads after which the tick begins, whose replies come a little earlier or later than MeasureCycles has seen
	tuneHits  = 16           // reads in a row that find everything there, after which the step doubles: the adapter has become faster
	tuneMost  = 6            // times that it does so
)

// tuning is how long after the computed end one group's replies are there, which
// depends on the adapter, on the servos, and on what the line did before: on the
// tick it rests between reads, or carries goals right before the request.
//
// A read that finds everything there does not say for how long it was, so the
// sleep shrinks until one is too short: two of three reads find everything there,
// the third waits for the last bytes, which takes as much CPU time as half of all
// the rest. However late a reply was, a step is small: a host that stalls moves it
// no more than chance does. Sleeps that end late are made up for too.
type tuning struct {
	on    bool
	reads int
	hits  int // reads in a row that found everything there
	delay time.Duration
}

// tuning is that of the reads the group uses now.
//
//rt:noalloc
func (g *readGroup) tuning() *tuning {
	if g.fast {
		return &g.tunings[1]
	}
	return &g.tunings[0]
}

// startTuning begins anew.
func (g *readGroup) startTuning() {
	g.tunings = [2]tuning{{on: true}, {on: true}}
	for _, one := range g.each {
		one.startTuning()
	}
}

// continueTuning goes on with larger steps: on the tick it may be a little different. The
// other kind of read, which was not used yet, begins where other registers' do.
func (g *readGroup) continueTuning() {
	used, unused := *g.tuning(), tuning{on: true, reads: tuneTick, delay: g.replyDelay()}
	used.reads = min(used.reads, tuneTick)
	g.tunings = [2]tuning{unused, unused}
	*g.tuning() = used
	for _, one := range g.each {
		one.continueTuning()
	}
}

// settle is what reads of other registers may expect, the slowest motor's.
func (g *readGroup) replyDelay() time.Duration {
	most := max(0, g.tuning().delay)
	for _, one := range g.each {
		most = max(most, one.tuning().delay)
	}
	return most
}

// due is how long after the first byte out all of the group's replies are there.
//
//rt:noalloc
func (b *Bus) due(g *readGroup) time.Duration {
	if t := g.tuning(); t.on {
		return g.wire + t.delay
	}
	return g.wire + b.replyDelay
}

// tune learns from an exchange that asked all of the group; one that lost a reply
// says nothing. No servo answers before the line has carried all bytes, gaps or
// not.
//
//rt:noalloc
func (b *Bus) tune(g *readGroup) {
	t := g.tuning()
	if !t.on || g.answered != g.all || g.maybeEcho {
		return
	}
	step := max(tuneLast, tuneFirst>>(t.reads/tuneEach))
	if step > tuneLast {
		t.reads++
	}
	if b.polled {
		t.hits = 0
		t.delay = min(replyDelayMax, t.delay+min(2*step, b.clock.Now().Sub(b.end)))
		return
	}
	t.hits++
	gaps := len(g.ids)
	if g.fast {
		gaps = 1
	}
	t.delay = max(-time.Duration(gaps)*replyGap, t.delay-step<<min(t.hits/tuneHits, tuneMost))
}
