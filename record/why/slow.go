package why

import (
	"cmp"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/rt"
)

const (
	// A slow policy explains a wait for a chunk only up to a limit: the duration of a chunk's actions, plus slowTimes
	// times the policy's usual time for a chunk, including the wait for its turn.
	slowTimes = 3
	// oldTimeout is the --request-timeout for records that lack this setting.
	oldTimeout = 5 * time.Second
	// hopelessText is part of the last event of a run that ended because no action could ever run.
	hopelessText = "no action could ever run"
)

// computing is the server's usual time for a chunk: for the inference, and in the queue before it.
type computing struct{ inference, queue time.Duration }

// usually returns the medians over all answers, including dropped answers.
func (l *Log) usually() computing {
	var inference, queue []time.Duration
	for _, q := range l.requests {
		for i := range q.chunks {
			if took := q.chunks[i].Inference; took > 0 {
				inference = append(inference, time.Duration(took))
				queue = append(queue, time.Duration(q.chunks[i].QueueWait))
				break
			}
		}
	}
	return computing{median(inference), median(queue)}
}

// tooSlow reports whether the policy takes longer for a chunk than the chunk's actions last, or
// than the maximum age of actions allows.
func (x *explainer) tooSlow() bool {
	took, age := x.usually.inference, x.log.limit("max_action_age")
	return took > 0 && (x.horizon > 0 && took >= x.horizon || age > 0 && 2*took >= age)
}

// slowPolicy explains a stretch without actions by a policy that always takes longer than its chunks last. The
// parameter asked is the instant of the request whose answer was missing. During the stretch the server must have
// continued to answer, because a wait much longer than usual has another cause.
func (x *explainer) slowPolicy(asked, from, to rt.Instant) *reason {
	usual := slowTimes*(x.usually.inference+x.usually.queue) + x.horizon
	if !x.tooSlow() || x.longestWait(asked, to) > usual {
		return nil
	}
	r := because(SlowPolicy)
	x.addUsual(r, from)
	return r
}

// longestWait returns the longest time without an answer between two instants.
func (x *explainer) longestWait(from, to rt.Instant) (longest time.Duration) {
	last := from
	first, _ := slices.BinarySearch(x.answers, from+1)
	for _, at := range x.answers[first:] {
		if at >= to {
			break
		}
		longest = max(longest, time.Duration(at-last))
		last = at
	}
	return max(longest, time.Duration(to-last))
}

// answers returns the instants of the first answers to the requests, sorted.
func (l *Log) answers() (at []rt.Instant) {
	for _, q := range l.requests {
		if len(q.chunks) > 0 {
			at = append(at, q.arrived().At)
		}
	}
	slices.Sort(at)
	return at
}

// addUsual adds to r the policy's usual time and the limit that this time exceeds.
func (x *explainer) addUsual(r *reason, at rt.Instant) {
	r.add(at, "the policy usually takes %s for a chunk, after %s of waiting for its turn; the actions of one last %s",
		seconds(x.usually.inference), seconds(x.usually.queue), seconds(x.horizon))
	if age := x.log.limit("max_action_age"); age > 0 && 2*x.usually.inference >= age {
		r.add(at, "actions may be %s old (--max-action-age)", seconds(age))
	}
	r.evidence = append(r.evidence, evidenceOf(x.slowly[:min(len(x.slowly), maxEvidence-len(r.evidence))])...)
}

// givenUp reports whether the robot gave up a session while an answer was on its way: the policy
// takes longer than --request-timeout, or the answer came afterwards.
func (x *explainer) givenUp(lostAt rt.Instant) bool {
	limit := cmp.Or(x.log.limit("request_timeout"), oldTimeout)
	return x.usually.inference+x.usually.queue >= limit || x.overdue.overlap(lostAt+1, lostAt-1)
}

// slowWarning warns of limits that the policy exceeds, if no other finding names them.
func (x *explainer) slowWarning(others times) []Finding {
	told := x.log.between(0, x.log.last+minute, event.SlowPolicy)
	if others[SlowPolicy] != nil || len(told) == 0 {
		return nil
	}
	return []Finding{found(Warning, SlowPolicy, told[0].At, told[len(told)-1].At, evidenceOf(told)...)}
}
