package why

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

const (
	// Without an answer for silentAfter, and with silentRequests unanswered requests, the cause is the network
	// connection, and not the loss of one message.
	silentAfter    = 800 * millisecond
	silentRequests = 3
)

// between returns the events with one of the codes in a stretch of time.
func (l *Log) between(from, to rt.Instant, codes ...event.Code) []happened {
	return slices.Collect(l.follow(from, to, codes...))
}

// follow does the same as between, for a caller that may need only the first events.
func (l *Log) follow(from, to rt.Instant, codes ...event.Code) iter.Seq[happened] {
	return func(yield func(happened) bool) {
		for _, e := range since(l.events, from) {
			if e.At > to || slices.Contains(codes, e.code) && !yield(e) {
				return
			}
		}
	}
}

// has reports whether one of the events has this code and the first argument a.
func has[A ~int64](events []happened, code event.Code, a A) bool {
	return slices.ContainsFunc(events, func(e happened) bool { return e.code == code && e.a == int64(a) })
}

func evidenceOf(events []happened) (e []Evidence) {
	for _, h := range events[:min(len(events), maxEvidence)] {
		e = append(e, h.Evidence)
	}
	return e
}

// sessionBefore returns the newest session that was opened up to an instant, and sessionAfter the first session that
// was opened later.
func (l *Log) sessionBefore(at rt.Instant) *opened {
	if i := len(l.sessions) - len(since(l.sessions, at+1)); i > 0 {
		return &l.sessions[i-1]
	}
	return nil
}

func (l *Log) sessionAfter(at rt.Instant) *opened {
	if later := since(l.sessions, at+1); len(later) > 0 {
		return &later[0]
	}
	return nil
}

// session explains a stretch of time by the end of the session or of the connection.
func (x *explainer) session(from, to rt.Instant) *reason {
	l := x.log
	told := l.between(from, to, event.SessionLost, event.LinkDown, event.SessionWaits, event.SessionRefused,
		event.Notice, event.ModelChanged)
	ended := slices.IndexFunc(told, func(e happened) bool {
		return e.code != event.Notice || e.a == int64(event.NoticeDraining)
	})
	if ended < 0 {
		return nil
	}
	var first happened // event that shows how the session ended
	if i := slices.IndexFunc(told, func(e happened) bool {
		return e.code == event.SessionLost || e.code == event.LinkDown
	}); i >= 0 {
		first = told[i]
	}
	r := &reason{evidence: evidenceOf(told)}
	lostAt := told[ended].At
	before, after := l.sessionBefore(lostAt), l.sessionAfter(lostAt)
	if after != nil && after.at <= to+second {
		r.add(after.at, "session %d open at %s", after.Epoch, cmp.Or(after.ServerID, after.Service))
	}
	another := before != nil && after != nil && before.ServerID != after.ServerID
	why := event.Why(first.a)
	refusedThere := has(told, event.LinkDown, event.WhyRefused)
	silent := first.code == event.SessionLost && first.a == int64(event.LossUnanswered) ||
		first.code == event.LinkDown && why == event.WhySilent
	switch {
	case slices.ContainsFunc(told, func(e happened) bool { return e.code == event.SessionRefused }):
		r.cause = ServerRefuses
	case slices.ContainsFunc(told, func(e happened) bool { return e.code == event.ModelChanged }):
		r.cause = ModelChange
	case has(told, event.SessionWaits, event.WaitTaken):
		r.cause = SameID
	case has(told, event.Notice, event.NoticeDraining), has(told, event.SessionWaits, event.WaitDraining):
		r.cause = ServerDraining
	case has(told, event.SessionWaits, event.WaitFull):
		r.cause = ServerFull
	case another:
		r.cause = ServerGone
		r.add(after.at, "it is another process than before: %s was there, %s is now", before.ServerID, after.ServerID)
	case silent && first.code == event.SessionLost && x.givenUp(first.At):
		r.cause = SlowPolicy
		x.addUsual(r, first.At)
	case silent:
		r.cause = LinkSilent
	case first.code == event.SessionLost && first.a == int64(event.LossClosed):
		r.cause = SessionClosed
	case first.code == event.LinkDown && after == nil && refusedThere && x.ended(to):
		r.cause = ServerGone // no server listens at the address
	case first.code == event.LinkDown, has(told, event.LinkDown, event.WhyClosed), refusedThere:
		r.cause = LinkLost
	case first.code == event.SessionLost:
		r.cause = ServerGone // the server's token disappeared while the connection lasted
	case has(told, event.SessionWaits, event.WaitNobody):
		r.cause = ServerGone
	default:
		r.cause = LinkLost
	}
	return r
}

// ended reports whether the record ends soon after an instant.
func (x *explainer) ended(at rt.Instant) bool { return x.log.last-at < 2*second }

// due returns the request whose answer was missing at an instant: the first request after the result last, which is
// the request of the chunk that was merged last.
func (l *Log) due(at rt.Instant) (missing, last *request) {
	asked := l.requests[:len(l.requests)-len(since(l.requests, at+1))]
	for _, q := range slices.Backward(asked) {
		if j := q.joined(); j != nil && j.At <= at {
			return missing, q
		}
		missing = q
	}
	return missing, nil
}

// typical returns the median duration of a part of the round trips.
func (l *Log) typical(part func(*request) time.Duration) time.Duration {
	var all []time.Duration
	for _, q := range l.requests {
		if q.joined() != nil {
			all = append(all, part(q))
		}
	}
	return median(all)
}

// parts are the parts of a round trip, each with its cause.
var parts = []struct {
	cause Cause
	took  func(*request) time.Duration
}{
	{ServerSlow, func(q *request) time.Duration { return time.Duration(q.arrived().Inference) }},
	{ServerQueue, func(q *request) time.Duration { return time.Duration(q.arrived().QueueWait) }},
	{SenderSlow, func(q *request) time.Duration { return q.sending() }},
	{NetworkSlow, func(q *request) time.Duration {
		c := q.arrived()
		return time.Duration(c.At-q.At) - time.Duration(c.Inference) - time.Duration(c.QueueWait) - q.sending()
	}},
}

func (q *request) sending() time.Duration {
	if q.sent == nil || q.sent.At < q.At {
		return 0
	}
	return time.Duration(q.sent.At - q.At)
}

// slow explains a slow round trip by the part that exceeds its usual duration in this record the most. If no part
// exceeds its usual duration by much, for example because most of the record is slow, slow names the longest
// part.
func (x *explainer) slow(q *request) *reason {
	c := q.arrived()
	r := &reason{}
	var most, longest time.Duration
	var longestOf Cause
	for _, p := range parts {
		took := p.took(q)
		if beyond := took - x.typical[p.cause]; beyond > most {
			most, r.cause = beyond, p.cause
		}
		if took > longest {
			longest, longestOf = took, p.cause
		}
	}
	if most < longest/4 {
		r.cause = longestOf
	}
	r.add(q.At, "request %d asked with %s of actions left", q.Seq, seconds(q.Runway))
	if q.sent != nil {
		r.add(q.sent.At, "its observation left %s later (%d kB)", seconds(q.sending()), (q.sent.Bytes+500)/1000)
	}
	text := fmt.Sprintf("its chunk came after %s; the server reports: waited %s, computed %s",
		seconds(c.At-q.At), seconds(c.QueueWait), seconds(c.Inference))
	if c.Outcome != record.Joined {
		text += ": dropped as " + c.Outcome
	} else if c.Dropped > 0 {
		text += fmt.Sprintf("; %d of its %d actions were past", c.Dropped, c.Rows)
	}
	r.add(c.At, "%s", text)
	if r.cause == "" {
		return nil // no part took any time, so the instants are invalid
	}
	return r
}

// arrived returns the first answer to a request.
func (q *request) arrived() *record.Chunk { return &q.chunks[0] }

// fate explains a stretch of time by the fate of the request whose answer was missing.
func (x *explainer) fate(q *request, at, until rt.Instant) *reason {
	r := &reason{}
	r.add(q.At, "request %d asked with %s of actions left", q.Seq, seconds(q.Runway))
	if q.sent == nil && len(q.chunks) == 0 && at-q.At > 100*millisecond {
		r.cause = NotSent
		r.add(q.At, "its observation did not leave: a newer one took its place, or the sender was busy")
		return r
	}
	if q.sent != nil && q.sent.Outcome != "sent" {
		r.cause = NotSent
		if q.sent.Outcome == "no_picture" {
			r.cause = NoPicture
		}
		r.add(q.sent.At, "its observation did not leave: %s", q.sent.Outcome)
		return r
	}
	if len(q.chunks) > 0 {
		if c := q.arrived(); badChunk(c.Outcome) {
			r.cause = BadChunk
			r.add(c.At, "its chunk came after %s and was dropped: %s", seconds(c.At-q.At), c.Outcome)
			return r
		}
		return x.slow(q)
	}
	return x.unanswered(q, r, until)
}

func badChunk(outcome string) bool {
	return slices.Contains([]string{"not_finite", "bad_shape", "body", "ahead"}, outcome)
}

// unanswered explains a request that left the robot and got no answer.
func (x *explainer) unanswered(q *request, r *reason, until rt.Instant) *reason {
	l := x.log
	if q.sent != nil {
		r.add(q.sent.At, "its observation left %s later (%d kB)", seconds(q.sending()), (q.sent.Bytes+500)/1000)
	}
	for _, n := range l.between(q.At, until+second, event.Notice) {
		if uint64(n.b) != q.Seq {
			continue
		}
		r.cause = ServerFailed
		if n.a == int64(event.NoticeLate) {
			r.cause = ServerQueue
		}
		r.add(n.At, "the server reports: %s", n.Text)
		return r
	}
	n, answered := 0, until
	var next *request // the next request that was answered
	for _, o := range since(l.requests, q.At) {
		if o.At > until {
			break
		}
		if o.Seq < q.Seq {
			continue
		}
		if len(o.chunks) > 0 {
			next, answered = o, o.arrived().At
			break
		}
		n++
	}
	text := "no answer to it"
	if n > 1 {
		text += fmt.Sprintf(", nor to the %d after it,", n-1)
	}
	r.add(min(answered, until), "%s for %s", text, seconds(min(answered, until)-q.At))
	line, known := x.audit.of(q)
	switch {
	case line != nil && line.Outcome != "ok" && line.Outcome != "unsent":
		r.cause = ServerFailed
		r.evidence = append(r.evidence, line.evidence(until))
	case n >= silentRequests && min(answered, until)-q.At >= silentAfter:
		r.cause = LinkSilent
	case next != nil && next.arrived().Superseded > 0 && line == nil:
		r.cause = Superseded
		r.add(next.arrived().At,
			"the chunk of request %d reports that the server passed over %d observations before it", next.Seq,
			next.arrived().Superseded)
	case line != nil:
		r.cause = LostBack
		r.evidence = append(r.evidence, line.evidence(until))
	case known:
		r.cause = LostThere
		r.add(until, "the server's audit has lines of this session but no line of request %d", q.Seq)
	default:
		r.cause = Lost
	}
	return r
}
